"""Does a figure rise or fall with depth? (Power against K.) The slope, and Page's test over blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from backend.analysis.cycle_window import blocks_that_count, complete_blocks
from backend.analysis.estimate import LEVEL, Estimate, missing, t_interval
from backend.analysis.linear import least_squares, sum_to_zero
from backend.analysis.selection import arms, block_codes, numbers


@dataclass(frozen=True, slots=True)
class Trend:
    """A figure over depth: least-squares slope per K (with blocks), whether the means are monotone, Page's p."""

    quantity: str
    slope_per_k: Estimate
    monotone: str | None  # "rises", "falls" or None: of the means per K, in every step
    page_p: float | None  # one-sided, in the direction of the slope
    page_reason: str | None
    words: str

    def to_dict(self) -> dict[str, object]:
        """JSON-safe."""
        return {
            "quantity": self.quantity,
            "slope_per_k": self.slope_per_k.to_dict(),
            "monotone": self.monotone,
            "page_p": self.page_p,
            "page_reason": self.page_reason,
            "words": self.words,
        }


def implied_power_w(run_cell: pd.DataFrame) -> pd.DataFrame:
    """`run_cell` with power_w filled where only tok/s and tok/J were reported: W = (tok/s) / (tok/J)."""
    power, rate, per_joule = (numbers(run_cell, c) for c in ("power_w", "decode_tok_s", "tokens_per_joule"))
    with np.errstate(divide="ignore", invalid="ignore"):
        return run_cell.assign(power_w=np.where(np.isfinite(power), power, rate / per_joule))


def trend(run_cell: pd.DataFrame, quantity: str = "power_w", unit: str = "W", *, level: float = LEVEL) -> Trend:
    """The trend of a column of `run_cell` over K in one cell. `unit` is the column's; the slope is per K."""
    rows = arms(run_cell)
    y, k = numbers(rows, quantity), numbers(rows, "k")
    there = np.isfinite(y)
    y, k = y[there], k[there]
    depths = np.unique(k)
    if len(depths) < 2:
        slope = missing(f"{unit} per K", f"measured at {len(depths)} depth(s)", n=len(y))
        return Trend(
            quantity,
            slope,
            None,
            None,
            "fewer than three depths",
            f"No trend of {quantity}: measured at {len(depths)} depth(s).",
        )
    block = blocks_that_count(k, block_codes(rows[there]))
    X = np.column_stack([np.ones(len(k)), k])
    if block is not None:
        X = np.column_stack([X, sum_to_zero(list(block))])
    fit = least_squares(X, y)
    value, error = fit.contrast(np.array([0.0, 1.0] + [0.0] * (X.shape[1] - 2)))
    slope = t_interval(value, error, fit.df, f"{unit} per K", method="least squares, Student t", n=len(y), level=level)
    steps = np.diff([y[k == d].mean() for d in depths])
    monotone = "rises" if (steps > 0).all() else "falls" if (steps < 0).all() else None
    whole = complete_blocks(k, block)
    page_p, why = None, None
    if len(depths) < 3 or len(whole) < 2:
        why = "Page's test needs three depths and two complete blocks"
    else:
        table = np.array([[y[(block == b) & (k == d)].mean() for d in depths] for b in whole])
        from scipy import stats  # here, since it is slow to import: see quantiles.py

        page_p = float(stats.page_trend_test(table if value >= 0 else -table, method="asymptotic").pvalue)
    return Trend(quantity, slope, monotone, page_p, why, _words(quantity, slope, monotone, page_p, len(depths), level))


def _words(
    quantity: str,
    slope: Estimate,
    monotone: str | None,
    page_p: float | None,
    depths: int,
    level: float,
) -> str:
    seen = (
        f"the means {'rise' if monotone == 'rises' else 'fall'} at every step"
        if monotone
        else "the means are not monotone"
    )
    shown = slope.low is not None and slope.high is not None and (slope.low > 0 or slope.high < 0)
    if shown or (page_p is not None and page_p < 1 - level):
        verb = "rises" if (slope.value or 0) > 0 else "falls"
        return f"{quantity} {verb} with K: {slope.text()} over {depths} depths; {seen}."
    if slope.has_interval:
        return f"A trend of {quantity} with K is not shown: {slope.text()} over {depths} depths; {seen}."
    return f"{quantity} over {depths} depths: {slope.text()}; {seen}, which is no test."
