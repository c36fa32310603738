"""Ordinary least squares with what the tests need: coefficients, covariance, residual df, nested F."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.analysis.estimate import FloatArray
from backend.analysis.quantiles import f_test_p


@dataclass(frozen=True, slots=True)
class LeastSquares:
    """A fit of y (n,) on X (n, p). `inverse` is (X'X)^-1 (pseudo-inverse when the rank is below p)."""

    beta: FloatArray  # (p,)
    inverse: FloatArray  # (p, p)
    rss: float
    df: int  # n - rank
    n: int
    rank: int
    full_rank: bool

    @property
    def variance(self) -> float:
        """Residual variance RSS / df; NaN without degrees of freedom."""
        return self.rss / self.df if self.df > 0 else math.nan

    def contrast(self, c: FloatArray) -> tuple[float, float]:
        """Value c'beta and standard error sqrt(s2 c'(X'X)^-1 c) (NaN without df)."""
        return float(c @ self.beta), math.sqrt(self.variance * float(c @ self.inverse @ c))


def least_squares(X: FloatArray, y: FloatArray) -> LeastSquares:
    """Ordinary least squares by singular values; a residual below rounding error counts as zero."""
    n, p = X.shape
    U, size, Vt = np.linalg.svd(X, full_matrices=False)
    kept = size > size[0] * max(n, p) * np.finfo(np.float64).eps
    rank = int(kept.sum())
    root = Vt[kept].T / size[kept]  # (p, rank): root root' = (X'X)^+
    beta = root @ (U[:, kept].T @ y)
    residual = y - X @ beta
    rss = float(residual @ residual)
    if rss < 1e-20 * float(y @ y):
        rss = 0.0
    return LeastSquares(np.asarray(beta), np.asarray(root @ root.T), rss, n - rank, n, rank, rank == p)


def sum_to_zero(codes: Sequence[object]) -> FloatArray:
    """Columns (n, levels - 1) of sum-to-zero contrasts: the intercept stays the mean over levels."""
    levels, index = np.unique(np.asarray(codes), return_inverse=True)
    columns = np.vstack([np.eye(len(levels) - 1), -np.ones(len(levels) - 1)])
    return np.asarray(columns[index], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class FTest:
    """F statistic of a nested comparison with its degrees of freedom; all None with a `reason` where undefined."""

    statistic: float | None
    df1: int | None
    df2: int | None
    p: float | None
    reason: str | None

    def to_dict(self) -> dict[str, float | int | str | None]:
        """JSON-safe."""
        return {"statistic": self.statistic, "df1": self.df1, "df2": self.df2, "p": self.p, "reason": self.reason}


def nested_f(small: LeastSquares, large: LeastSquares) -> FTest:
    """F = ((RSS_small - RSS_large) / (df_small - df_large)) / (RSS_large / df_large), `small` nested in `large`."""
    df1 = small.df - large.df
    if df1 <= 0:
        return FTest(None, None, None, None, "the larger model adds nothing that these depths can tell apart")
    if large.df <= 0:
        return FTest(None, None, None, None, "no residual degrees of freedom are left for the test")
    if large.rss == 0:
        return FTest(None, None, None, None, "no residual scatter: the larger model is exact")
    statistic = max(small.rss - large.rss, 0.0) / df1 / large.variance
    return FTest(statistic, df1, large.df, f_test_p(statistic, df1, large.df), None)


def aicc(fit: LeastSquares, extra: int = 0) -> float | None:
    """AICc = n ln(RSS/n) + 2p + 2p(p+1)/(n-p-1), p = coefficients + variance + `extra`; None unless n > p + 1."""
    p = fit.rank + 1 + extra
    if fit.n <= p + 1 or fit.rss <= 0:
        return None
    return fit.n * math.log(fit.rss / fit.n) + 2 * p + 2 * p * (p + 1) / (fit.n - p - 1)
