"""What throughput would be if a cost changed: the drafter on another host, a dearer verify position, another drafter.

The runs of a cell are changed one by one (formulas: `whatif_runs`) and go through the same statistics as the measured
ones: Student t on the log over runs, comparison of depths. Units: ms, tok/s, %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd

from backend.analysis.compare import compare_cell
from backend.analysis.comparison import Comparison
from backend.analysis.estimate import (
    LEVEL,
    Estimate,
    FloatArray,
    missing,
    point,
    student_t_log_mean,
    student_t_mean,
    t_quantile,
)
from backend.analysis.resample import DRAWS
from backend.analysis.selection import arms, numbers
from backend.analysis.whatif_runs import Change, Costs, Runs, changed_cycle_ms, number, runs_of


@dataclass(frozen=True, slots=True)
class DepthWhatIf:
    """One depth now and then; both with intervals over runs, and what the change of throughput is in %."""

    k: int
    now_tok_s: Estimate
    then_tok_s: Estimate
    change_percent: Estimate
    cycle_now_ms: Estimate
    cycle_then_ms: Estimate
    tokens_per_step: Estimate  # of then

    def to_dict(self) -> dict[str, object]:
        """JSON-safe."""
        names = ("now_tok_s", "then_tok_s", "change_percent", "cycle_now_ms", "cycle_then_ms", "tokens_per_step")
        return {"k": self.k, **{name: getattr(self, name).to_dict() for name in names}}


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The curve of one cell under a change. `runs`: the changed rows of run_cell; empty with a `reason`."""

    cell_id: str
    change: Change
    costs: Costs
    depths: tuple[DepthWhatIf, ...]
    now: Comparison
    then: Comparison
    runs: pd.DataFrame
    reason: str | None

    @property
    def best_now(self) -> int | None:
        """The fastest depth as measured, by point estimate, among depths that the change can tell of."""
        return self._fastest("now_tok_s")

    @property
    def best_then(self) -> int | None:
        """The fastest depth under the change, by point estimate."""
        return self._fastest("then_tok_s")

    def _fastest(self, which: str) -> int | None:
        known = {d.k: getattr(d, which).value for d in self.depths if getattr(d, which).value is not None}
        return max(known, key=known.__getitem__) if known else None

    def p_best(self, k: int) -> float | None:
        """Probability that k is the fastest under the change, over the scatter of runs alone."""
        return next((d.p_best for d in self.then.depths if d.k == k), None)

    def to_dict(self) -> dict[str, object]:
        """As in `whatif --json`."""
        return {
            "cell_id": self.cell_id,
            "change": asdict(self.change),
            "words": self.change.words,
            "t_draft_ms": self.costs.t_draft_ms.to_dict(),
            "t_draft_source": self.costs.source,
            "t_draft_by_depth": [{"k": k, **e.to_dict()} for k, e in self.costs.by_depth.items()],
            "t_marginal_ms": self.costs.t_marginal_ms.to_dict(),
            "best_now": self.best_now,
            "best_then": self.best_then,
            "p_best_then": None if self.best_then is None else self.p_best(self.best_then),
            "depths": [d.to_dict() for d in self.depths],
            "reason": self.reason,
        }


