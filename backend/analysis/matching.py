"""Steps of two draft depths matched by where they start: the same prompt, the same emitted tokens before the step.

With greedy decoding every depth emits the same tokens, but a deeper draft skips over more of them, so depths start
their steps at different places, and rates over all steps compare different starts. A start is *shared* where both
depths took a step from an equal emitted prefix (`step.prefix_hash`) and both drafted the position. Repeats of a prompt
over runs are copies: a start counts once, with the share of its repeats that accepted.
Source: "Depth effect on acceptance" of the design; study.md for why the raw difference does not tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.analysis.estimate import FloatArray

IntArray = npt.NDArray[np.int64]
COLUMNS = ("cell_id", "k", "prompt_id", "prefix_hash", "drafted_tokens", "accepted_tokens", "steps")


@dataclass(frozen=True, slots=True)
class Arm:
    """Drafted steps of one depth, grouped: one entry a (start, drafted, accepted). Arrays (groups,).

    prompt: code of the prompt; start: code of the emitted prefix, -1 where it is not known; steps: how often seen.
    """

    k: int
    prompt: IntArray
    start: IntArray
    drafted: IntArray
    accepted: IntArray
    steps: FloatArray

    def __len__(self) -> int:
        return len(self.prompt)


@dataclass(frozen=True, slots=True)
class Side:
    """One depth's part of a match. Arrays (prompts,) and (prompts, positions).

    steps, accepted_at: all its drafted steps; starts: its distinct known starts that carried a draft;
    accepted_shared: accepted on shared starts, each start counted once.
    """

    steps: FloatArray
    accepted_at: FloatArray
    starts: FloatArray
    accepted_shared: FloatArray


@dataclass(frozen=True, slots=True)
class Match:
    """Two depths of one cell over the same prompts. Arrays (prompts, positions); counts of distinct starts.

    shared: starts that both depths drafted the position from; discordant: those of them where the depths differ.
    """

    shared: FloatArray
    discordant: FloatArray
    side: Side
    other: Side

    @property
    def gained(self) -> FloatArray:
        """Accepted on shared starts by the first depth less by the other: (prompts, positions)."""
        return self.side.accepted_shared - self.other.accepted_shared


def arms_of(starts: pd.DataFrame) -> tuple[tuple[str, ...], int, dict[int, Arm]]:
    """(prompt names, number of known prefixes, depth -> Arm) of one cell's `starts`, which has COLUMNS."""
    prompts, names = pd.factorize(starts["prompt_id"], sort=True)
    prefixes, known = pd.factorize(starts["prefix_hash"])  # -1 where NULL
    columns: Mapping[str, IntArray] = {
        name: starts[name].to_numpy(dtype=np.int64) for name in ("k", "drafted_tokens", "accepted_tokens")
    }
    steps = starts["steps"].to_numpy(dtype=np.float64)
    found = {}
    for k in np.unique(columns["k"]):
        rows = columns["k"] == k
        found[int(k)] = Arm(
            int(k),
            prompts[rows].astype(np.int64),
            prefixes[rows].astype(np.int64),
            columns["drafted_tokens"][rows],
            columns["accepted_tokens"][rows],
            steps[rows],
        )
    return tuple(map(str, names)), len(known), found


def match(one: Arm, other: Arm, prompts: int, prefixes: int) -> Match:
    """Match two depths of one cell over the positions that both can draft."""
    positions = min(one.k, other.k)
    owner = np.zeros(prefixes, dtype=np.int64)  # a prefix belongs to one prompt: the hash holds its id
    for arm in (one, other):
        owner[arm.start[arm.start >= 0]] = arm.prompt[arm.start >= 0]

    def by_prompt(values: FloatArray) -> FloatArray:
        return np.bincount(owner, weights=values, minlength=prompts).astype(np.float64)

    shared: list[FloatArray] = []
    discordant: list[FloatArray] = []
    accepted: tuple[list[FloatArray], list[FloatArray]] = ([], [])
    for position in range(positions):
        rates = [_rate_at(arm, position, prefixes) for arm in (one, other)]
        both = np.isfinite(rates[0]) & np.isfinite(rates[1])
        shared.append(by_prompt(both.astype(np.float64)))
        discordant.append(by_prompt((both & (np.abs(rates[0] - rates[1]) > 1e-9)).astype(np.float64)))
        for sums, rate in zip(accepted, rates, strict=True):
            sums.append(by_prompt(np.where(both, rate, 0.0)))
    sides = []
    for arm, on_shared in zip((one, other), accepted, strict=True):
        weight = np.where(arm.drafted > 0, arm.steps, 0.0)
        at = [np.bincount(arm.prompt, weights=weight * (arm.accepted > i), minlength=prompts) for i in range(positions)]
        own = by_prompt(np.isfinite(_rate_at(arm, 0, prefixes)).astype(np.float64))
        steps = np.bincount(arm.prompt, weights=weight, minlength=prompts)
        sides.append(Side(steps.astype(np.float64), np.column_stack(at), own, np.column_stack(on_shared)))
    return Match(np.column_stack(shared), np.column_stack(discordant), *sides)


def _rate_at(arm: Arm, position: int, prefixes: int) -> FloatArray:
    """Share of the repeats of every start (prefixes,) that accepted the position; NaN where it was not drafted."""
    use = (arm.start >= 0) & (arm.drafted > position)
    start, weight = arm.start[use], arm.steps[use]
    drafted = np.bincount(start, weights=weight, minlength=prefixes)
    accepted = np.bincount(start, weights=weight * (arm.accepted[use] > position), minlength=prefixes)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(drafted > 0, accepted / drafted, np.nan))
