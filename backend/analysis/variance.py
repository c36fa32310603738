"""Where the scatter of a run's figure comes from: other runs, or the requests inside one.

Model for log(decode_s / steps) of request j in run i of one depth: mean + prompt_j + run_i + e_ij. The residual mean
square is the variance of one request; a run's figure over R requests holds it divided by R, so
var(run) = between + request / R. Cost: a run costs launch and stop whatever R is, so the cheapest R for a given
precision is sqrt(request / between x overhead_s / request_s) (two-stage sampling: Cochran, Sampling Techniques, 1977,
section 10.6). Units: variances of logarithms, seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from backend.analysis.estimate import FloatArray
from backend.analysis.linear import least_squares
from backend.analysis.prompts import measured_requests
from backend.analysis.selection import block_codes, cycle_ms, numbers


@dataclass(frozen=True, slots=True)
class Scatter:
    """Variance of a run's log figure with its degrees of freedom; `reason` where there are no replicates."""

    variance: float | None
    df: int
    reason: str | None

    @property
    def sd(self) -> float | None:
        """Relative standard deviation of one run, a fraction."""
        return None if self.variance is None else math.sqrt(self.variance)


@dataclass(frozen=True, slots=True)
class Components:
    """A run's variance taken apart. requests: R per run; shares None where they are not told apart."""

    between: float | None
    request: float | None
    requests: float | None
    between_share: float | None
    best_requests: float | None  # the cheapest R; inf where runs do not differ beyond their requests
    reason: str | None

    @property
    def buy(self) -> str | None:
        """ "blocks" or "requests": what gives more for the same time. None where it is not known."""
        if self.best_requests is None or self.requests is None:
            return None
        return "requests" if self.best_requests > self.requests else "blocks"

    def to_dict(self) -> dict[str, object]:
        """JSON-safe: an infinite best number of requests is None (see between_share)."""
        best = self.best_requests
        return {
            "between_runs_sd_percent": None if self.between is None else 100 * math.sqrt(self.between),
            "request_sd_percent": None if self.request is None else 100 * math.sqrt(self.request),
            "requests_per_run": self.requests,
            "between_share": self.between_share,
            "best_requests_per_run": None if best is None or math.isinf(best) else best,
            "buy": self.buy,
            "reason": self.reason,
        }


def pure_error(k: FloatArray, values: FloatArray, block: FloatArray | None, *, blocks_cancel: bool) -> Scatter:
    """Variance of replicates about their depth's mean, pooled over depths; values (n,) at depths k (n,).

    blocks_cancel: also about their block's level (differences of depths inside a block); else blocks count as scatter.
    No line in K is assumed, so lack of fit is not in it.
    """
    if len(values) == 0:
        return Scatter(None, 0, "not measured")
    columns = [(k == depth).astype(np.float64) for depth in np.unique(k)]
    if blocks_cancel and block is not None and len(np.unique(block)) > 1:
        columns += [(block == b).astype(np.float64) for b in np.unique(block)[1:]]
    fit = least_squares(np.column_stack(columns), values)
    if fit.df <= 0:
        return Scatter(None, 0, "no replicates: one run per K, so its scatter is not known")
    if fit.rss == 0:
        return Scatter(None, fit.df, "the runs of a depth do not differ at all")
    return Scatter(fit.variance, fit.df, None)


def components(
    run_cell: pd.DataFrame,
    requests: pd.DataFrame,
    scatter: Scatter,
    *,
    overhead_s: float | None,
    request_s: float | None,
) -> Components:
    """The parts of `scatter` for one cell, and the cheapest number of requests a run.

    overhead_s: launch, warm-up and stop of a run; request_s: one MEASURE request. Missing: no advice, but the parts.
    """

    def nothing(reason: str) -> Components:
        return Components(None, None, None, None, None, reason)

    if scatter.variance is None:
        return nothing(scatter.reason or "the scatter between runs is not known")
    if requests.empty:
        return nothing("no single requests are known")
    good = measured_requests(requests, run_cell)
    good = good[good["cell_id"].isin(set(run_cell["cell_id"]))]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(numbers(good, "decode_s") / numbers(good, "steps"))
    good = good.assign(y=logs)[np.isfinite(logs)]
    rss, df, counts = 0.0, 0, []
    for _, depth in good.groupby("k"):
        counts += list(depth.groupby("run_id").size())
        part_rss, part_df = _two_way(depth)
        rss, df = rss + part_rss, df + part_df
    if df <= 0:
        return nothing("every prompt was asked once: prompts and requests cannot be told apart")
    request, per_run = rss / df, float(np.mean(counts))
    between = max(0.0, scatter.variance - request / per_run)
    best = None
    if overhead_s and request_s:
        best = math.sqrt(request / between * overhead_s / request_s) if between > 0 else math.inf
    return Components(between, request, per_run, min(1.0, between / scatter.variance), best, None)


def _two_way(depth: pd.DataFrame) -> tuple[float, int]:
    """Residual sum of squares and df of runs + prompts at one depth, by alternating means (exact where balanced)."""
    left = depth["y"] - depth["y"].mean()
    for _ in range(20):
        left = left - left.groupby(depth["prompt_id"]).transform("mean")
        left = left - left.groupby(depth["run_id"]).transform("mean")
    parameters = depth["run_id"].nunique() + depth["prompt_id"].nunique() - 1
    return float((left**2).sum()), len(depth) - parameters


def of_cycles(rows: pd.DataFrame, *, unit_ms: bool) -> Scatter:
    """Pure error of the cycle times of valid arms, blocks taken out: ms^2, or of the logarithm."""
    cycle = cycle_ms(rows)
    there = np.isfinite(cycle)
    values = cycle[there] if unit_ms else np.log(cycle[there])
    return pure_error(numbers(rows, "k")[there], values, block_codes(rows[there]), blocks_cancel=True)
