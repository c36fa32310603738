"""The two-way layout (depth + block) on the logarithm of decode throughput, with pooled residual df.

A block that multiplies throughput is an additive term on the log. The K means are averages over blocks; their
differences are free of block variance (the means themselves are not, which is why a K's own interval comes from
its own runs, see summary.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from backend.analysis.cycle_model import blocks_that_count
from backend.analysis.estimate import FloatArray
from backend.analysis.linear import least_squares, sum_to_zero
from backend.analysis.selection import arms, block_codes, numbers


@dataclass(frozen=True, slots=True)
class Layout:
    """Least-squares K means of log(decode tok/s) with their joint covariance."""

    k: tuple[int, ...]
    log_means: FloatArray  # (K,)
    inverse: FloatArray  # (K, K): covariance / residual variance
    variance: float  # residual variance of one run on the log scale; NaN without df
    df: int
    runs: tuple[int, ...]  # runs per K
    blocks: int  # blocks in the model; 0: no block term
    flags: tuple[str, ...]

    @property
    def n(self) -> int:
        """Runs in the layout."""
        return sum(self.runs)

    @property
    def covariance(self) -> FloatArray:
        """Covariance of the K means (NaN without df)."""
        return self.variance * self.inverse

    @property
    def no_df(self) -> str:
        """Why there is no interval, '' where there is one."""
        if self.df > 0:
            return ""
        return "one run per K" if max(self.runs, default=0) <= 1 else "no residual degrees of freedom"

    def posterior(self, draws: int, seed: int) -> FloatArray:
        """Draws (draws, K) of the log K means: multivariate t, location log_means, scale covariance, `df`."""
        rng = np.random.default_rng(seed)
        root = np.linalg.cholesky(self.inverse + 1e-12 * np.eye(len(self.k)))
        z = rng.standard_normal((draws, len(self.k))) @ root.T
        scale = np.sqrt(self.variance * self.df / rng.chisquare(self.df, draws))
        return np.asarray(self.log_means + z * scale[:, None])


def fit_layout(run_cell: pd.DataFrame, *, order_covariate: bool = False) -> Layout | None:
    """The layout of one cell's valid arms; None where no throughput was measured.

    order_covariate adds a straight drift over `order_index` to the model, for sweeps whose order was not random.
    """
    rows = arms(run_cell)
    tok_s, k = numbers(rows, "decode_tok_s"), numbers(rows, "k")
    good = np.isfinite(tok_s) & (tok_s > 0)
    if not good.any():
        return None
    order = numbers(rows, "order_index")[good]
    use = order if order_covariate and bool(np.isfinite(order).all()) else None
    return layout_of(k[good], np.log(tok_s[good]), block_codes(rows[good]), use)


def layout_of(
    k: FloatArray, log_rate: FloatArray, block: FloatArray | None, order: FloatArray | None = None,
) -> Layout:
    """The layout of log rates (n,) at depths k (n,) in blocks (n,) or None, `order` (n,) as a covariate or None."""
    depths, index = np.unique(k, return_inverse=True)
    counts = tuple(int(c) for c in np.bincount(index))
    block = blocks_that_count(k, block)
    cells = np.eye(len(depths))[index]
    if order is not None and np.ptp(order) > 0:
        cells = np.column_stack([cells, order - order.mean()])
    flags: tuple[str, ...] = ()
    fit = None
    if block is not None:
        fit = least_squares(np.column_stack([cells, sum_to_zero(list(block))]), log_rate)
        if not fit.full_rank:
            flags, block, fit = ("blocks-confounded-with-depth",), None, None
    if fit is None:
        fit = least_squares(cells, log_rate)
        if not fit.full_rank:
            flags = (*flags, "order-confounded-with-depth")
            fit = least_squares(np.eye(len(depths))[index], log_rate)
    K = len(depths)
    variance = fit.variance if fit.df > 0 else math.nan
    return Layout(tuple(int(d) for d in depths), fit.beta[:K], fit.inverse[:K, :K], variance, fit.df, counts,
                  0 if block is None else len(np.unique(block)), flags)
