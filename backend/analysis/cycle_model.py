"""The cycle model: cycle(K) = t_verify_base + 1[K>=1] t_draft + K t_marginal (+ block), one joint least-squares fit.

Source: design.md, "Terms and formulas". Units: ms. Input: rows of `run_cell` of one cell. Only finished, valid
arms count; anchors never. t_verify_base comes from the K=0 runs alone, by Student t. The block term falls away
without blocks or with one run per K. From 3 complete blocks on, t_draft and t_marginal are the means of one
fit per block with Student t over blocks, because blocks multiply the cycle too and the pooled fit then
covers only about 87%; the pooled fit is shown beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from backend.analysis.cycle_checks import CycleTests, diagnose, run_tests
from backend.analysis.cycle_window import Contrast, Window, blocks_that_count, complete_blocks, fit_window
from backend.analysis.estimate import (
    LEVEL,
    Estimate,
    missing,
)
from backend.analysis.quantiles import t_test_p
from backend.analysis.selection import arms, block_codes, by_cell, cycle_ms, numbers
from backend.analysis.stopping import PILOT, run_mean


@dataclass(frozen=True, slots=True)
class AssumedValue:
    """An assumed cost of a verify position tested against the measured t_marginal (two-sided t test)."""

    assumed_ms: float
    measured_ms: Estimate
    difference_ms: Estimate  # measured - assumed
    p: float | None
    words: str

    def to_dict(self) -> dict[str, object]:
        """JSON-safe."""
        return {
            "assumed_ms": self.assumed_ms,
            "measured_ms": self.measured_ms.to_dict(),
            "difference_ms": self.difference_ms.to_dict(),
            "p": self.p,
            "words": self.words,
        }


@dataclass(frozen=True, slots=True)
class CycleFit:
    """All windows of one cell, the tests of the line, and the diagnosis in words that follow the tests."""

    cell_id: str
    t_verify_base_ms: Estimate
    windows: tuple[Window, ...]  # by growing m; the last one is the whole curve
    tests: CycleTests | None
    leave_one_out: tuple[tuple[int, Estimate, Estimate], ...]  # (K left out, t_draft_ms, t_marginal_ms)
    assumed: AssumedValue | None
    diagnosis: tuple[str, ...]
    reason: str | None

    @property
    def full(self) -> Window | None:
        """The window over every measured depth."""
        return self.windows[-1] if self.windows else None

    def to_dict(self) -> dict[str, object]:
        """As in `fit --json`."""
        return {
            "cell_id": self.cell_id,
            "t_verify_base_ms": self.t_verify_base_ms.to_dict(),
            "windows": [w.to_dict() for w in self.windows],
            "tests": self.tests.to_dict() if self.tests else None,
            "leave_one_out": [
                {"k": k, "t_draft_ms": d.to_dict(), "t_marginal_ms": m.to_dict()} for k, d, m in self.leave_one_out
            ],
            "assumed": self.assumed.to_dict() if self.assumed else None,
            "diagnosis": list(self.diagnosis),
            "reason": self.reason,
        }


def assumed_value(window: Window, assumed_ms: float) -> AssumedValue:
    """Is the measured t_marginal the assumed one? Two-sided t test of measured - assumed, level as the window's."""
    part = window.contrast((0.0, 0.0, 1.0))
    difference = Contrast(part.value - assumed_ms, part.standard_error, part.df, part.n, part.method)
    estimate = difference.estimate(window.level, "no residual degrees of freedom")
    if not estimate.has_interval or part.standard_error == 0:
        return AssumedValue(
            assumed_ms,
            window.t_marginal_ms,
            estimate,
            None,
            f"The assumed {assumed_ms:g} ms cannot be tested: no residual degrees of freedom.",
        )
    p = float(t_test_p(difference.value / part.standard_error, part.df))
    verdict = "does not contradict"
    if p < 1 - window.level:
        verdict = "is below" if difference.value < 0 else "is above"
    return AssumedValue(
        assumed_ms,
        window.t_marginal_ms,
        estimate,
        p,
        f"The measured cost of a position, {part.value:.2f} ms, {verdict} the assumed {assumed_ms:g} ms (p = {p:.2g}).",
    )


def fit_cycle(
    run_cell: pd.DataFrame,
    *,
    level: float = LEVEL,
    study: bool = False,
    assumed_ms: float | None = None,
) -> CycleFit:
    """Fit one cell: windows K=1..m for m=2..max, tests on the whole curve, diagnosis. `run_cell`: its rows."""
    rows = arms(run_cell)
    cell_id = str(run_cell["cell_id"].iloc[0]) if len(run_cell) else ""
    y, k = cycle_ms(rows), numbers(rows, "k")
    there = np.isfinite(y)
    block = block_codes(rows[there]) if there.any() else None
    rows, y, k = rows[there], y[there], k[there]
    base = run_mean(rows[k == 0], y[k == 0], "ms", level=level, what="K=0 run")
    pilot = np.unique(numbers(rows[rows[PILOT]], "block")) if PILOT in rows else None
    depths = np.unique(k[k > 0])
    if len(depths) < 2:
        reason = (
            "no cycle time was measured (above concurrency 1 there is none)"
            if not len(y)
            else f"a line needs two depths above 0, this cell has {len(depths)}"
        )
        return CycleFit(cell_id, base, (), None, (), None, (f"No cycle fit: {reason}.",), reason)
    windows = []
    for top in depths[1:]:
        inside = k <= top
        windows.append(
            fit_window(
                k[inside], y[inside], None if block is None else block[inside], level=level, study=study, pilot=pilot
            )
        )
    full = windows[-1]
    left_out = []
    for depth in depths if len(depths) > 2 else ():
        rest = k != depth
        fit = fit_window(k[rest], y[rest], None if block is None else block[rest], level=level, pilot=pilot)
        left_out.append((int(depth), fit.t_draft_ms, fit.t_marginal_ms))
    lines = complete_blocks(k, block) if full.block_betas is not None else None
    confounded = "blocks-confounded-with-depth" in full.flags
    tests = run_tests(k, y, None if confounded else blocks_that_count(k, block), own_lines=lines, level=level)
    words = diagnose(tests, [(w.k, w.t_draft_ms, w.t_marginal_ms) for w in windows], level)
    return CycleFit(
        cell_id,
        base,
        tuple(windows),
        tests,
        tuple(left_out),
        None if assumed_ms is None else assumed_value(full, assumed_ms),
        words,
        None,
    )


def fit_json(
    run_cell: pd.DataFrame,
    *,
    level: float = LEVEL,
    study: bool = False,
    assumed_ms: float | None = None,
) -> dict[str, object]:
    """What `fit SWEEP --json` prints: the first cell's fit (lowest concurrency, then context), and all `cells`."""
    fits = [fit_cycle(frame, level=level, study=study, assumed_ms=assumed_ms) for _, frame in by_cell(run_cell)]
    if not fits:
        return {
            "cell_id": None,
            "t_verify_base_ms": missing("ms", "no runs").to_dict(),
            "windows": [],
            "reason": "no runs",
            "cells": [],
        }
    return {**fits[0].to_dict(), "cells": [fit.to_dict() for fit in fits]}
