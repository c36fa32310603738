"""The depth effect on acceptance by simulation, whole: how often its interval holds an effect of .05, and how often
composition alone is called poisoning. `python -m tests.bench.bench_depth_effect --sweeps 2000`

Targets: coverage 93-97% of sweeps with an effect; poisoning said of at most 5% of sweeps without one.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from tests.analysis.matched_truth import MatchedTruth, shares

EFFECTS = {
    "effect .05, the same for all prompts": MatchedTruth(effect=0.05),
    "effect .05, SD .04 between prompts": MatchedTruth(effect=0.05, effect_sd=0.04),
    "effect .05, luck of its own": MatchedTruth(effect=0.05, nested=False),
    "effect .05, K=7 against K=2": MatchedTruth(effect=0.05, effect_sd=0.04, shallow=2, deep=7),
}
NOTHING = {
    "composition": MatchedTruth(passage_sd=2.0),
    "composition, 2% rounding ties": MatchedTruth(passage_sd=2.0, numeric_noise=0.02),
    "luck of its own": MatchedTruth(nested=False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=2000, help="simulated sweeps a case")
    parser.add_argument("--prompts", type=int, nargs="+", default=[24, 40])
    asked = parser.parse_args()
    for prompts in asked.prompts:
        for name, truth in (EFFECTS | NOTHING).items():
            began = time.perf_counter()
            found = shares(replace(truth, prompts=prompts), asked.sweeps, seed=prompts)
            figure, target = ("covered", "93-97%") if truth.effect else ("poisoning", "at most 5%")
            print(
                f"{prompts} prompts, {name}: {figure} {found[figure]:.1%} (target {target}), "
                f"poisoning {found['poisoning']:.1%}, gain {found['gain']:.1%}, "
                f"the raw interval misses the effect in {found['raw_apart']:.1%}, {time.perf_counter() - began:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
