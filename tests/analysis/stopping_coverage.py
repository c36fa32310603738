"""How often the intervals of a sweep with [stop] hold what is true. Used by test_stopping.py and bench_analysis.py."""

from __future__ import annotations

from collections import Counter

import numpy as np

from backend.analysis.stopping import PILOT, block_costs, decide, run_log_mean, stein_mean
from backend.truth import FastSweeps, Truth
from tests.analysis.coverage import Share, holds, log_means

PILOT_BLOCKS = 5


def two_stage_coverage(truth: Truth, sweeps: int, *, percent: float, t_draft_ms: float) -> dict[str, Share]:
    """Shares of sweeps whose interval holds the population value; `truth.blocks` bounds how long a sweep can get."""
    means, hits = log_means(truth), Counter[str]()
    for frame in FastSweeps(truth, sweeps).frames():
        decision = decide(frame, PILOT_BLOCKS, truth.blocks, decode_tok_s_percent=percent, t_draft_ms=t_draft_ms)
        kept = frame[frame["block"] < decision.blocks]
        kept = kept.assign(**{PILOT: kept["block"] < PILOT_BLOCKS})
        hits["stopped before the end of the simulation"] += not decision.cut
        for k, mean in zip(truth.depths, means, strict=True):
            mine = kept[kept["k"] == k]
            rate = run_log_mean(mine, mine["decode_tok_s"].to_numpy(), "tok/s")
            hits[f"decode_tok_s K={k}"] += holds(rate, float(np.exp(mean)))
        draft = block_costs(kept)[:, 1]
        hits["t_draft"] += holds(
            stein_mean(draft, [b < PILOT_BLOCKS for b in range(len(draft))], "ms"), truth.t_draft_ms
        )
    return {name: Share(int(hits[name]), sweeps) for name in hits}
