"""Cluster bootstrap: whole clusters are drawn with replacement, seeded and vectorised.

The cluster is a prompt with all its repeats over runs: greedy repeats are copies, and clustering by request
would cover 71% of a nominal 95%. Tokens and steps are never resampled. Percentile intervals are expanded
(Hesterberg 2015, "What teachers should know about the bootstrap", section 5): their tail is
Phi(-sqrt(G/(G-1)) t(1 - alpha/2, G-1)) for G clusters, because plain percentiles are too narrow for few clusters.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from backend.analysis.estimate import LEVEL, Estimate, FloatArray, missing, point, t_quantile

DRAWS = 10_000
METHOD = "cluster bootstrap over prompts, expanded percentile"


@lru_cache(maxsize=8)
def weights(clusters: int, draws: int = DRAWS, seed: int = 0) -> FloatArray:
    """How often each cluster is drawn: (draws, clusters), rows sum to `clusters`. The same seed, the same draws."""
    rng = np.random.default_rng([seed, clusters])
    counts = rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=draws).astype(np.float64)
    counts.setflags(write=False)
    return counts


def ratio_draws(w: FloatArray, top: FloatArray, bottom: FloatArray) -> FloatArray:
    """Ratio of resampled sums: (draws, q) from top and bottom (clusters, q); NaN where a draw's bottom is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((w @ top) / (w @ bottom))


@lru_cache(maxsize=1024)
def tail(clusters: int, level: float) -> float:
    """Probability cut off on each side by the expanded percentile interval of `clusters` clusters."""
    if clusters < 2:
        return 0.0
    t = t_quantile(level, clusters - 1)
    return float(special.ndtr(-math.sqrt(clusters / (clusters - 1)) * t))


def percentile_interval(draws: FloatArray, clusters: int, level: float) -> tuple[FloatArray, FloatArray]:
    """Bounds (q,) from draws (draws, q); NaN draws (zero denominators) are left out."""
    cut = tail(clusters, level)
    quantile = np.nanquantile if np.isnan(draws).any() else np.quantile
    low, high = quantile(draws, [cut, 1 - cut], axis=0)
    return np.asarray(low), np.asarray(high)


def from_draws(
    value: float,
    draws: FloatArray,
    unit: str,
    *,
    clusters: int,
    level: float = LEVEL,
    rate: bool = False,
    method: str = METHOD,
) -> Estimate:
    """An Estimate from draws (draws,). With `rate`, a value of exactly 0 or 1 gets the bound 1 - (1-level)^(1/m).

    That bound is the one-sided one for zero events in m = `clusters` prompts; the bootstrap would say [0, 0].
    """
    if clusters == 0 or not math.isfinite(value):
        return missing(unit, "no prompt has the denominator", method=method, n=clusters)
    if clusters == 1:
        return point(value, unit, "one prompt", method=method, n=1)
    if rate and value in (0.0, 1.0):
        bound = 1 - (1 - level) ** (1 / clusters)
        low, high = (0.0, bound) if value == 0.0 else (1 - bound, 1.0)
        return Estimate(value, low, high, level, "one-sided bound 1 - alpha^(1/prompts)", clusters, unit, None)
    draws = draws[np.isfinite(draws)]
    low_bound, high_bound = percentile_interval(draws[:, None], clusters, level)
    return Estimate(value, float(low_bound[0]), float(high_bound[0]), level, method, clusters, unit, None)


def cluster_ratio(
    top: FloatArray,
    bottom: FloatArray,
    unit: str,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    level: float = LEVEL,
    rate: bool = False,
    offset: float = 0.0,
) -> list[Estimate]:
    """offset + sum(top)/sum(bottom) per column, with cluster intervals. top, bottom: (clusters, q).

    n counts the clusters whose denominator is above 0.
    """
    n = (bottom > 0).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = top.sum(axis=0) / bottom.sum(axis=0)
    drawn = ratio_draws(weights(len(top), draws, seed), top, bottom) if len(top) > 1 else np.empty((0, top.shape[1]))
    out = []
    for column, value in enumerate(values):
        estimate = from_draws(float(value), drawn[:, column], unit, clusters=int(n[column]), level=level, rate=rate)
        out.append(estimate if not offset else shifted(estimate, offset))
    return out


def shifted(estimate: Estimate, offset: float) -> Estimate:
    """The estimate of offset + x."""

    def move(number: float | None) -> float | None:
        return None if number is None else number + offset

    return Estimate(
        move(estimate.value),
        move(estimate.low),
        move(estimate.high),
        estimate.level,
        estimate.method,
        estimate.n,
        estimate.unit,
        estimate.reason,
    )
