"""Coverage by simulation, small: the full study (2,000 sweeps a cell) is tests/bench/bench_analysis.py.

Bounds are the target less 3.5 binomial standard errors, so that a right method fails about once in 4,000 runs of a
cell; seeds are fixed, so it does not fail by chance at all.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from backend.analysis.compare import compare_cell
from backend.truth import FastSweeps, Truth
from tests.analysis.coverage import BLOCK_EFFECTS, Share, best_k_right, convex, coverage, drift_bias, prompt_clusters
from tests.analysis.frames import runs

SWEEPS = 250


def at_least(share: Share, target: float) -> bool:
    return share.value >= target - 3.5 * (target * (1 - target) / share.n) ** 0.5


@pytest.mark.parametrize("blocks", [3, 5, 10])
@pytest.mark.parametrize("effect", list(BLOCK_EFFECTS))
def test_intervals_hold_the_population_value(effect: str, blocks: int) -> None:
    found = coverage(replace(BLOCK_EFFECTS[effect], blocks=blocks, seed=blocks), SWEEPS)
    for quantity in ("decode_tok_s K=2", "decode_tok_s deepest", "t_verify_base", "t_marginal", "t_draft"):
        assert at_least(found[quantity], 0.95), f"{quantity}: {found[quantity]}"
    assert at_least(found["loss, all depths"], 0.95), found["loss, all depths"]
    if effect.startswith("multiplicative"):
        assert found["t_marginal pooled"].value < 0.91  # why every block has a line of its own
    if effect == "none":
        assert found["t_draft study +/- 2 SE"].value < 0.86  # it takes the K=0 cycle as exact


def test_a_convex_truth_is_a_covered_projection_with_a_bias_that_the_tests_see() -> None:
    c = convex(Truth(run_sd_ms=3.0, t_convex_ms=1.0, blocks=5), 150)
    assert c.bias_ms == pytest.approx(-12.0)
    assert at_least(c.projection, 0.95)
    assert c.truth.value < 0.2
    assert c.quadratic_power.value > 0.95


def test_a_line_is_called_curved_as_rarely_as_the_level_says() -> None:
    c = convex(Truth(run_sd_ms=3.0, block_sd=0.05, blocks=4), 250)
    assert c.quadratic_power.value < 0.10
    assert c.lack_of_fit_power.value < 0.10


@pytest.mark.parametrize("spread", [1.0, 2.0])
@pytest.mark.parametrize("blocks", [3, 5])
def test_best_k_is_right_when_it_is_sure(spread: float, blocks: int) -> None:
    right, said = best_k_right(spread, blocks, 400)
    assert said.hits > 10
    assert right.value >= 0.90


def test_within_is_honest_on_a_flat_truth() -> None:
    flat = Truth(t_draft_ms=0.0, t_marginal_ms=0.0, conditional=(1e-9,) * 7, run_sd=0.01, blocks=5)
    verdicts = [compare_cell(f, draws=200) for f in FastSweeps(flat, 150).frames()]
    assert sum(any(d.verdict == "worse" for d in c.depths) for c in verdicts) <= 0.05 * len(verdicts) + 5
    assert all(c.recommendation is not None and c.recommendation.k in range(8) for c in verdicts)


def test_the_studys_curve_with_10_percent_scatter_and_3_blocks_is_unresolved() -> None:
    rates = {0: 16.06, 1: 18.43, 2: 24.05, 3: 21.36, 4: 19.0, 5: 17.0, 6: 14.92, 7: 14.0}
    rng = np.random.default_rng(5)
    advice = [
        compare_cell(
            runs({k: list(r * np.exp(0.1 * rng.standard_normal(3))) for k, r in rates.items()}), draws=200
        ).recommendation
        for _ in range(150)
    ]
    unresolved = [a for a in advice if a is not None and not a.resolved]
    assert len(unresolved) > 0.75 * len(advice)
    assert not [a for a in advice if a is not None and a.resolved and a.k < 2]


def test_random_blocks_keep_drift_out_of_the_effect_of_depth() -> None:
    random = drift_bias(Truth(drift=0.05), 500)
    assert abs(random.mean()) < 0.1
    k_major = drift_bias(Truth(drift=0.05, k_major=True), 5)
    assert k_major.mean() < -4


@pytest.mark.parametrize("prompts", [6, 30])
def test_prompts_are_the_clusters_and_copies_are_not(prompts: int) -> None:
    by_prompt, by_request = prompt_clusters(prompts, 3, 200)
    assert at_least(by_prompt, 0.95), by_prompt
    assert by_request.value < 0.85
