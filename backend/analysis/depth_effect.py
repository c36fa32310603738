"""Does drafting deeper change acceptance, or only where steps start? Matched starts tell the two apart.

For two depths K and J of one cell, at draft position i:
    raw        = a_i(K) - a_i(J)                   over all drafted steps (survival, vLLM's convention)
    difference = the same on shared starts only    (`matching.py`; every start counted once)
    remainder  = raw - difference                  "composition, or effect on unshared starts"
Only the difference may be called poisoning: the remainder also holds that depths start steps at different places.
An effect that is the same on all starts leaves exactly the composition in the remainder; where every start is shared
(forced starts) there is none.

Intervals: cluster bootstrap over prompts, expanded percentiles; by simulation (tests/analysis/test_depth_effect.py)
94-96% at 24 and 40 prompts and 93% at 8, where plain percentiles cover 93% and 87%. No discordant start: the bound
1 - alpha^(1/m), m prompts with a shared start, on either side of 0. Words follow a sign-flip test over prompts
(exact where prompts differ by chance alone), adjusted by Holm over all depths and positions of the cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import pandas as pd

from backend.analysis.estimate import LEVEL, Estimate, FloatArray, missing
from backend.analysis.matching import Match, arms_of, match
from backend.analysis.resample import DRAWS, cluster_ratio, from_draws, ratio_draws, weights
from backend.analysis.simultaneous import holm

Verdict = Literal["agree", "poisoning", "gain", "not shown", "not known"]
REMAINDER = "composition, or effect on unshared starts"
BOUND_METHOD = "no discordant start: bound 1 - alpha^(1/prompts)"


@dataclass(frozen=True, slots=True)
class PositionEffect:
    """One draft position; unit "1", n counts prompts. Counts are of distinct starts.

    survival_shared, survival_shared_against: on shared starts; None where there are none. p_holm: sign-flip, adjusted.
    """

    position: int
    difference: Estimate
    raw: Estimate
    remainder: Estimate
    shared_starts: int
    discordant_starts: int
    survival_shared: float | None
    survival_shared_against: float | None
    p_holm: float | None
    verdict: Verdict

    def to_dict(self) -> dict[str, object]:
        """JSON-safe."""
        return {
            "position": self.position,
            "difference": self.difference.to_dict(),
            "raw": self.raw.to_dict(),
            "remainder": self.remainder.to_dict(),
            "remainder_is": REMAINDER,
            "shared_starts": self.shared_starts,
            "discordant_starts": self.discordant_starts,
            "survival_shared": self.survival_shared,
            "survival_shared_against": self.survival_shared_against,
            "p_holm": self.p_holm,
            "verdict": self.verdict,
        }


@dataclass(frozen=True, slots=True)
class DepthEffect:
    """Depth `k` less depth `against` in one cell. Shares: shared starts over all starts of that depth.

    reason: why nothing could be matched; None where something was. diverged_prompts: prompts whose outputs differ
    between the two depths or their runs; their starts are matched up to the first differing token.
    """

    cell_id: str
    k: int
    against: int
    phase: str  # measure: starts as they came | forced: the same starts replayed at every depth
    positions: tuple[PositionEffect, ...]
    shared_share: Estimate
    shared_share_against: Estimate
    prompts: int
    diverged_prompts: int
    reason: str | None

    def to_dict(self) -> dict[str, object]:
        """As in `acceptance --against --json`."""
        return {
            "cell_id": self.cell_id,
            "k": self.k,
            "against": self.against,
            "phase": self.phase,
            "positions": [position.to_dict() for position in self.positions],
            "shared_share": self.shared_share.to_dict(),
            "shared_share_against": self.shared_share_against.to_dict(),
            "prompts": self.prompts,
            "diverged_prompts": self.diverged_prompts,
            "reason": self.reason,
        }


def depth_effects(
    starts: pd.DataFrame,
    outputs: pd.DataFrame,
    cells: pd.DataFrame,
    *,
    against: int,
    phase: str = "measure",
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> list[DepthEffect]:
    """Every cell, every drafted depth less `against`; cells where `against` drafted nothing are left out.

    starts: `matching.COLUMNS`, a row per cell, K, prompt, start, drafted and accepted tokens, of the runs that count;
    outputs: cell_id, k, prompt_id, output_hash; cells: cell_id, concurrency, temperature.
    """
    found: list[DepthEffect] = []
    conditions = {str(cell["cell_id"]): cell for _, cell in cells.iterrows()}
    for cell_id, rows in starts.groupby("cell_id", sort=True):
        prompts, prefixes, arms = arms_of(rows)
        if against not in arms or against < 1:
            continue
        why = _unmatchable(conditions[str(cell_id)], rows)
        said = outputs[outputs["cell_id"] == cell_id]
        matches = {k: match(arm, arms[against], len(prompts), prefixes) for k, arm in arms.items() if k != against}
        adjusted = _adjusted(matches, level, draws, seed) if why is None else {}
        for k, one in matches.items():
            reason = why or (None if one.shared.any() else "no start is shared: the outputs differ from the start")
            found.append(
                DepthEffect(
                    str(cell_id),
                    k,
                    against,
                    phase,
                    tuple(
                        _position(one, i, k - against, adjusted.get((k, i)), reason, level, draws, seed)
                        for i in range(one.shared.shape[1])
                    ),
                    _share(one, one.side.starts, reason, level, draws, seed),
                    _share(one, one.other.starts, reason, level, draws, seed),
                    int((one.shared[:, 0] > 0).sum()) if reason is None else 0,
                    _diverged(said, {k, against}),
                    reason,
                )
            )
    return found


def _unmatchable(cell: pd.Series, starts: pd.DataFrame) -> str | None:
    """Why the starts of a cell cannot be matched at all."""
    temperature, concurrency = cell["temperature"], cell["concurrency"]
    if pd.isna(temperature):
        return "the sampling temperature is not stated, so equal starts cannot be told"
    if float(temperature) > 0:
        return f"sampled at temperature {float(temperature):g}: depths are compared on equal starts only when greedy"
    if int(concurrency) > 1:
        return f"concurrency {int(concurrency)}: batches differ from run to run, starts are matched at concurrency 1"
    if starts["prefix_hash"].isna().all():
        return "starts are not known: token ids are missing, or undrafted steps in between hide where a step started"
    return None


def _diverged(outputs: pd.DataFrame, depths: set[int]) -> int:
    """Prompts with more than one output over these depths and all their runs."""
    rows = outputs[outputs["k"].isin(depths)]
    return int((rows.groupby("prompt_id")["output_hash"].nunique() > 1).sum())


def _share(one: Match, starts: FloatArray, reason: str | None, level: float, draws: int, seed: int) -> Estimate:
    if reason is not None:
        return missing("1", reason)
    top, bottom = one.shared[:, :1], starts[:, None]
    return cluster_ratio(top, bottom, "1", draws=draws, seed=seed, level=level, rate=True)[0]


def _position(
    one: Match, i: int, deeper: int, p: float | None, reason: str | None, level: float, draws: int, seed: int
) -> PositionEffect:
    """The figures of one position; `deeper` is above 0 where the first depth is the deeper one."""
    w = weights(len(one.shared), draws, seed)
    sides = (one.side, one.other)
    drawn = [ratio_draws(w, side.accepted_at[:, [i]], side.steps[:, None])[:, 0] for side in sides]
    values = [_ratio(side.accepted_at[:, i], side.steps) for side in sides]
    raw_draws, raw_value = drawn[0] - drawn[1], values[0] - values[1]
    both = int(((one.side.steps > 0) & (one.other.steps > 0)).sum())
    raw = from_draws(raw_value, raw_draws, "1", clusters=both, level=level)
    shared, prompts = float(one.shared[:, i].sum()), int((one.shared[:, i] > 0).sum())
    if reason is None and not shared:
        reason = "no shared start drafted this position at both depths"
    if reason is not None:
        nothing = missing("1", reason)
        return PositionEffect(i, nothing, raw, nothing, 0, 0, None, None, None, "not known")
    on_shared = [float(side.accepted_shared[:, i].sum()) / shared for side in sides]
    value, discordant = on_shared[0] - on_shared[1], int(one.discordant[:, i].sum())
    difference_draws = ratio_draws(w, one.gained[:, [i]], one.shared[:, [i]])[:, 0]
    if discordant:
        difference = from_draws(value, difference_draws, "1", clusters=prompts, level=level)
    else:
        bound = 1 - (1 - level) ** (1 / prompts)
        difference = Estimate(0.0, -bound, bound, level, BOUND_METHOD, prompts, "1", None)
    if all(side.starts.sum() == shared for side in (one.side, one.other)) and abs(raw_value - value) < 1e-9:
        raw, remainder = difference, missing("1", "every start is shared: there is no remainder")
    else:
        remainder = from_draws(raw_value - value, raw_draws - difference_draws, "1", clusters=both, level=level)
    verdict: Verdict = "agree" if not discordant else "not shown"
    if discordant and p is not None and p <= 1 - level:
        verdict = "poisoning" if (value < 0) == (deeper > 0) else "gain"
    return PositionEffect(
        i, difference, raw, remainder, round(shared), discordant, on_shared[0], on_shared[1], p, verdict
    )


def _ratio(top: FloatArray, bottom: FloatArray) -> float:
    total = float(bottom.sum())
    return float(top.sum()) / total if total else float("nan")


def _adjusted(matches: dict[int, Match], level: float, draws: int, seed: int) -> dict[tuple[int, int], float]:
    """Holm's adjusted sign-flip p of every (K, position) that has a shared start."""
    keys = [(k, i) for k, one in matches.items() for i in range(one.shared.shape[1]) if one.shared[:, i].any()]
    if not keys:
        return {}
    p = np.array([sign_flip_p(matches[k].gained[:, i], draws, seed) for k, i in keys])
    return dict(zip(keys, map(float, holm(p, level)[0]), strict=True))


def sign_flip_p(by_prompt: FloatArray, draws: int = DRAWS, seed: int = 0) -> float:
    """Two-sided p of "prompts differ by chance alone": how often random signs give a sum as far from 0. (prompts,).

    Few prompts that differ can never be significant: u of them give at least 2 / 2^u.
    """
    moved = by_prompt[np.abs(by_prompt) > 1e-9]
    if not len(moved):
        return 1.0
    flipped = np.abs(_signs(len(moved), draws, seed) @ moved)
    return float((1 + (flipped >= abs(moved.sum()) - 1e-9).sum()) / (1 + draws))


@lru_cache(maxsize=16)
def _signs(prompts: int, draws: int, seed: int) -> FloatArray:
    signs = np.random.default_rng([seed, prompts, 2]).choice([-1.0, 1.0], size=(draws, prompts))
    signs.setflags(write=False)
    return signs
