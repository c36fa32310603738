"""Runs under a change of costs: what is changed, what it takes away, and every run's cycle and throughput then.

Source: tok/s(K) = tokens_per_step(K) / cycle(K) (design.md, "Terms and formulas"). Every RUN's cycle is changed, so
that its scatter and its block carry through to the statistics:

cycle'(K) = cycle(K) + step_ms + K draft_position_ms + K verify_position_ms + K (verify_scale - 1) t_marginal
            - t_draft + hop_ms                          drafter on another host (free_draft), K >= 1
            or max(cycle - t_draft, t_draft + hop_ms)   the same, drafting while the target verifies (overlap)

t_draft comes from the caller (direct times, or a given figure) or from the cycle fit, block by block where every block
has a line. The fit's t_draft is what drafting costs once a step: what grows with K is in t_marginal. Overlap assumes
that the next draft can start before the verify step ends, so it is the most that a remote drafter can give.
Units: ms, tok/s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from backend.analysis.cycle_model import fit_cycle
from backend.analysis.cycle_window import complete_blocks
from backend.analysis.estimate import LEVEL, Estimate, FloatArray, missing
from backend.analysis.selection import arms, block_codes, cycle_ms, numbers
from backend.analysis.timing import depth_times


@dataclass(frozen=True, slots=True)
class Change:
    """What is changed; the default changes nothing. Costs in ms; `hop_ms` is paid once a step at K >= 1."""

    free_draft: bool = False
    overlap: bool = False
    hop_ms: float = 0.0
    verify_position_ms: float = 0.0
    verify_scale: float = 1.0
    draft_position_ms: float = 0.0
    step_ms: float = 0.0

    @property
    def words(self) -> str:
        """In a sentence, "nothing changed" where nothing is."""
        parts = []
        if self.free_draft:
            overlapped = ", drafting while the target verifies" if self.overlap else ""
            parts.append(f"the drafter on another host (t_draft freed, hop {self.hop_ms:g} ms{overlapped})")
        elif self.hop_ms:
            parts.append(f"a hop of {self.hop_ms:g} ms a step")
        if self.verify_position_ms:
            parts.append(f"every verify position {self.verify_position_ms:+g} ms")
        if self.verify_scale != 1:
            parts.append(f"every verify position x {self.verify_scale:g}")
        if self.draft_position_ms:
            parts.append(f"every draft position {self.draft_position_ms:+g} ms")
        if self.step_ms:
            parts.append(f"every step {self.step_ms:+g} ms")
        return "; ".join(parts) or "nothing changed"


@dataclass(frozen=True, slots=True)
class Costs:
    """What a change takes away or scales: t_draft and t_marginal of the cell, with where t_draft comes from."""

    t_draft_ms: Estimate
    t_marginal_ms: Estimate
    source: str
    by_depth: Mapping[int, Estimate]  # direct t_draft(K), where there is one
    by_block: Mapping[float, tuple[float, float]]  # block -> (t_draft, t_marginal) of its own line

    def draft_at(self, k: int) -> Estimate:
        """t_draft at depth k."""
        return self.by_depth.get(k, self.t_draft_ms)

    def paired(self, k: int) -> bool:
        """Whether t_draft at k is each block's own, so that its error is in the runs already."""
        return bool(self.by_block) and self.source != "given" and k not in self.by_depth


def fitted_costs(
    run_cell: pd.DataFrame,
    *,
    t_draft_ms: Estimate | None = None,
    by_depth: Mapping[int, Estimate] | None = None,
    level: float = LEVEL,
) -> Costs:
    """The costs of one cell: a given t_draft_ms first, then direct times by depth, else the fit over all depths."""
    fit = fit_cycle(run_cell, level=level)
    full = fit.full
    if full is None:
        nothing = missing("ms", fit.reason or "no cycle fit")
        return Costs(t_draft_ms or nothing, nothing, "given" if t_draft_ms else "none", by_depth or {}, {})
    blocks: dict[float, tuple[float, float]] = {}
    if full.block_betas is not None:
        rows = arms(run_cell)
        there = np.isfinite(cycle_ms(rows))
        whole = complete_blocks(numbers(rows, "k")[there], block_codes(rows[there]))
        betas = zip(whole, full.block_betas, strict=True)
        blocks = {float(b): (float(beta[1]), float(beta[2])) for b, beta in betas}
    if t_draft_ms is not None:
        return Costs(t_draft_ms, full.t_marginal_ms, "given", {}, blocks)
    source = "direct times by depth, else the cycle fit" if by_depth else "the cycle fit"
    return Costs(full.t_draft_ms, full.t_marginal_ms, source, by_depth or {}, blocks)


