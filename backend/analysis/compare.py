"""Which depth is best, by how much, and how sure: everything from one two-way layout on log decode tok/s.

Losses and differences are in % of decode throughput. Tokens are never resampled; prompts are paired inside a run.
With one run per K there is no scatter to judge by, so every interval and probability is None with that reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from backend.analysis.comparison import BreakEven, Comparison, DepthLoss, Pair, Recommendation, Regret, Verdict
from backend.analysis.estimate import LEVEL, Estimate, FloatArray, finite, missing, point
from backend.analysis.layout import Layout, fit_layout
from backend.analysis.quantiles import t_below, t_test_p
from backend.analysis.resample import DRAWS
from backend.analysis.selection import by_cell, numbers
from backend.analysis.simultaneous import dunnett_quantile, holm, loss_bounds

MARGIN_PERCENT = 1.0  # a loss up to this counts as none
LAYOUT = "two-way layout on log decode tok/s"


def compare(
    run_cell: pd.DataFrame,
    reference_depths: Mapping[str, int] | None = None,
    *,
    level: float = LEVEL,
    margin_percent: float = MARGIN_PERCENT,
    draws: int = DRAWS,
    seed: int = 0,
    order_covariate: bool = False,
) -> list[Comparison]:
    """Every cell of a sweep, lowest concurrency first. reference_depths: name -> K (production, recipe, native)."""
    return [
        compare_cell(
            frame,
            reference_depths,
            level=level,
            margin_percent=margin_percent,
            draws=draws,
            seed=seed,
            order_covariate=order_covariate,
        )
        for _, frame in by_cell(run_cell)
    ]


def compare_cell(
    run_cell: pd.DataFrame,
    reference_depths: Mapping[str, int] | None = None,
    *,
    level: float = LEVEL,
    margin_percent: float = MARGIN_PERCENT,
    draws: int = DRAWS,
    seed: int = 0,
    order_covariate: bool = False,
) -> Comparison:
    """One cell. `run_cell`: its rows of the view. order_covariate: also a straight drift over the run order."""
    cell_id = str(run_cell["cell_id"].iloc[0]) if len(run_cell) else ""
    at_once = finite(numbers(run_cell, "concurrency"))
    concurrency = int(at_once[0]) if len(at_once) else None
    layout = fit_layout(run_cell, order_covariate=order_covariate)
    if layout is None:
        return Comparison(
            cell_id, concurrency, 0, 0, 0, (), (), None, None, None, (), (), "no decode throughput was measured"
        )
    posterior = None if layout.no_interval or len(layout.k) == 1 else layout.posterior(draws, seed)
    depths = depth_losses(layout, posterior, level, margin_percent)
    pairs = pairwise(layout, level)
    best = layout.k[int(np.argmax(layout.log_means))]
    result = Comparison(
        cell_id,
        concurrency,
        layout.n,
        layout.blocks,
        max(layout.df, 0),
        depths,
        pairs,
        best,
        _recommend(layout, depths, best, level, margin_percent),
        _break_even(layout, posterior, pairs, level),
        (),
        layout.flags,
        None,
    )
    regrets = tuple(Regret(name, k, result.loss_of(k)) for name, k in (reference_depths or {}).items())
    return replace(result, regrets=regrets)


def depth_losses(
    layout: Layout,
    posterior: FloatArray | None,
    level: float,
    margin_percent: float,
) -> tuple[DepthLoss, ...]:
    """Losses 100 (1 - exp(mean_k - max)) in % with simultaneous bounds, verdicts at the margin, and P(best)."""
    means = layout.log_means
    loss = -np.expm1(means - means.max()) * 100 + 0.0  # + 0.0: no minus zero
    share = None if posterior is None else np.bincount(posterior.argmax(axis=1), minlength=len(means)) / len(posterior)
    method = f"{LAYOUT}, Edwards and Hsu's bounds against the best"
    if not layout.no_interval and len(means) > 1:
        bounds = (-np.expm1(-b) * 100 for b in loss_bounds(means, layout.covariance, layout.df, level))
        intervals = [
            Estimate(float(v), float(lo), float(hi), level, method, layout.n, "%", None)
            for v, lo, hi in zip(loss, *bounds, strict=True)
        ]
    else:
        why = layout.no_interval or "a single depth"
        intervals = [point(float(v), "%", why, method=LAYOUT, n=layout.n) for v in loss]
    return tuple(
        DepthLoss(
            k,
            layout.runs[i],
            float(np.exp(means[i])),
            intervals[i],
            _verdict(intervals[i], margin_percent),
            None if share is None else float(share[i]),
        )
        for i, k in enumerate(layout.k)
    )


def _verdict(loss: Estimate, margin_percent: float) -> Verdict:
    if loss.high is not None and loss.high <= margin_percent:
        return "within"
    if loss.low is not None and loss.low > margin_percent:
        return "worse"
    return "unresolved"


def pairwise(layout: Layout, level: float) -> tuple[Pair, ...]:
    """All pairs (k > against): change 100 (exp(difference) - 1) in %, two-sided t tests with Holm's adjustment."""
    K = len(layout.k)
    pairs = [(i, j) for j in range(K) for i in range(j + 1, K)]
    difference = np.array([layout.log_means[i] - layout.log_means[j] for i, j in pairs])
    method = f"{LAYOUT}, Holm with matching intervals"
    if layout.no_interval or not pairs:
        changes = (
            point(float(d), "%", layout.no_interval, method=LAYOUT, n=layout.n) for d in np.expm1(difference) * 100
        )
        return tuple(Pair(layout.k[i], layout.k[j], c, None) for (i, j), c in zip(pairs, changes, strict=True))
    v = layout.covariance
    error = np.array([math.sqrt(v[i, i] + v[j, j] - 2 * v[i, j]) for i, j in pairs])
    p, levels = holm(t_test_p(difference / error, layout.df), level)
    half = t_below(0.5 + levels / 2, layout.df) * error
    low, high = np.expm1(difference - half) * 100, np.expm1(difference + half) * 100
    return tuple(
        Pair(
            layout.k[i],
            layout.k[j],
            Estimate(
                float(np.expm1(difference[m]) * 100),
                float(low[m]),
                float(high[m]),
                float(levels[m]),
                method,
                layout.n,
                "%",
                None,
            ),
            float(p[m]),
        )
        for m, (i, j) in enumerate(pairs)
    )


