"""A what-if in sentences: the best depth now and then, where it flips, and the hop that a remote drafter can bear."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from backend.analysis.estimate import Estimate
from backend.analysis.whatif import WhatIf
from backend.analysis.whatif_runs import runs_of
from backend.analysis.whatif_search import Flip, break_even_hop, flips

REACH = 2.0  # flips are looked for up to so many deepest cycles (hop), or so many t_marginal (verify position)


@dataclass(frozen=True, slots=True)
class Turns:
    """Where the answer turns. Ranges in ms: what was searched for flips; None where there was nothing to search."""

    break_even_hop_ms: Estimate
    hop_flips: tuple[Flip, ...]
    hop_range_ms: tuple[float, float] | None
    position_flips: tuple[Flip, ...]
    position_range_ms: tuple[float, float] | None

    def to_dict(self) -> dict[str, object]:
        """JSON-safe."""
        return {
            "break_even_hop_ms": self.break_even_hop_ms.to_dict(),
            "hop_flips": [flip.to_dict() for flip in self.hop_flips],
            "hop_range_ms": list(self.hop_range_ms) if self.hop_range_ms else None,
            "verify_position_flips": [flip.to_dict() for flip in self.position_flips],
            "verify_position_range_ms": list(self.position_range_ms) if self.position_range_ms else None,
        }


def turns(run_cell: pd.DataFrame, found: WhatIf, tokens: Mapping[int, Estimate] | None = None) -> Turns:
    """Flips of the fastest depth along the hop (drafter elsewhere) and along the cost of a verify position."""
    _, runs = runs_of(run_cell, found.costs, tokens)
    break_even = break_even_hop(runs, found.change, found.costs)
    hop_range = position_range = None
    hop_flips: list[Flip] = []
    position_flips: list[Flip] = []
    if len(runs.k):
        if found.change.free_draft:
            hop_range = (0.0, REACH * float(np.nanmax(runs.cycle)))
            hop_flips = flips(runs, found.change, "hop_ms", *hop_range)
        marginal = found.costs.t_marginal_ms.value
        if marginal is not None and marginal > 0:
            position_range = (-marginal, REACH * marginal)
            position_flips = flips(runs, found.change, "verify_position_ms", *position_range)
    return Turns(break_even, tuple(hop_flips), hop_range, tuple(position_flips), position_range)


def answer(found: WhatIf, turned: Turns) -> list[str]:
    """The answer, a sentence a line; every figure with its interval or why it has none."""
    now, then = found.best_now, found.best_then
    if now is None or then is None:
        return [f"No answer: {found.reason or 'no depth has a figure under this change'}."]
    by_k = {depth.k: depth for depth in found.depths}
    sure = found.p_best(then)
    chance = "" if sure is None else f" (P(best) {_probability(sure)} over the scatter of runs)"
    moved = f"The fastest depth stays K={now}" if now == then else f"The fastest depth goes from K={now} to K={then}"
    rates = f"{by_k[now].now_tok_s.text()} now at K={now}, {by_k[then].then_tok_s.text()} then at K={then}"
    lines = [f"{moved}{chance}: {rates}."]
    if found.change.free_draft:
        lines.append(_freed_words(found, then))
        lines.append(f"Break-even hop: {turned.break_even_hop_ms.text()}.")
    if turned.hop_range_ms:
        lines.append(_flip_words(turned.hop_flips, "the hop", turned.hop_range_ms))
    if turned.position_range_ms:
        lines.append(_flip_words(turned.position_flips, "a verify position's extra cost", turned.position_range_ms))
    return lines


# What moves away is not gone: the page and the command say what the figure leaves out.
NO_DRAFTING_TIME = "The hop is all that drafting then costs: add the other host's drafting time to it."


def _freed_words(found: WhatIf, k: int) -> str:
    """What is freed: at the fastest depth where it is known by depth."""
    freed, source = found.costs.draft_at(k), found.costs.source
    if k in found.costs.by_depth:
        return f"Freed at K={k}: t_draft = {freed.text()}, timed directly. {NO_DRAFTING_TIME}"
    unsure = freed.low is not None and freed.high is not None and freed.low <= 0 <= freed.high
    note = "; its interval holds 0, so a gain is not shown" if unsure else ""
    inferred = "" if source == "given" else ", from the cycle fit"
    return f"Freed: t_draft = {freed.text()}{inferred}{note}. {NO_DRAFTING_TIME}"


def _flip_words(found: tuple[Flip, ...], what: str, searched: tuple[float, float]) -> str:
    low, high = searched
    if not found:
        return f"The fastest depth does not flip for {what} between {low:.1f} and {high:.1f} ms (point figures)."
    steps = "; ".join(f"K={flip.from_k} to K={flip.to_k} at {flip.at:.2f} ms" for flip in found)
    return f"The fastest depth flips as {what} grows from {low:.1f} to {high:.1f} ms: {steps} (point figures)."


def _probability(p: float) -> str:
    return "<0.01" if p < 0.01 else ">0.99" if p > 0.99 else f"{p:.2f}"
