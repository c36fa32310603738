"""Direct times over depths: lines in K, beside the cycle fit, which infers from a noisy intercept what is timed here.

Per block t_draft(K), and the verify, sample and host parts, get a line over K >= 1; Student t over blocks. The fit's
t_draft is not t_draft(K): it is what drafting adds once, so it compares with the draft line's intercept plus the step
that the rest makes from K=0 to its line; its t_marginal compares with the sum of both slopes. Source: design.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from backend.analysis.estimate import Estimate, missing, student_t_mean
from backend.analysis.linear import least_squares

METHOD = "a line per block, Student t over blocks"


@dataclass(frozen=True, slots=True)
class TimingLines:
    """Intercepts and slopes over K >= 1, ms and ms per position; `fixed_ms` and `marginal_ms` compare with the fit."""

    k: tuple[int, ...]
    draft_intercept_ms: Estimate
    draft_slope_ms: Estimate
    verify_intercept_ms: Estimate
    verify_slope_ms: Estimate
    step_ms: Estimate  # verify, sample and host: their line at 0 less their time at K=0
    fixed_ms: Estimate
    marginal_ms: Estimate

    def to_dict(self) -> dict[str, object]:
        """As in `timing --json`."""
        names = [name for name in self.__dataclass_fields__ if name != "k"]
        return {"k": list(self.k)} | {name: getattr(self, name).to_dict() for name in names}


def timing_lines(runs: pd.DataFrame) -> TimingLines | None:
    """Lines over the runs of `timing.run_parts` (one cell, one rank). None where fewer than two depths were drafted."""
    depths = tuple(sorted(int(k) for k in runs.loc[runs["k"] > 0, "k"].unique()))
    if len(depths) < 2:
        return None
    rest = runs["verify"] + runs["sample"] + runs["host"]
    lines = []
    for _, rows in runs.assign(rest=rest).groupby("block", dropna=False):
        deep = rows[rows["k"] > 0]
        if set(deep["k"]) != set(depths):
            continue  # a block that lacks a depth would tilt its line
        draft, verify, others = (_line(deep, column) for column in ("draft", "verify", "rest"))
        lines.append((draft, verify, others, float(rows.loc[rows["k"] == 0, "rest"].mean())))
    if not lines:
        return None
    no_k0 = missing("ms", "no K=0 run: a step from K=0 to K=1 cannot be told", method=METHOD)

    def over_blocks(values: list[float], *, needs_k0: bool = False) -> Estimate:
        if needs_k0 and not all(np.isfinite(k0) for *_, k0 in lines):
            return no_k0
        return student_t_mean(values, "ms", what="block", method=METHOD)

    return TimingLines(
        depths,
        over_blocks([draft[0] for draft, _, _, _ in lines]),
        over_blocks([draft[1] for draft, _, _, _ in lines]),
        over_blocks([verify[0] for _, verify, _, _ in lines]),
        over_blocks([verify[1] for _, verify, _, _ in lines]),
        over_blocks([others[0] - k0 for _, _, others, k0 in lines], needs_k0=True),
        over_blocks([draft[0] + others[0] - k0 for draft, _, others, k0 in lines], needs_k0=True),
        over_blocks([draft[1] + others[1] for draft, _, others, _ in lines]),
    )


def _line(rows: pd.DataFrame, column: str) -> tuple[float, float]:
    """(intercept, slope) of a column on K; NaN where a run lacks it."""
    y = np.asarray(rows[column], dtype=np.float64)
    if not np.isfinite(y).all():
        return float("nan"), float("nan")
    k = np.asarray(rows["k"], dtype=np.float64)
    fit = least_squares(np.column_stack([np.ones(len(k)), k]), y)
    return float(fit.beta[0]), float(fit.beta[1])
