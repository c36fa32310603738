"""A known truth about depths, and run-level figures of many sweeps from it at once, for coverage studies.

`simulate` makes whole sweeps of records from the same truth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Truth:
    """What is true, and what disturbs it. Times in ms, shares as fractions.

    cycle(K) = t_verify_base + [K>=1] t_draft + K t_marginal + K^2 t_convex, then, per run:
    x (1 + block_sd z_block) + block_sd_ms z_block, x (1 + run_sd z) + run_sd_ms z, x (1 + drift x place in the order),
    x slow_factor with probability slow_share.
    """

    depths: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7)
    blocks: int = 3
    t_verify_base_ms: float = 62.3
    t_draft_ms: float = 15.9
    t_marginal_ms: float = 14.9
    t_convex_ms: float = 0.0
    conditional: tuple[float, ...] = (0.67, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6)  # acceptance given all before, by position
    prompt_sd: float = 0.5  # between prompts, on the logit of every conditional rate
    depth_effect: float = 0.0  # true poisoning: relative loss of every conditional rate per extra depth
    greedy: bool = True  # repeats of a prompt are copies
    prompts: int = 40
    max_tokens: int = 128
    block_sd: float = 0.0
    block_sd_ms: float = 0.0
    run_sd: float = 0.0
    run_sd_ms: float = 0.0
    request_sd: float = 0.01  # of a request's window, relative
    drift: float = 0.0  # relative growth of the cycle from the first run to the last
    slow_share: float = 0.0
    slow_factor: float = 1.5
    k_major: bool = False  # all runs of a depth together, instead of random complete blocks
    anchors: bool = True
    power_base_w: float | None = 44.0
    power_per_k_w: float = 0.83
    power_sd_w: float = 0.3
    power_interval_s: float = 1.0
    seed: int = 0

    def cycle_ms(self, k: FloatArray | IntArray) -> FloatArray:
        """True cycle at depth k, ms."""
        k = np.asarray(k, dtype=np.float64)
        return self.t_verify_base_ms + (k > 0) * self.t_draft_ms + k * self.t_marginal_ms + k**2 * self.t_convex_ms

    def tokens_per_step(self, k: int) -> float:
        """1 + sum of survival at depth k, for a prompt at the centre (no prompt effect)."""
        return 1 + float(np.cumprod(self._conditional(k)).sum())

    def _conditional(self, k: int) -> FloatArray:
        rates = np.asarray([self.conditional[min(i, len(self.conditional) - 1)] for i in range(k)])
        return np.asarray(rates * (1 - self.depth_effect) ** max(k - 1, 0))

    def order(self, rng: np.random.Generator, sweeps: int = 1) -> tuple[IntArray, IntArray]:
        """(k, block), each (sweeps, runs): random complete blocks, or depth by depth."""
        depths = np.asarray(self.depths)
        if self.k_major:
            k, block = np.repeat(depths, self.blocks), np.tile(np.arange(self.blocks), len(depths))
            return np.tile(k, (sweeps, 1)), np.tile(block, (sweeps, 1))
        shuffled = rng.permuted(np.tile(depths, (sweeps, self.blocks, 1)), axis=2).reshape(sweeps, -1)
        return shuffled, np.tile(np.repeat(np.arange(self.blocks), len(depths)), (sweeps, 1))

    def run_cycles(self, k: IntArray, block: IntArray, rng: np.random.Generator) -> FloatArray:
        """Cycle times of runs in ms, (sweeps, runs), in run order."""
        sweeps, runs = k.shape
        z_block = np.take_along_axis(rng.standard_normal((sweeps, int(block.max()) + 1)), block, axis=1)
        cycle = self.cycle_ms(k) * (1 + self.block_sd * z_block) + self.block_sd_ms * z_block
        cycle = cycle * (1 + self.run_sd * rng.standard_normal(k.shape)) + self.run_sd_ms * rng.standard_normal(k.shape)
        place = np.arange(runs) / max(runs - 1, 1)
        slow = np.where(rng.random(k.shape) < self.slow_share, self.slow_factor, 1.0)
        return np.asarray(np.maximum(cycle, 0.1) * (1 + self.drift * place) * slow)


class FastSweeps:
    """Run-level figures of many sweeps at once: arrays (sweeps, runs), and `frame(i)` as the view run_cell."""

    def __init__(self, truth: Truth, sweeps: int) -> None:
        rng = np.random.default_rng(truth.seed)
        self.truth = truth
        self.k, self.block = truth.order(rng, sweeps)
        self.cycle_ms = truth.run_cycles(self.k, self.block, rng)
        by_depth = np.array([truth.tokens_per_step(k) for k in range(max(truth.depths) + 1)])
        self.tokens_per_step = by_depth[self.k]
        self.decode_tok_s = 1000 * self.tokens_per_step / self.cycle_ms

    def __len__(self) -> int:
        return len(self.k)

    def frame(self, i: int) -> pd.DataFrame:
        """Sweep i as rows of run_cell (the columns that fits and comparisons use)."""
        runs = self.k.shape[1]
        return pd.DataFrame(
            {
                "sweep": "simulated",
                "run_id": [f"simulated:r{r:03d}" for r in range(runs)],
                "cell_id": "simulated:1xtext:sim",
                "k": self.k[i],
                "block": self.block[i],
                "order_index": np.arange(runs),
                "role": "arm",
                "status": "done",
                "valid": True,
                "source": "simulated",
                "concurrency": 1,
                "decode_tok_s": self.decode_tok_s[i],
                "tokens_per_step": self.tokens_per_step[i],
                "cycle_ms": self.cycle_ms[i],
            }
        )

    def frames(self) -> Iterator[pd.DataFrame]:
        """Every sweep as run_cell rows."""
        return (self.frame(i) for i in range(len(self)))
