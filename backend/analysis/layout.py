"""The two-way layout (depth + block) on the logarithm of decode throughput, with pooled residual df.

A block that multiplies throughput is an additive term on the log. The K means are averages over blocks; their
differences are free of block variance (the means themselves are not, which is why a K's own interval comes from
its own runs, see summary.py).

The residual variance is pooled over depths. Scatter of constant ms is unequal on the log, and pooling it then makes
simultaneous bounds cover 92-94% (10 blocks, 3 ms); so where Bartlett's test rejects equal scatter every depth keeps
its own variance, with the degrees of freedom of its own runs, and the layout is flagged "unequal-scatter".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.analysis.cycle_window import blocks_that_count
from backend.analysis.estimate import FloatArray
from backend.analysis.linear import LeastSquares, least_squares, sum_to_zero
from backend.analysis.quantiles import bartlett_p
from backend.analysis.selection import arms, block_codes, numbers


@dataclass(frozen=True, slots=True)
class Layout:
    """Least-squares K means of log(decode tok/s) with their joint covariance."""

    k: tuple[int, ...]
    log_means: FloatArray  # (K,)
    covariance: FloatArray  # (K, K) of the K means; NaN without df
    variance: float  # pooled residual variance of one run on the log scale; NaN without df
    df: int  # of `covariance`
    runs: tuple[int, ...]  # runs per K
    blocks: int  # blocks in the model; 0: no block term
    flags: tuple[str, ...]

    @property
    def n(self) -> int:
        """Runs in the layout."""
        return sum(self.runs)

    @property
    def no_interval(self) -> str:
        """Why there is no interval, '' where there is one."""
        if self.df <= 0:
            return "one run per K" if max(self.runs, default=0) <= 1 else "no residual degrees of freedom"
        return "" if self.variance > 0 else "the runs of a depth do not differ at all"

    def posterior(self, draws: int, seed: int) -> FloatArray:
        """Draws (draws, K) of the log K means: multivariate t about log_means, `covariance`, `df`; needs scatter."""
        rng = np.random.default_rng(seed)
        root = np.linalg.cholesky(self.covariance + 1e-12 * np.eye(len(self.k)) * np.trace(self.covariance))
        z = rng.standard_normal((draws, len(self.k))) @ root.T
        scale = np.sqrt(self.df / rng.chisquare(self.df, draws))
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
    k: FloatArray,
    log_rate: FloatArray,
    block: FloatArray | None,
    order: FloatArray | None = None,
) -> Layout:
    """The layout of log rates (n,) at depths k (n,) in blocks (n,) or None, `order` (n,) as a covariate or None."""
    depths, index = np.unique(k, return_inverse=True)
    counts = tuple(int(c) for c in np.bincount(index))
    block = blocks_that_count(k, block)
    cells = np.eye(len(depths))[index]
    if order is not None and np.ptp(order) > 0:
        cells = np.column_stack([cells, order - order.mean()])
    flags: tuple[str, ...] = ()
    X = cells if block is None else np.column_stack([cells, sum_to_zero(list(block))])
    fit = least_squares(X, log_rate)
    if not fit.full_rank and block is not None:
        flags, block, X = ("blocks-confounded-with-depth",), None, cells
        fit = least_squares(X, log_rate)
    if not fit.full_rank:
        flags, X = (*flags, "order-confounded-with-depth"), np.eye(len(depths))[index]
        fit = least_squares(X, log_rate)
    K = len(depths)
    variance = fit.variance if fit.df > 0 else math.nan
    covariance, df = variance * fit.inverse[:K, :K], fit.df
    own = _unequal_variances(log_rate - X @ fit.beta, X, fit, index, K)
    if own is not None:
        covariance, df, flags = np.diag(own / np.bincount(index)), min(counts) - 1, (*flags, "unequal-scatter")
    return Layout(
        tuple(int(d) for d in depths),
        fit.beta[:K],
        covariance,
        variance,
        df,
        counts,
        0 if block is None else len(np.unique(block)),
        flags,
    )


def _unequal_variances(
    residual: FloatArray,
    X: FloatArray,
    fit: LeastSquares,
    index: npt.NDArray[np.intp],
    K: int,
) -> FloatArray | None:
    """Variance of a run per depth (K,) where Bartlett's test rejects that they are equal (p < .05); else None.

    Unbiased, for blocks mix the depths' errors: with M = I - X (X'X)^-1 X', the sum of squared residuals of depth k
    has expectation sum_j A_kj variance_j, A_kj = sum of M_il^2 over runs i of k and l of j; solved for the
    variances, floored at 1% of the pooled one. Three runs a depth at least.
    """
    if K < 2 or fit.df <= 0 or fit.rss == 0 or int(np.bincount(index).min()) < 3:
        return None
    groups = [residual[index == j] for j in range(K)]
    if min(float(group.var()) for group in groups) <= 0:
        return None
    if bartlett_p(groups) >= 0.05:
        return None
    member = np.eye(K)[index]
    left = np.eye(len(X)) - X @ fit.inverse @ X.T
    expected = member.T @ left**2 @ member
    own = np.linalg.lstsq(expected, np.bincount(index, weights=residual**2), rcond=None)[0]
    return np.asarray(np.maximum(own, 0.01 * fit.variance), dtype=np.float64)
