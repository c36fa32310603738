"""What one more draft position brings: the gain K-1 -> K, taken apart, and the decay of survival over positions.

acceptance_length(K) - acceptance_length(K-1) = a_(K-1)(K) + sum over i < K-1 of [a_i(K) - a_i(K-1)]: the new
position's own rate plus what the shallower ones changed. A change of a shallow position does not by itself mean
that depth spoils it: with greedy decoding a deeper K also changes WHERE its steps start (design.md, "Depth effect").
Units: tokens per step for gains, "1" for rates. Intervals: prompts resampled, the same draw at both depths.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from backend.analysis.estimate import LEVEL, Estimate, FloatArray, missing, point
from backend.analysis.prompts import CellCounts
from backend.analysis.resample import DRAWS, METHOD, from_draws, ratio_draws, weights
from backend.analysis.selection import arms, numbers


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure with its bootstrap draws (draws,), or without (a reported figure)."""

    value: float
    draws: FloatArray | None
    prompts: int
    why: str = "reported figures carry no interval"

    def minus(self, other: Drawn) -> Drawn:
        """The difference, draw by draw."""
        both = None if self.draws is None or other.draws is None else self.draws - other.draws
        return Drawn(self.value - other.value, both, min(self.prompts, other.prompts), self.why)

    def plus(self, other: Drawn) -> Drawn:
        """The sum, draw by draw."""
        both = None if self.draws is None or other.draws is None else self.draws + other.draws
        return Drawn(self.value + other.value, both, min(self.prompts, other.prompts), self.why)

    def estimate(self, unit: str, level: float, *, rate: bool = False) -> Estimate:
        """With the expanded percentile interval over prompts."""
        if not math.isfinite(self.value):
            return missing(unit, "not measured", method=METHOD)
        if self.draws is None:
            return point(self.value, unit, self.why, method="difference of reported figures", n=self.prompts or None)
        return from_draws(self.value, self.draws, unit, clusters=self.prompts, level=level, rate=rate)


@dataclass(frozen=True, slots=True)
class DepthFigures:
    """tokens_per_step and survival a_i (i < K) of one depth; a position that is not known is absent."""

    tokens_per_step: Drawn | None
    survival: Mapping[int, Drawn]
    implied: tuple[int, ...] = ()  # positions that follow from tokens_per_step and were not measured


@dataclass(frozen=True, slots=True)
class Gain:
    """From depth k-1 to k. `own_rate`: survival of the new position; `shallow[i]`: a_i(k) - a_i(k-1), i < k-1."""

    k: int
    tokens_per_step: Estimate  # gain
    acceptance_length: Estimate  # gain = own_rate + sum of shallow; missing where a position is not known
    own_rate: Estimate
    shallow: Mapping[int, Estimate]
    below_own_rate: Estimate  # own_rate - gain in tokens_per_step: promised by the position's own rate, not there
    flags: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """JSON-safe."""
        return {
            "k": self.k,
            "tokens_per_step": self.tokens_per_step.to_dict(),
            "acceptance_length": self.acceptance_length.to_dict(),
            "own_rate": self.own_rate.to_dict(),
            "shallow": [{"position": i, "change": e.to_dict()} for i, e in self.shallow.items()],
            "below_own_rate": self.below_own_rate.to_dict(),
            "flags": list(self.flags),
        }


@dataclass(frozen=True, slots=True)
class Decay:
    """Survival falls by `ratio` per position (log-linear least squares); `beyond`: last rate x ratio^j."""

    ratio: Estimate
    beyond: Mapping[int, Estimate]

    def to_dict(self) -> dict[str, object]:
        """JSON-safe."""
        return {
            "ratio": self.ratio.to_dict(),
            "beyond": [{"position": i, "survival": e.to_dict()} for i, e in self.beyond.items()],
        }


def figures_of(cell: CellCounts, *, draws: int = DRAWS, seed: int = 0) -> dict[int, DepthFigures]:
    """Depth -> figures of a measured cell; one resampling of prompts serves every depth."""
    prompts = len(cell.prompts)
    w = weights(prompts, draws, seed) if prompts > 1 else None

    def drawn(top: FloatArray, bottom: FloatArray) -> Drawn:
        total = float(bottom.sum())
        value = float(top.sum()) / total if total > 0 else math.nan
        return Drawn(value, None if w is None else ratio_draws(w, top, bottom), prompts, "one prompt")

    return {
        k: DepthFigures(drawn(d.emitted, d.steps), {i: drawn(d.accepted_at[:, i], d.drafted_steps) for i in range(k)})
        for k, d in cell.depths.items()
    }


