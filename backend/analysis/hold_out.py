"""Is a depth predicted by the others? Each inner depth is left out in turn and its throughput predicted from the rest.

tok/s(K) = tokens_per_step(K) / cycle(K). The cycle comes from a curve in K through all other depths above 0, with a
level for each block: the line of the cycle model, or a parabola where AICc prefers it (a straight line misses a curved
cycle, two neighbours alone pass their scatter on). Tokens per step come from survival by position: 1 + sum of a_i, each
a_i (i < K) between its values at the nearest measured depths, the deepest known from the deeper one alone; times what
tokens per step are of that sum there (undrafted steps, overshoot). Without survival, tokens per step themselves lie
between their neighbours'.
The error's interval is over blocks (prediction against measurement of the same block). Units: ms, tok/s, %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from backend.analysis.cycle_window import complete_blocks
from backend.analysis.estimate import LEVEL, Estimate, FloatArray, missing, point, student_t_log_mean
from backend.analysis.linear import aicc, least_squares
from backend.analysis.selection import arms, block_codes, cycle_ms, numbers
from backend.analysis.whatif import percent

Survival = Mapping[int, Mapping[int, float]]  # K -> position -> survival
METHOD = "a curve through the other depths (line or parabola by AICc), a level a block"


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One depth predicted from the others. The errors are predicted against measured, in %."""

    k: int
    predicted_tok_s: Estimate
    measured_tok_s: Estimate
    error_percent: Estimate
    cycle_error_percent: float
    tokens_error_percent: float

    def to_dict(self) -> dict[str, object]:
        """JSON-safe."""
        return {
            "k": self.k,
            "predicted_tok_s": self.predicted_tok_s.to_dict(),
            "measured_tok_s": self.measured_tok_s.to_dict(),
            "error_percent": self.error_percent.to_dict(),
            "cycle_error_percent": self.cycle_error_percent,
            "tokens_error_percent": self.tokens_error_percent,
        }


def hold_out(run_cell: pd.DataFrame, survival: Survival | None = None, *, level: float = LEVEL) -> list[HeldOut]:
    """Every depth of one cell that has a measured depth above 0 on both sides, by growing K; else an empty list."""
    rows = arms(run_cell)
    cycle, tokens = cycle_ms(rows), numbers(rows, "tokens_per_step")
    there = np.isfinite(cycle) & np.isfinite(tokens) & (numbers(rows, "k") > 0)
    rows, cycle, tokens = rows[there].reset_index(drop=True), cycle[there], tokens[there]
    k, block = numbers(rows, "k"), block_codes(rows)
    depths = sorted({int(d) for d in k})
    mean_tokens = {d: float(tokens[k == d].mean()) for d in depths}
    return [
        _one(depth, below, above, k, block, cycle, mean_tokens, survival or {}, level)
        for below, depth, above in zip(depths, depths[1:], depths[2:], strict=False)
    ]


def faster_than_predicted(held: Sequence[HeldOut], k: int) -> HeldOut | None:
    """Depth `k` where it was measured faster than predicted and the error's interval lies below 0; else None.

    The fastest of several depths is the one that luck favoured, if luck favoured one.
    """
    for one in held:
        if one.k == k and one.error_percent.high is not None and one.error_percent.high < 0:
            return one
    return None


def _one(
    depth: int,
    below: int,
    above: int,
    k: FloatArray,
    block: FloatArray | None,
    cycle: FloatArray,
    tokens: dict[int, float],
    survival: Survival,
    level: float,
) -> HeldOut:
    share = (depth - below) / (above - below)
    expected = tokens_between(depth, below, above, tokens, survival)
    if expected is None:  # straight on the log between the neighbours
        expected = math.exp((1 - share) * math.log(tokens[below]) + share * math.log(tokens[above]))
    levels = cycle_from_others(depth, k, block, cycle)
    predicted_ms, cycle_of_depth = float(np.mean(list(levels.values()))), float(np.mean(cycle[k == depth]))
    rate, measured_runs = 1000 * expected / predicted_ms, 1000 * tokens[depth] / cycle[k == depth]
    measured = student_t_log_mean(measured_runs, "tok/s", level=level)
    whole = complete_blocks(k, block) if block is not None else np.array([])
    if len(whole) < 2:
        why = "one run per K" if len(measured_runs) == 1 else "fewer than two complete blocks"
        predicted = point(rate, "tok/s", why, method=METHOD, n=int((k != depth).sum()))
        error = (
            missing("%", "not measured")
            if measured.value is None
            else point(100 * (rate / measured.value - 1), "%", why, method=METHOD, n=len(measured_runs))
        )
    else:
        rates = [1000 * expected / levels[b] for b in whole]
        predicted = student_t_log_mean(rates, "tok/s", level=level, what="block")
        own = [1000 * tokens[depth] / float(cycle[(k == depth) & (block == b)].mean()) for b in whole]
        ratios = [rate / measured_rate for rate, measured_rate in zip(rates, own, strict=True)]
        error = percent(student_t_log_mean(ratios, "1", level=level, what="block"))
    return HeldOut(
        depth,
        predicted,
        measured,
        error,
        100 * (predicted_ms / cycle_of_depth - 1),
        100 * (expected / tokens[depth] - 1),
    )


def cycle_from_others(depth: int, k: FloatArray, block: FloatArray | None, cycle: FloatArray) -> dict[float, float]:
    """Cycle of `depth` in every block (0.0: no blocks), ms, from the runs of all other depths; same order of arrays."""
    others = k != depth
    codes = block if block is not None else np.zeros(len(k))
    levels = np.unique(codes[others])
    level_columns = (codes[others, None] == levels).astype(np.float64)
    shapes = ([k[others]], [k[others], k[others] ** 2])
    fits = [least_squares(np.column_stack([level_columns, *shape]), cycle[others]) for shape in shapes]
    scores = [aicc(fit) if fit.full_rank else None for fit in fits]
    curved = scores[0] is not None and scores[1] is not None and scores[1] < scores[0]
    beta = fits[curved].beta
    shape = sum(float(beta[len(levels) + power - 1]) * depth**power for power in range(1, 3 if curved else 2))
    return {float(level): float(beta[at]) + shape for at, level in enumerate(levels)}


def tokens_between(
    depth: int,
    below: int,
    above: int,
    tokens: Mapping[int, float],
    survival: Survival,
) -> float | None:
    """Tokens per step at `depth` from the survival curves of its neighbours; None where those are not known."""
    low, high = survival.get(below, {}), survival.get(above, {})
    if not all(i in low for i in range(below)) or not all(i in high for i in range(above)):
        return None
    share = (depth - below) / (above - below)
    rates = [(1 - share) * low[i] + share * high[i] if i in low else high[i] for i in range(depth)]
    of_sum = [tokens[d] / (1 + sum(curve.values())) for d, curve in ((below, low), (above, high))]
    return (1 + sum(rates)) * ((1 - share) * of_sum[0] + share * of_sum[1])


def survival_of(positions: pd.DataFrame, cell_id: str) -> dict[int, dict[int, float]]:
    """K -> position -> survival of one cell, from view acceptance_by_position."""
    if positions.empty:
        return {}
    mine = positions[positions["cell_id"] == cell_id]
    out: dict[int, dict[int, float]] = {}
    for k, position, rate in zip(mine["k"], mine["position"], numbers(mine, "survival"), strict=True):
        if math.isfinite(rate):
            out.setdefault(int(k), {})[int(position)] = float(rate)
    return out
