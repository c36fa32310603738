"""Bounds that hold for all depths at once: multiple comparisons with the best, Holm's pairwise tests.

Edwards and Hsu (1983), "Multiple comparisons with the best treatment", JASA 78: the unconstrained bounds, which
can lie away from 0 (Hsu's constrained ones of 1984 say at most that a depth is not the best, never by how much).
Critical values: two-sided Dunnett quantiles with the smallest correlation that occurs, exact in a complete layout
(.5) and on the safe side otherwise.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from backend.analysis.estimate import FloatArray
from backend.analysis.quantiles import chi_square_below, t_below

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_U, _UW = (_NODES + 1) / 2, _WEIGHTS / 2  # on (0, 1): both integrals run over probabilities


@lru_cache(maxsize=4096)
def dunnett_quantile(level: float, others: int, df: int, correlation: float = 0.5) -> float:
    """d with P(max_j |T_j| <= d) = level for `others` equicorrelated t statistics of `df` degrees of freedom.

    P = E_s E_z [(Phi(u + v) - Phi(u - v))^others], u = sqrt(rho/(1-rho)) z, v = d s / sqrt(1-rho),
    s = sqrt(chi2_df / df), by Gauss-Legendre on the probability scale of z and s.
    """
    rho = min(max(correlation, 0.0), 0.999)
    u = (math.sqrt(rho / (1 - rho)) * special.ndtri(_U))[None, :]
    s = (np.sqrt(chi_square_below(_U, df) / df) / math.sqrt(1 - rho))[:, None]

    def excess(d: float) -> float:
        inner = (special.ndtr(u + d * s) - special.ndtr(u - d * s)) ** others
        return float(_UW @ inner @ _UW) - level

    low, high = 0.0, float(t_below(1 - (1 - level) / (2 * others), df)) * 1.05 + 0.1  # Bonferroni is above
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)
    return (low + high) / 2


def loss_bounds(means: FloatArray, covariance: FloatArray, df: int, level: float) -> tuple[FloatArray, FloatArray]:
    """Simultaneous bounds (K,), (K,) of max_j mean_j - mean_k >= 0 for all k; larger means are better.

    means (K,), covariance (K, K) estimated on `df` degrees of freedom. With the true best depth b as control, all
    |error of mean_b - mean_k| <= d_b SE_bk hold together with probability `level`; b is one of the depths that no
    other beats by more than that, so the union over those depths covers.
    """
    K = len(means)
    variance = np.diag(covariance)
    spread = np.sqrt(np.maximum(variance[:, None] + variance[None, :] - 2 * covariance, 0.0))  # SE of differences
    critical = np.array(
        [dunnett_quantile(level, K - 1, df, _least_correlation(covariance, spread, i)) for i in range(K)]
    )
    lead = means[:, None] - means[None, :]  # (b, k): b minus k
    reach = critical[:, None] * spread
    maybe_best = (lead + reach >= 0).all(axis=1)
    others = maybe_best[:, None] & ~np.eye(K, dtype=bool)
    high = np.where(others, lead + reach, -np.inf).max(axis=0)
    low = np.where(others, lead - reach, np.inf).min(axis=0)
    low[maybe_best] = 0.0
    return np.maximum(low, 0.0), np.maximum(high, 0.0)


def _least_correlation(covariance: FloatArray, spread: FloatArray, i: int) -> float:
    """Smallest correlation between the differences from depth i; rounded down, so that quantiles are shared."""
    rest = [j for j in range(len(covariance)) if j != i]
    if len(rest) < 2:
        return 0.5
    cov = covariance
    joint = cov[np.ix_(rest, rest)] - cov[rest, i][:, None] - cov[i, rest][None, :] + cov[i, i]
    scale = spread[i, rest]
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = joint / np.outer(scale, scale)
    least = float(np.nanmin(correlation[~np.eye(len(rest), dtype=bool)]))
    if not math.isfinite(least):
        return 0.5
    return 0.5 if abs(least - 0.5) < 1e-6 else math.floor(max(least, 0.0) * 100) / 100


def holm(p: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
    """Holm's adjusted p-values (m,) and the per-comparison levels (m,) of intervals that agree with his decisions.

    Ordered by p, comparison r of m is tested at alpha/(m - r + 1), and none after the first that is not rejected is:
    the interval of a comparison has the level its test had, so it excludes 0 exactly when Holm rejects.
    """
    m = len(p)
    order = np.argsort(p, kind="stable")
    steps = m - np.arange(m)
    adjusted_sorted = np.minimum(1.0, np.maximum.accumulate(p[order] * steps))
    alpha = round(1 - level, 12)  # 1 - 0.95 is a little above 0.05, and a p on the edge must fall on one side only
    kept = np.flatnonzero(adjusted_sorted >= alpha)
    stop = int(kept[0]) if len(kept) else m - 1
    levels_sorted = 1 - alpha / (m - np.minimum(np.arange(m), stop))
    adjusted, levels = np.empty(m), np.empty(m)
    adjusted[order], levels[order] = adjusted_sorted, levels_sorted
    return adjusted, levels
