"""How exact is a line through K=1..m, and how many runs a K would it take? From the scatter alone.

Source: study.md, "What was recomputed". Units: ms. Repeats shrink scatter, never lack of fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from backend.analysis.estimate import LEVEL, Estimate, t_quantile
from backend.analysis.quantiles import t_test_p

LIMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class LineErrors:
    """Standard errors in ms of a line through depths `k` with residual scatter s, one run a K; df = n - 2."""

    slope_ms: float  # s / sqrt(Sxx)
    intercept_ms: float  # s sqrt(1/n + mean(k)^2 / Sxx)
    intercept_with_k0_ms: float  # the same with the K=0 run's own error: s sqrt(1 + 1/n + mean(k)^2 / Sxx)
    df: int


def line_errors(k: Sequence[int], residual_ms: float) -> LineErrors:
    """From the depths above 0 and the residual standard deviation."""
    depths = np.asarray(k, dtype=np.float64)
    n, mean = len(depths), float(depths.mean())
    sxx = float(((depths - mean) ** 2).sum())
    factor = 1 / n + mean**2 / sxx
    return LineErrors(
        residual_ms / math.sqrt(sxx), residual_ms * math.sqrt(factor), residual_ms * math.sqrt(1 + factor), n - 2
    )


def reported_t_draft(
    t_draft_ms: float,
    k: Sequence[int],
    residual_ms: float,
    *,
    level: float = LEVEL,
) -> dict[str, Estimate]:
    """A published t_draft with the intervals that its line allows: `study` (+/- 2 SE), `t`, `t_with_k0`."""
    errors = line_errors(k, residual_ms)
    t = t_quantile(level, errors.df)

    def around(half: float, method: str, at: float) -> Estimate:
        return Estimate(t_draft_ms, t_draft_ms - half, t_draft_ms + half, at, method, len(k), "ms", None)

    return {
        "study": around(2 * errors.intercept_ms, "+/- 2 SE of the intercept, K=0 taken as exact", 0.9545),
        "t": around(t * errors.intercept_ms, f"Student t, {errors.df} df, K=0 taken as exact", level),
        "t_with_k0": around(
            t * errors.intercept_with_k0_ms, f"Student t, {errors.df} df, with the K=0 run's error", level
        ),
    }


def reported_test(value_ms: float, standard_error_ms: float, df: int, assumed_ms: float) -> float:
    """Two-sided p of a published value +/- SE against an assumed one."""
    return float(t_test_p((value_ms - assumed_ms) / standard_error_ms, df))


def runs_needed(
    half_width_ms: float,
    k: Sequence[int],
    residual_ms: float,
    *,
    interval: bool,
    with_k0: bool = False,
    level: float = LEVEL,
) -> int | None:
    """Smallest number of runs a K for which t_draft is known to +/- half_width_ms; None above LIMIT.

    interval False: half_width is ONE standard error. True: half the `level` interval, Student t with the df that so
    many runs leave (n m - 2; with the K=0 term n (m+1) - 3, m depths above 0).
    """
    errors = line_errors(k, residual_ms)
    one = errors.intercept_with_k0_ms if with_k0 else errors.intercept_ms
    m = len(k)

    def enough(n: int) -> bool:
        df = n * (m + 1) - 3 if with_k0 else n * m - 2
        if interval and df <= 0:
            return False
        return (t_quantile(level, df) if interval else 1.0) * one / math.sqrt(n) <= half_width_ms

    return smallest(enough)


def smallest(enough: Callable[[int], bool]) -> int | None:
    """The smallest n >= 1 that is enough, where more never is less; None above LIMIT."""
    low, high = 0, 1
    while not enough(high):
        low, high = high, 2 * high
        if high > LIMIT:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
