"""Two depths over the same greedy text, with a known effect of depth on position 0: starts as the store counts them.

Whether a draft is right depends on its start alone (composition only), or a deeper draft loses `effect` at position 0
(a block-width effect). Each depth then walks the text from the first token, so it starts where its own drafts end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from backend.analysis.depth_effect import PositionEffect, depth_effects

CELL = "sim:1xtext:sim"
CELLS = pd.DataFrame({"cell_id": [CELL], "concurrency": [1], "temperature": [0.0]})
LATER = 0.6  # conditional acceptance beyond position 0
PASSAGE_TOKENS = 12


@dataclass(frozen=True)
class MatchedTruth:
    """`nested`: a deeper draft is wrong wherever the shallow one is; else the two have luck of their own.

    effect_sd: between prompts. numeric_noise: share of starts where a rounding tie decides, either way, per depth.
    passage_sd: between passages of 12 tokens, on the logit: easy passages are skipped faster by deeper drafts, so that
    composition alone moves the raw rates.
    """

    effect: float = 0.0
    effect_sd: float = 0.0
    nested: bool = True
    numeric_noise: float = 0.0
    shallow: int = 1
    deep: int = 3
    prompts: int = 24
    max_tokens: int = 96
    position_0: float = 0.67
    prompt_sd: float = 0.5  # on the logit
    passage_sd: float = 0.0


class MatchedSweeps:
    """Many such sweeps at once; `starts(i)` is sweep i as `queries_acceptance.starts` gives it."""

    def __init__(self, truth: MatchedTruth, sweeps: int, seed: int = 0) -> None:
        rng = np.random.default_rng([seed, truth.prompts])
        shape = (sweeps, truth.prompts, truth.max_tokens)
        passage = truth.passage_sd * rng.standard_normal((*shape[:2], -(-truth.max_tokens // PASSAGE_TOKENS)))
        ease = np.repeat(passage, PASSAGE_TOKENS, axis=2)[:, :, : truth.max_tokens]
        ease = ease + truth.prompt_sd * rng.standard_normal((*shape[:2], 1))
        rate = _chance(truth.position_0, ease)
        self.loss = truth.effect + truth.effect_sd * rng.standard_normal((*shape[:2], 1))
        luck = rng.random(shape)
        deep_luck = luck if truth.nested else rng.random(shape)
        run_on = rng.random((*shape, truth.deep)) < _chance(LATER, ease if truth.passage_sd else 0 * ease)[..., None]
        hits = {truth.shallow: luck < rate, truth.deep: deep_luck < np.clip(rate - self.loss, 0, 1)}
        for k, hit in hits.items():
            tie, coin = rng.random(shape) < truth.numeric_noise, rng.random(shape) < 0.5
            hits[k] = np.where(tie, coin, hit)
        self.truth, self.hits = truth, hits
        self.accepted = {
            k: np.where(hit, 1 + np.cumprod(run_on[..., : k - 1], axis=-1).sum(axis=-1), 0) for k, hit in hits.items()
        }
        self.visited = {k: _walk(accepted) for k, accepted in self.accepted.items()}

    def starts(self, i: int) -> pd.DataFrame:
        """Sweep i: a row a start and depth."""
        frames = []
        for k in (self.truth.shallow, self.truth.deep):
            prompt, token = np.nonzero(self.visited[k][i])
            frames.append(
                pd.DataFrame(
                    {
                        "cell_id": CELL,
                        "k": k,
                        "prompt_id": prompt,
                        "prefix_hash": prompt * 10_000 + token,
                        "drafted_tokens": k,
                        "accepted_tokens": self.accepted[k][i, prompt, token],
                        "steps": 3,  # three runs, copies of each other
                    }
                )
            )
        return pd.concat(frames, ignore_index=True)

    def difference(self) -> float:
        """The true difference at position 0 of these sweeps' population: each prompt weighs by its shared starts."""
        shared = (self.visited[self.truth.shallow] & self.visited[self.truth.deep]).sum(axis=-1)
        return float(-(shared * self.loss[..., 0]).sum() / shared.sum())

    def first(self, i: int, draws: int = 1000) -> PositionEffect:
        """What the analysis says of sweep i at position 0."""
        outputs = pd.DataFrame({"cell_id": [], "k": [], "prompt_id": [], "output_hash": []})
        found = depth_effects(self.starts(i), outputs, CELLS, against=self.truth.shallow, draws=draws)
        return found[0].positions[0]


def _chance(middle: float, ease: np.ndarray) -> np.ndarray:
    """A chance of `middle`, moved on the logit."""
    return 1 / (1 + np.exp(-(np.log(middle / (1 - middle)) + ease)))


def _walk(accepted: np.ndarray) -> np.ndarray:
    """Which tokens a depth starts a step from: (sweeps, prompts, tokens)."""
    sweep, prompt = np.indices(accepted.shape[:2])
    last = accepted.shape[2] - 1
    visited = np.zeros(accepted.shape, dtype=bool)
    start = np.ones(accepted.shape[:2], dtype=int)  # the prefill emitted token 0
    while (inside := start <= last).any():
        visited[sweep[inside], prompt[inside], start[inside]] = True
        start = np.where(inside, start + 1 + accepted[sweep, prompt, np.minimum(start, last)], start)
    return visited


def shares(truth: MatchedTruth, sweeps: int, *, seed: int = 0, draws: int = 1000) -> dict[str, float]:
    """Shares of sweeps: `covered` (the interval holds the true difference), `poisoning`, `gain`, `agree`,
    `raw_apart` (the raw interval does not hold the true difference: what a reader of raw rates would conclude)."""
    true = MatchedSweeps(truth, 2000, seed + 1).difference() if truth.effect_sd else -truth.effect
    many = MatchedSweeps(truth, sweeps, seed)
    found = [many.first(i, draws) for i in range(sweeps)]
    verdicts = [one.verdict for one in found]
    return {
        "covered": np.mean([one.difference.low <= true <= one.difference.high for one in found]),
        "raw_apart": np.mean([not one.raw.low <= true <= one.raw.high for one in found]),
        **{word: verdicts.count(word) / sweeps for word in ("poisoning", "gain", "agree", "not shown")},
    }
