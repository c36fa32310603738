"""How many drafts are accepted, at which position, per K; with intervals over prompts.

Definitions (design.md; positions count from 0):
survival a_i = drafts accepted at position i / steps that carried a draft (vLLM's convention);
conditional = a_i / a_(i-1), a_(-1) = 1; per_drafted = accepted at i / steps that drafted position i;
acceptance_length = 1 + accepted / drafted steps = 1 + sum a_i; acceptance = accepted / drafted tokens;
tokens_per_step = tokens after the first / ALL decode steps. The last two differ from each other by undrafted
steps and by overshoot = steps + accepted - emitted, 0 <= overshoot <= K x requests.
K=0 has acceptance length 1, no rate (None, not 0%) and no positions. Nothing is ever clamped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.analysis.estimate import LEVEL, Estimate, FloatArray, missing, point
from backend.analysis.prompts import CellCounts, cell_counts
from backend.analysis.resample import DRAWS, cluster_ratio


@dataclass(frozen=True, slots=True)
class PositionRates:
    """The three rates of one draft position; unit "1"."""

    position: int
    survival: Estimate
    conditional: Estimate
    per_drafted: Estimate

    def to_dict(self) -> dict[str, object]:
        """JSON-safe."""
        return {
            "position": self.position,
            "survival": self.survival.to_dict(),
            "conditional": self.conditional.to_dict(),
            "per_drafted": self.per_drafted.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class DepthAcceptance:
    """Acceptance of one cell at one depth; n of the estimates counts prompts."""

    cell_id: str
    k: int
    n_requests: int
    positions: tuple[PositionRates, ...]
    acceptance: Estimate  # accepted / drafted tokens
    acceptance_length: Estimate  # tokens per drafted step
    tokens_per_step: Estimate
    overshoot_tokens: float | None
    overshoot_bound_tokens: int
    flags: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """As in `acceptance --json`."""
        return {
            "cell_id": self.cell_id,
            "k": self.k,
            "n_requests": self.n_requests,
            "positions": [p.to_dict() for p in self.positions],
            "acceptance": self.acceptance.to_dict(),
            "acceptance_length": self.acceptance_length.to_dict(),
            "tokens_per_step": self.tokens_per_step.to_dict(),
            "overshoot_tokens": self.overshoot_tokens,
            "overshoot_bound_tokens": self.overshoot_bound_tokens,
            "flags": list(self.flags),
        }


def acceptance(
    requests: pd.DataFrame,
    steps: pd.DataFrame | None,
    run_cell: pd.DataFrame,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    level: float = LEVEL,
) -> list[DepthAcceptance]:
    """Every cell and depth, from the tables `request` and `step`; a row per (cell, K) in that order."""
    return [
        depth_acceptance(cell, k, draws=draws, seed=seed, level=level)
        for cell in cell_counts(requests, steps, run_cell)
        for k in sorted(cell.depths)
    ]


def depth_acceptance(
    cell: CellCounts,
    k: int,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    level: float = LEVEL,
) -> DepthAcceptance:
    """One depth of one cell by cluster bootstrap over prompts."""
    d = cell.depths[k]

    def ratio(top: FloatArray, bottom: FloatArray, unit: str, *, rate: bool, offset: float = 0.0) -> list[Estimate]:
        top, bottom = (x[:, None] if x.ndim == 1 else x for x in (top, bottom))
        if not np.isfinite(top).all() or not np.isfinite(bottom).all():
            return [missing(unit, "not recorded for every request")] * top.shape[1]
        return cluster_ratio(top, bottom, unit, draws=draws, seed=seed, level=level, rate=rate, offset=offset)

    per_step = ratio(d.emitted, d.steps, "tokens", rate=False)[0]
    overshoot = float((d.steps + d.accepted - d.emitted).sum())
    measured = np.isfinite(overshoot)
    bound = k * d.requests
    flags = list(impossible(d.drafted.sum(), d.accepted.sum(), d.drafted_steps.sum(), k))
    if measured and not 0 <= overshoot <= bound:
        flags.append("overshoot-out-of-bounds")
    if k == 0:
        return DepthAcceptance(
            cell.cell_id,
            0,
            d.requests,
            (),
            no_rate(),
            undrafted_length(d.requests),
            per_step,
            overshoot if measured else None,
            0,
            tuple(flags),
        )
    step_column = np.repeat(d.drafted_steps[:, None], k, axis=1)
    before = np.column_stack([d.drafted_steps, d.accepted_at[:, :-1]])
    rates = zip(
        ratio(d.accepted_at, step_column, "1", rate=True),
        ratio(d.accepted_at, before, "1", rate=True),
        ratio(d.accepted_at, d.drafted_at, "1", rate=True),
        strict=True,
    )
    return DepthAcceptance(
        cell.cell_id,
        k,
        d.requests,
        tuple(PositionRates(i, *three) for i, three in enumerate(rates)),
        ratio(d.accepted, d.drafted, "1", rate=True)[0],
        ratio(d.accepted, d.drafted_steps, "tokens", rate=False, offset=1.0)[0],
        per_step,
        overshoot if measured else None,
        bound,
        tuple(flags),
    )


def no_rate() -> Estimate:
    """The acceptance rate of K=0: there is none."""
    return missing("1", "K=0 drafts nothing", method="by definition")


def undrafted_length(n: int) -> Estimate:
    """The acceptance length of K=0: one token a step, by definition."""
    return point(1.0, "tokens", "exact: K=0 emits one token a step", method="by definition", n=n)


def impossible_masks(
    drafted: FloatArray,
    accepted: FloatArray,
    drafted_steps: FloatArray,
    k: FloatArray,
) -> dict[str, npt.NDArray[np.bool_]]:
    """Code -> which rows hold counts that cannot be. Missing counts are not impossible."""
    return {
        "accepted-above-drafted": accepted > drafted,
        "drafted-above-depth": drafted > k * drafted_steps,
        "negative-count": (drafted < 0) | (accepted < 0) | (drafted_steps < 0),
    }


def impossible(drafted: float, accepted: float, drafted_steps: float, k: int) -> tuple[str, ...]:
    """Codes for totals that cannot be: nothing is clamped, it is named."""
    masks = impossible_masks(*(np.array([x], dtype=np.float64) for x in (drafted, accepted, drafted_steps, k)))
    return tuple(code for code, mask in masks.items() if mask[0])


def from_counts(
    k: int,
    drafted_steps: float,
    accepted_at: Sequence[float],
    *,
    drafted_tokens: float | None = None,
    drafted_at: Sequence[float] | None = None,
    emitted: float | None = None,
    steps: float | None = None,
    requests: int = 0,
    cell_id: str = "",
) -> DepthAcceptance:
    """Point values from totals that another tool or /metrics reports: no interval, because prompts are not told.

    accepted_at: accepted drafts per position; drafted_tokens defaults to K x drafted steps.
    """
    accepted = float(sum(accepted_at))
    drafted = float(k * drafted_steps if drafted_tokens is None else drafted_tokens)
    why = "totals only: prompts are not told apart"

    def rate(top: float, bottom: float, unit: str = "1", offset: float = 0.0) -> Estimate:
        if bottom == 0:
            return missing(unit, "the denominator is zero", method="ratio of sums")
        return point(offset + top / bottom, unit, why, method="ratio of sums", n=requests or None)

    if k == 0:
        per_step = rate(emitted, steps, "tokens") if emitted is not None and steps else missing("tokens", "not told")
        return DepthAcceptance(cell_id, 0, requests, (), no_rate(), undrafted_length(requests), per_step, None, 0, ())
    before = [drafted_steps, *accepted_at[:-1]]
    offered = list(drafted_at) if drafted_at is not None else [drafted_steps] * len(accepted_at)
    positions = tuple(
        PositionRates(
            i,
            rate(a, drafted_steps),
            rate(a, before[i]),
            rate(a, offered[i])
            if drafted_at is not None or drafted == k * drafted_steps
            else missing("1", "drafts per position are not told", method="ratio of sums"),
        )
        for i, a in enumerate(accepted_at)
    )
    told = emitted is not None and steps is not None
    overshoot = steps + accepted - emitted if emitted is not None and steps is not None else None
    return DepthAcceptance(
        cell_id,
        k,
        requests,
        positions,
        rate(accepted, drafted),
        rate(accepted, drafted_steps, "tokens", 1.0),
        rate(emitted or 0.0, steps or 0.0, "tokens") if told else missing("tokens", "not told"),
        overshoot,
        k * requests,
        impossible(drafted, accepted, drafted_steps, k),
    )


def from_histogram(k: int, histogram: Sequence[int], *, requests: int = 0) -> DepthAcceptance:
    """From an acceptance histogram: histogram[j] = verify steps that accepted exactly j drafts. Shape (K+1,)."""
    counts = np.asarray(histogram, dtype=np.float64)
    steps = float(counts.sum())
    accepted_at = [float(counts[i + 1 :].sum()) for i in range(len(counts) - 1)]
    accepted = float(sum(accepted_at))
    return from_counts(k, steps, accepted_at, emitted=steps + accepted, steps=steps, requests=requests)
