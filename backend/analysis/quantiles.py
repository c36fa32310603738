"""Quantiles and tails of the distributions that estimates need, from scipy.special.

scipy.stats has them too, but takes a second to import: twice all else that a reader waits for on a fresh server's
first page. What only a terminal or a publish asks for (Theil-Sen, Page's test) still comes from there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

Floats = npt.NDArray[np.float64]


def t_below(p: float | Floats, df: float) -> Floats:
    """t with P(T <= t) = p."""
    return np.asarray(special.stdtrit(df, p), dtype=np.float64)


def t_test_p(statistic: float | Floats, df: float) -> Floats:
    """Two-sided: P(|T| > |statistic|)."""
    return np.asarray(2 * special.stdtr(df, -np.abs(statistic)), dtype=np.float64)


def chi_square_below(p: float | Floats, df: float) -> Floats:
    """x with P(X <= x) = p."""
    return np.asarray(2 * special.gammaincinv(df / 2, p), dtype=np.float64)


def f_test_p(statistic: float, df1: float, df2: float) -> float:
    """P(F > statistic)."""
    return float(special.fdtrc(df1, df2, statistic))


def bartlett_p(groups: Sequence[Floats]) -> float:
    """Bartlett's test that two or more groups, of two values or more each, have one variance.

    Snedecor and Cochran (1989), "Statistical Methods", 10.21.
    """
    df = np.array([len(group) - 1 for group in groups], dtype=np.float64)
    variance = np.array([group.var(ddof=1) for group in groups])
    pooled = float(df @ variance / df.sum())
    statistic = df.sum() * np.log(pooled) - df @ np.log(variance)
    correction = 1 + ((1 / df).sum() - 1 / df.sum()) / (3 * (len(groups) - 1))
    return float(special.chdtrc(len(groups) - 1, statistic / correction))