def reported_figures(run_cell: pd.DataFrame, positions: pd.DataFrame | None) -> dict[int, DepthFigures]:
    """Depth -> figures of one published or imported cell. A single unknown position is implied by tokens_per_step."""
    rows = arms(run_cell)
    out: dict[int, DepthFigures] = {}
    for k in sorted({int(k) for k in rows["k"]}):
        values = numbers(rows[rows["k"] == k], "tokens_per_step")
        per_step = float(np.nanmean(values)) if np.isfinite(values).any() else None
        known: dict[int, float] = {}
        if positions is not None and len(positions):
            mine = positions[(positions["k"] == k) & (positions["cell_id"] == run_cell["cell_id"].iloc[0])]
            known = {
                int(i): float(a)
                for i, a in zip(mine["position"], numbers(mine, "survival"), strict=True)
                if math.isfinite(a)
            }
        full = known if per_step is None else implied_survival(k, per_step, known)
        out[k] = DepthFigures(
            None if per_step is None else Drawn(per_step, None, 0),
            {i: Drawn(a, None, 0) for i, a in sorted(full.items())},
            tuple(set(full) - set(known)),
        )
    return out


def implied_survival(k: int, tokens_per_step: float, known: Mapping[int, float]) -> dict[int, float]:
    """The one unknown a_i from 1 + sum a_i = tokens per step, if every step drafts and nothing is cut off."""
    unknown = [i for i in range(k) if i not in known]
    if len(unknown) != 1:
        return dict(known)
    return {**known, unknown[0]: tokens_per_step - 1 - sum(known.values())}


def gains(figures: Mapping[int, DepthFigures], *, level: float = LEVEL) -> list[Gain]:
    """The gain of every K whose K-1 was measured too."""
    out = []
    for k in sorted(figures):
        if k - 1 not in figures:
            continue
        here, before = figures[k], figures[k - 1]
        own = here.survival.get(k - 1)
        changes = {
            i: here.survival[i].minus(before.survival[i])
            for i in range(k - 1)
            if i in here.survival and i in before.survival
        }
        step_gain = (
            None
            if here.tokens_per_step is None or before.tokens_per_step is None
            else here.tokens_per_step.minus(before.tokens_per_step)
        )
        length = None
        if own is not None and len(changes) == k - 1:
            length = own
            for change in changes.values():
                length = length.plus(change)
        gap = own.minus(step_gain) if own is not None and step_gain is not None else None
        gain = _or_missing(step_gain, "tokens", level)
        out.append(
            Gain(
                k,
                gain,
                _or_missing(length, "tokens", level),
                _or_missing(own, "1", level, rate=True),
                {i: c.estimate("1", level) for i, c in changes.items()},
                _or_missing(gap, "tokens", level),
                _odd(k, gain, figures),
            )
        )
    return out


def _or_missing(drawn: Drawn | None, unit: str, level: float, *, rate: bool = False) -> Estimate:
    return missing(unit, "not measured", method=METHOD) if drawn is None else drawn.estimate(unit, level, rate=rate)


def _odd(k: int, gain: Estimate, figures: Mapping[int, DepthFigures]) -> tuple[str, ...]:
    """A new position cannot bring more than a shallower one's survival, at equal composition: flag what does."""
    shallower = [a.value for f in figures.values() for i, a in f.survival.items() if i < k - 1]
    least = gain.low if gain.low is not None else gain.value
    if least is not None and shallower and least > min(shallower):
        return ("gain-above-shallower-position",)
    return ()


def decay(survival: Mapping[int, Drawn], beyond: int = 2, *, level: float = LEVEL) -> Decay:
    """ratio = exp(slope of ln a_i on i) over the known positions, then a_last x ratio^j for `beyond` more positions."""
    known = sorted(i for i, a in survival.items() if a.value > 0)
    if len(known) < 2:
        return Decay(missing("1", "a decay needs two positions with accepted drafts"), {})
    x = np.asarray(known, dtype=np.float64)
    slope = (x - x.mean()) / ((x - x.mean()) ** 2).sum()  # least-squares slope = slope . y
    last = survival[known[-1]]
    ratio_value = math.exp(float(slope @ np.log([survival[i].value for i in known])))
    ratio_draws_: FloatArray | None = None
    if all(survival[i].draws is not None for i in known):
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(np.column_stack([np.asarray(survival[i].draws) for i in known]))
            ratio_draws_ = np.where(np.isfinite(logs).all(axis=1), np.exp(logs @ slope), np.nan)
    ratio = Drawn(ratio_value, ratio_draws_, last.prompts, last.why)
    ahead = {}
    for j in range(1, beyond + 1):
        later = None if ratio_draws_ is None or last.draws is None else last.draws * ratio_draws_**j
        ahead[known[-1] + j] = Drawn(last.value * ratio_value**j, later, last.prompts, last.why).estimate("1", level)
    return Decay(ratio.estimate("1", level), ahead)