def _recommend(
    layout: Layout,
    depths: tuple[DepthLoss, ...],
    best: int,
    level: float,
    margin_percent: float,
) -> Recommendation:
    if len(layout.k) == 1:
        return Recommendation(best, False, None, "a single depth was measured: there is nothing to compare it with")
    within = [d.k for d in depths if d.verdict == "within"]
    if within:
        return Recommendation(min(within), True, None, None)
    if layout.no_interval:
        return Recommendation(best, False, None, f"{layout.no_interval}: the scatter between runs is not known")
    needed = blocks_needed(layout, level, margin_percent)
    if needed is not None:
        needed = max(needed, min(layout.runs) + 1)  # the runs at hand were not enough
    others = ", ".join(f"K={d.k}" for d in depths if d.verdict == "unresolved" and d.k != best)
    return Recommendation(best, False, needed, f"not told apart from it within {margin_percent:g}%: {others}")


def blocks_needed(layout: Layout, level: float, margin_percent: float, limit: int = 100_000) -> int | None:
    """Blocks (one run per K in each) until the best depth's upper bound of loss is within the margin.

    Takes the present means and scatter as the truth: d(B) s sqrt(2/B) <= -ln(1 - margin) + lead over the runner-up.
    None where the scatter is not known or `limit` blocks would not do.
    """
    if layout.no_interval:
        return None
    K = len(layout.k)
    ordered = np.sort(layout.log_means)
    room = -math.log1p(-margin_percent / 100) + float(ordered[-1] - ordered[-2])

    def enough(blocks: int) -> bool:
        df = (K - 1) * (blocks - 1) if layout.blocks else K * (blocks - 1)
        return dunnett_quantile(level, K - 1, min(df, 2000)) * math.sqrt(2 * layout.variance / blocks) <= room

    high = 2
    while not enough(high):
        high *= 2
        if high > limit:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return max(high, 2)


def _break_even(
    layout: Layout,
    posterior: FloatArray | None,
    pairs: tuple[Pair, ...],
    level: float,
) -> BreakEven:
    if 0 not in layout.k or len(layout.k) == 1:
        why = "K=0 was not measured" if 0 not in layout.k else "no depth above 0 was measured"
        return BreakEven(None, None, missing("K", why), (), ())
    zero = layout.k.index(0)
    depths = np.asarray(layout.k)

    def deepest(log_means: FloatArray) -> FloatArray:
        return np.asarray(np.where(log_means > log_means[..., [zero]], depths, 0).max(axis=-1))

    value = int(deepest(layout.log_means))
    method = f"{LAYOUT}, quantiles of the t posterior"
    if posterior is None:
        estimate = point(value, "K", layout.no_interval, method=LAYOUT, n=layout.n)
    else:
        low, high = np.quantile(deepest(posterior), [0.5 - level / 2, 0.5 + level / 2], method="closest_observation")
        estimate = Estimate(value, float(low), float(high), level, method, layout.n, "K", None)
    losing = [k for k, m in zip(layout.k, layout.log_means, strict=True) if k > value and m <= layout.log_means[zero]]
    shown = [p for p in pairs if p.against == 0 and p.p_holm is not None and p.p_holm < 1 - level]
    return BreakEven(
        value or None,
        min(losing, default=None),
        estimate,
        tuple(p.k for p in shown if (p.change_percent.value or 0) > 0),
        tuple(p.k for p in shown if (p.change_percent.value or 0) < 0),
    )
