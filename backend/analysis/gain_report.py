"""Gains and decay of every cell of a sweep, with sentences; from requests where there are any, else as reported."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from backend.analysis.estimate import LEVEL
from backend.analysis.gains import Decay, DepthFigures, Gain, decay, figures_of, gains, reported_figures
from backend.analysis.prompts import cell_counts
from backend.analysis.resample import DRAWS
from backend.analysis.selection import by_cell

COMPOSITION = (
    "a deeper K also changes where its steps start, so a change of shallow positions is not by itself poisoning"
)


@dataclass(frozen=True, slots=True)
class GainReport:
    """One cell: the gain of every K over K-1, the decay over positions at the deepest K that tells, and words."""

    cell_id: str
    gains: tuple[Gain, ...]
    decay_k: int | None
    decay: Decay | None
    words: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """JSON-safe."""
        return {
            "cell_id": self.cell_id,
            "gains": [g.to_dict() for g in self.gains],
            "decay_k": self.decay_k,
            "decay": self.decay.to_dict() if self.decay else None,
            "words": list(self.words),
        }


def gain_reports(
    run_cell: pd.DataFrame,
    *,
    requests: pd.DataFrame | None = None,
    steps: pd.DataFrame | None = None,
    positions: pd.DataFrame | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    level: float = LEVEL,
) -> list[GainReport]:
    """All cells of a sweep. positions: view acceptance_by_position, for cells without requests."""
    measured = (
        {}
        if requests is None or requests.empty
        else {cell.cell_id: figures_of(cell, draws=draws, seed=seed) for cell in cell_counts(requests, steps, run_cell)}
    )
    return [
        _report(cell_id, measured.get(cell_id) or reported_figures(cell, positions), level)
        for cell_id, cell in by_cell(run_cell)
    ]


def _report(cell_id: str, figures: dict[int, DepthFigures], level: float) -> GainReport:
    found = tuple(gains(figures, level=level))
    telling = [k for k, f in figures.items() if len(f.survival) >= 2 and not f.implied]
    deepest = max(telling, default=None)
    words = tuple(sentence for g in found for sentence in _words(g))
    return GainReport(
        cell_id, found, deepest, None if deepest is None else decay(figures[deepest].survival, level=level), words
    )


def _words(gain: Gain) -> list[str]:
    out = []
    step, own = gain.tokens_per_step, gain.own_rate
    if step.value is not None and own.value is not None and gain.k > 1:
        text = (
            f"K={gain.k - 1} -> {gain.k} brings {step.text(3)} a step; position {gain.k - 1}'s own rate is "
            f"{own.value:.3f}"
        )
        if gain.shallow:
            total = sum(change.value or 0.0 for change in gain.shallow.values())
            text += f", the shallower positions changed by {total:+.3f} together"
        open_to_blame = any(c.low is None or c.high is None or c.low > 0 or c.high < 0 for c in gain.shallow.values())
        out.append(f"{text}{f' ({COMPOSITION})' if open_to_blame else ''}.")
    if "gain-above-shallower-position" in gain.flags and step.value is not None:
        out.append(
            f"K={gain.k - 1} -> {gain.k} brings {step.value:+.3f} tokens a step, more than a shallower "
            "position's survival: odd, check the figures of both depths."
        )
    return out
