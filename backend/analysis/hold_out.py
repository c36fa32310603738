"""Is a depth predicted by the others? Each inner depth is left out in turn and its throughput predicted from the rest.

tok/s(K) = tokens_per_step(K) / cycle(K). The cycle lies between those of the nearest measured depths above 0, straight
on the logarithm, inside each block (a block's own level drops out; a straight line through all depths instead misses a
curved cycle). Tokens per step come from survival by position: 1 + sum of a_i, each a_i (i < K) between its values at
the nearest measured depths, the deepest known from the deeper one alone; times what tokens per step are of that sum
there (undrafted steps, overshoot). Without survival, tokens per step themselves lie between their neighbours'.
The error's interval is over blocks (prediction against measurement of the same block). Units: ms, tok/s, %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from backend.analysis.cycle_window import complete_blocks
from backend.analysis.estimate import LEVEL, Estimate, FloatArray, missing, point, student_t_log_mean
from backend.analysis.selection import arms, block_codes, cycle_ms, numbers
from backend.analysis.whatif import percent

Survival = Mapping[int, Mapping[int, float]]  # K -> position -> survival
METHOD = "neighbouring depths, straight on the log, by block"


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

    def between(values: dict[int, float]) -> float:
        """Straight on the log between the neighbours."""
        return math.exp((1 - share) * math.log(values[below]) + share * math.log(values[above]))

    logs = {d: float(np.exp(np.log(cycle[k == d]).mean())) for d in (below, depth, above)}
    expected = tokens_between(depth, below, above, tokens, survival)
    if expected is None:
        expected = between(tokens)
    rate, measured_runs = 1000 * expected / between(logs), 1000 * tokens[depth] / cycle[k == depth]
    measured = student_t_log_mean(measured_runs, "tok/s", level=level)
    inside = np.isin(k, (below, depth, above))
    whole = complete_blocks(k[inside], block[inside]) if block is not None else np.array([])
    if len(whole) < 2:
        why = "one run per K" if len(measured_runs) == 1 else "fewer than two complete blocks"
        predicted = point(rate, "tok/s", why, method=METHOD, n=int(inside.sum()))
        error = (
            missing("%", "not measured")
            if measured.value is None
            else point(100 * (rate / measured.value - 1), "%", why, method=METHOD, n=len(measured_runs))
        )
    else:
        each = [{d: float(cycle[(k == d) & (block == b)].mean()) for d in (below, depth, above)} for b in whole]
        rates = [1000 * expected / between(own) for own in each]
        predicted = student_t_log_mean(rates, "tok/s", level=level, what="block")
        ratios = [r / (1000 * tokens[depth] / own[depth]) for r, own in zip(rates, each, strict=True)]
        error = percent(student_t_log_mean(ratios, "1", level=level, what="block"))
    return HeldOut(
        depth,
        predicted,
        measured,
        error,
        100 * (between(logs) / logs[depth] - 1),
        100 * (expected / tokens[depth] - 1),
    )


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