def what_if(
    run_cell: pd.DataFrame,
    change: Change,
    costs: Costs,
    *,
    tokens: Mapping[int, Estimate] | None = None,
    tokens_from: str = "",
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> WhatIf:
    """One cell under a change. tokens: tokens per step by depth of another sweep (`tokens_from`), else as measured.

    What is not of this cell's runs (a given or direct t_draft with an interval, another sweep's tokens) widens the
    interval: half-widths on the logarithm are added in quadrature, as independent errors are.
    """
    rows, runs = runs_of(run_cell, costs, tokens)
    cell_id = str(run_cell["cell_id"].iloc[0]) if len(run_cell) else ""
    nothing = compare_cell(rows, None, draws=1)
    if not len(rows):
        why = "above concurrency 1, and without a cycle time, there is nothing to change"
        return WhatIf(cell_id, change, costs, (), nothing, nothing, rows, why)
    then_cycle = changed_cycle_ms(runs.k, runs.cycle, runs.draft, runs.marginal, change)
    changed = rows.assign(decode_tok_s=runs.then(change), cycle_ms=then_cycle, tokens_per_step=runs.tokens)
    depths = tuple(
        _depth(int(k), runs, change, then_cycle, costs, tokens, tokens_from, level) for k in np.unique(runs.k)
    )
    return WhatIf(
        cell_id,
        change,
        costs,
        depths,
        compare_cell(rows.assign(decode_tok_s=runs.now()), None, draws=draws, seed=seed),
        compare_cell(changed, None, draws=draws, seed=seed),
        changed,
        None,
    )


def _depth(
    k: int,
    runs: Runs,
    change: Change,
    then_cycle: FloatArray,
    costs: Costs,
    tokens: Mapping[int, Estimate] | None,
    tokens_from: str,
    level: float,
) -> DepthWhatIf:
    mine = runs.k == k
    now, then = runs.now()[mine], runs.then(change)[mine]
    borrowed = tokens.get(k) if tokens is not None and k else None
    notes, extra = [], 0.0
    if tokens is not None and k:
        notes.append(f"tokens per step of {tokens_from}")
        extra += log_half_width(borrowed) ** 2 if borrowed is not None else 0.0
    if change.free_draft and k and (draft := costs.draft_at(k)).has_interval and not costs.paired(k):
        half = ((draft.high or 0.0) - (draft.low or 0.0)) / 2
        extra += (half / float(np.nanmean(then_cycle[mine]))) ** 2
        notes.append(f"t_draft: {draft.method}")
    why = "" if np.isfinite(then).any() else _unknown(k, change, costs, tokens, tokens_from)
    ratio = student_t_log_mean(then / now, "1", level=level)
    same = not notes and bool(np.allclose(then, now, rtol=1e-12))
    unchanged = point(0.0, "%", "exact: this depth is not changed", method="by definition", n=len(now))
    return DepthWhatIf(
        k,
        student_t_log_mean(now, "tok/s", level=level),
        missing("tok/s", why) if why else widened(student_t_log_mean(then, "tok/s", level=level), extra, notes),
        missing("%", why) if why else unchanged if same else percent(widened(ratio, extra, notes)),
        student_t_mean(runs.cycle[mine], "ms", level=level),
        missing("ms", why) if why else student_t_mean(then_cycle[mine], "ms", level=level),
        (borrowed or missing("tokens", why or "not measured"))
        if tokens is not None and k
        else point(float(runs.tokens[mine].mean()), "tokens", "as measured: see summary", method="mean", n=mine.sum()),
    )


def _unknown(k: int, change: Change, costs: Costs, tokens: Mapping[int, Estimate] | None, tokens_from: str) -> str:
    if tokens is not None and k and number(tokens.get(k)) != number(tokens.get(k)):
        return f"{tokens_from} has no tokens per step at K={k}"
    if change.free_draft and k and costs.draft_at(k).value is None:
        return f"t_draft is not known: {costs.draft_at(k).reason}"
    if change.verify_scale != 1 and k and costs.t_marginal_ms.value is None:
        return f"t_marginal is not known: {costs.t_marginal_ms.reason}"
    return "the change takes away more than the whole cycle"


def log_half_width(estimate: Estimate) -> float:
    """Half the interval on the logarithm; 0 without an interval."""
    if not estimate.low or not estimate.high or estimate.low <= 0:
        return 0.0
    return math.log(estimate.high / estimate.low) / 2


def widened(estimate: Estimate, extra: float, notes: list[str]) -> Estimate:
    """A positive estimate whose log half-width is joined by independent ones, `extra` the sum of their squares."""
    if not notes:
        return estimate
    method = f"{estimate.method}; with {', '.join(notes)}"
    if estimate.value is None or not estimate.has_interval:
        return replace(estimate, method=method)
    half = math.sqrt(log_half_width(estimate) ** 2 + extra)
    return replace(
        estimate, low=estimate.value * math.exp(-half), high=estimate.value * math.exp(half), method=method
    )  # fmt: skip


def percent(ratio: Estimate) -> Estimate:
    """A ratio as a change in %."""
    bounds = (None if x is None else 100 * (x - 1) for x in (ratio.value, ratio.low, ratio.high))
    value, low, high = bounds
    return replace(ratio, value=value, low=low, high=high, unit="%")


def prediction_errors(predicted: WhatIf, measured: pd.DataFrame, *, level: float = LEVEL) -> dict[int, Estimate]:
    """Depth -> predicted against measured tok/s in %: difference of the mean logs of runs, Welch's t interval.

    measured: rows of run_cell of one cell, of a sweep in which the change was really made.
    """
    rows = arms(measured)
    found = numbers(rows, "decode_tok_s")
    there, k = np.isfinite(found) & (found > 0), numbers(rows, "k")
    out = {}
    for depth in predicted.depths:
        mine = predicted.runs
        then = numbers(mine[mine["k"] == depth.k], "decode_tok_s")
        real = found[there & (k == depth.k)]
        method = "Welch's t on the log over runs"
        if not len(real) or not np.isfinite(then).all():
            out[depth.k] = missing("%", "not measured" if not len(real) else "not predicted", method=method)
            continue
        value = float(np.log(then).mean() - np.log(real).mean())
        parts = [np.log(x).var(ddof=1) / len(x) if len(x) > 1 else math.nan for x in (then, real)]
        error, n = math.sqrt(sum(parts)), len(then) + len(real)
        if not math.isfinite(error) or error == 0:
            out[depth.k] = point(100 * math.expm1(value), "%", "one run of a sweep", method=method, n=n)
            continue
        df = sum(parts) ** 2 / sum(p**2 / (len(x) - 1) for p, x in zip(parts, (then, real), strict=True))
        half = t_quantile(level, df) * error
        middle, low, high = (100 * math.expm1(value + side * half) for side in (0, -1, 1))
        out[depth.k] = Estimate(middle, low, high, level, method, n, "%", None)
    return out