def direct_t_draft(timed: pd.DataFrame, stages: pd.DataFrame) -> dict[int, Estimate]:
    """Depth -> t_draft(K) of one cell as timed inside the engine; empty where nothing was timed.

    timed, stages: `queries_timing.timed_requests` and `stage_totals`.
    """
    if timed.empty or stages.empty:
        return {}
    return {row.k: row.t_draft_ms for row in depth_times(timed, stages) if row.t_draft_ms.value is not None}


def changed_cycle_ms(
    k: FloatArray, cycle: FloatArray, draft: FloatArray, marginal: FloatArray, change: Change
) -> FloatArray:
    """The cycle of every run under the change, ms; arrays (runs,). NaN where nothing is left of it."""
    drafts = k > 0
    each = change.verify_position_ms + change.draft_position_ms + (change.verify_scale - 1) * marginal
    with np.errstate(invalid="ignore"):  # a cost that is not known is NaN, and only matters where it is used
        out = cycle + change.step_ms + np.where(drafts, k * np.where(each == 0, 0.0, each), 0.0)
        if change.free_draft:
            rest = out - draft
            apart = np.maximum(rest, draft + change.hop_ms) if change.overlap else rest + change.hop_ms
            out = np.where(drafts, apart, out)
        else:
            out = np.where(drafts, out + change.hop_ms, out)
        return np.asarray(np.where(out > 0, out, np.nan))


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of one cell as arrays (runs,): what a change works on, fast enough for searches."""

    k: FloatArray
    block: FloatArray | None
    cycle: FloatArray
    draft: FloatArray
    marginal: FloatArray
    tokens: FloatArray  # tokens per step of then
    own_tokens: FloatArray  # as measured

    def now(self) -> FloatArray:
        """tok/s as measured."""
        return np.asarray(1000 * self.own_tokens / self.cycle)

    def then(self, change: Change) -> FloatArray:
        """tok/s under the change; NaN where not known."""
        return np.asarray(1000 * self.tokens / changed_cycle_ms(self.k, self.cycle, self.draft, self.marginal, change))

    def of_block(self, block: float) -> Runs:
        """The runs of one block."""
        mine = self.block == block
        arrays = {name: getattr(self, name)[mine] for name in ("k", "cycle", "draft", "marginal", "tokens")}
        return Runs(block=None, own_tokens=self.own_tokens[mine], **arrays)


def runs_of(
    run_cell: pd.DataFrame, costs: Costs, tokens: Mapping[int, Estimate] | None = None
) -> tuple[pd.DataFrame, Runs]:
    """The valid arms with a cycle time, and their arrays; draft and marginal by block where blocks have lines."""
    rows = arms(run_cell)
    cycle, per_step = cycle_ms(rows), numbers(rows, "tokens_per_step")
    there = np.isfinite(cycle) & np.isfinite(per_step)
    rows, cycle, per_step = rows[there].reset_index(drop=True), cycle[there], per_step[there]
    k, block = numbers(rows, "k"), block_codes(rows)
    draft, marginal = np.full(len(k), np.nan), np.full(len(k), np.nan)
    for i, depth in enumerate(k):
        own = costs.by_block.get(float(block[i])) if block is not None else None
        fixed = costs.source == "given" or int(depth) in costs.by_depth
        draft[i] = own[0] if own and not fixed else number(costs.draft_at(int(depth)))
        marginal[i] = own[1] if own else number(costs.t_marginal_ms)
    other = per_step if tokens is None else np.array([number(tokens.get(int(d))) if d else 1.0 for d in k])
    return rows, Runs(k, block, cycle, draft, marginal, other, per_step)


def number(estimate: Estimate | None) -> float:
    """The value, NaN where there is none."""
    return math.nan if estimate is None or estimate.value is None else estimate.value
