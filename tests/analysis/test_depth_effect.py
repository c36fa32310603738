"""The depth effect on acceptance: known answers of the demo, an effect that is there, composition that is none."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from backend.analysis.depth_effect import REMAINDER, DepthEffect, depth_effects, sign_flip_p
from backend.analysis.depth_words import effect_words
from backend.analysis.matching import COLUMNS
from backend.simulate import simulate
from backend.store import queries, queries_acceptance
from backend.store.paths import BUNDLED_SNAPSHOT
from backend.truth import Truth
from tests.analysis.frames import tables
from tests.analysis.matched_truth import CELL, CELLS, MatchedSweeps, MatchedTruth, shares

DEMO = "demo-vllm-cpu"
NO_OUTPUTS = pd.DataFrame({"cell_id": [], "k": [], "prompt_id": [], "output_hash": []})


def starts_of(*rows: tuple[int, str, str | None, int, int], steps: int = 1) -> pd.DataFrame:
    """Starts from (K, prompt, prefix, drafted, accepted)."""
    return pd.DataFrame([(CELL, *row, steps) for row in rows], columns=list(COLUMNS))


def one(starts: pd.DataFrame, outputs: pd.DataFrame = NO_OUTPUTS, cells: pd.DataFrame = CELLS) -> DepthEffect:
    found = depth_effects(starts, outputs, cells, against=1, draws=500)
    assert len(found) == 1
    return found[0]


def as_starts(data: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The tables of a simulated sweep, grouped as the store groups them."""
    requests = data["request"].merge(data["run_cell"][["run_id", "cell_id", "k", "role"]], on=["run_id", "cell_id"])
    steps = data["step"].merge(requests[requests["role"] == "arm"], on="request_id", suffixes=("", "_of_request"))
    keys = [name for name in COLUMNS if name != "steps"]
    return steps.groupby(keys, as_index=False).size().rename(columns={"size": "steps"})


@pytest.fixture(scope="module")
def demo() -> dict[int, list[DepthEffect]]:
    """The demo's depths against K=1 and K=3."""
    con = queries.connect(BUNDLED_SNAPSHOT)
    starts, outputs = queries_acceptance.starts(con, DEMO), queries_acceptance.outputs(con, DEMO)
    return {base: depth_effects(starts, outputs, queries.cells(con, DEMO), against=base) for base in (1, 3)}


def test_the_demo_has_no_effect_where_starts_are_shared(demo: dict[int, list[DepthEffect]]) -> None:
    """An autoregressive drafter cannot be poisoned: a draft position does not see how many follow it."""
    for base, depths in ((1, [2, 3, 4, 5, 6, 7]), (3, [1, 2, 4, 5, 6, 7])):
        assert [effect.k for effect in demo[base]] == depths
        for effect in demo[base]:
            assert len(effect.positions) == min(effect.k, base)
            assert effect.diverged_prompts == 0
            assert effect.prompts == 24
            for position in effect.positions:
                assert position.difference.value == 0
                assert position.difference.high == pytest.approx(1 - 0.05 ** (1 / 24))
                assert position.difference.n == 24
                assert (position.verdict, position.discordant_starts) == ("agree", 0)
                assert position.shared_starts > 400


def test_the_demos_raw_differences_are_composition(demo: dict[int, list[DepthEffect]]) -> None:
    first = {effect.k: effect.positions[0] for effect in demo[1]}
    apart = [k for k, position in first.items() if position.raw.high < 0]
    assert 7 in apart  # raw rates alone would be read as poisoning
    for position in first.values():
        assert position.remainder.value == pytest.approx(position.raw.value)
    assert REMAINDER == "composition, or effect on unshared starts"
    shares = [effect.shared_share.value for effect in demo[1]] + [
        effect.shared_share_against.value for effect in demo[1]
    ]
    assert all(0.3 < share <= 1 for share in shares)


def test_raw_is_difference_plus_remainder() -> None:
    sweeps = MatchedSweeps(MatchedTruth(effect=0.1), 5)
    for i in range(5):
        position = sweeps.first(i)
        assert position.raw.value == pytest.approx(position.difference.value + position.remainder.value)
        assert position.difference.value == pytest.approx(position.survival_shared - position.survival_shared_against)


def test_counts_by_hand() -> None:
    """Two prompts; K=3 starts at a, c (prompt p) and d (q); K=1 at a, b, d. Shared: a and d."""
    effect = one(
        starts_of(
            (1, "p", "a", 1, 1), (1, "p", "b", 1, 0), (1, "q", "d", 1, 1),
            (3, "p", "a", 3, 0), (3, "p", "c", 3, 2), (3, "q", "d", 3, 1),
        )
    )  # fmt: skip
    position = effect.positions[0]
    assert (position.shared_starts, position.discordant_starts, effect.prompts) == (2, 1, 2)
    assert position.difference.value == pytest.approx(-0.5)  # a: lost at K=3; d: kept
    assert position.raw.value == pytest.approx(0)  # 2 of 3 against 2 of 3
    assert position.remainder.value == pytest.approx(0.5)
    assert effect.shared_share.value == pytest.approx(2 / 3)
    assert effect.shared_share_against.value == pytest.approx(2 / 3)
    assert position.verdict == "not shown"  # one prompt that differs proves nothing
    json.dumps(effect.to_dict(), allow_nan=False)


def test_a_start_counts_only_where_both_drafted_the_position() -> None:
    """A draft cut short by the context's end, or an n-gram that found less, is no lost acceptance."""
    found = depth_effects(
        starts_of((2, "p", "a", 2, 2), (2, "p", "b", 2, 1), (3, "p", "a", 1, 1), (3, "p", "b", 0, 0)),
        NO_OUTPUTS, CELLS, against=2, draws=100,
    )  # fmt: skip
    first, second = found[0].positions
    assert (first.shared_starts, second.shared_starts) == (1, 0)
    assert first.difference.value == 0
    assert second.difference.value is None
    assert "drafted this position" in second.difference.reason


def test_repeats_that_disagree_are_a_share() -> None:
    """A start whose repeats differ counts once, with the share that accepted."""
    effect = one(starts_of((1, "p", "a", 1, 1), (3, "p", "a", 3, 0), (3, "p", "a", 3, 1), (1, "q", "b", 1, 1), (3, "q", "b", 3, 1)))  # fmt: skip  # noqa: E501
    assert effect.positions[0].difference.value == pytest.approx(-0.25)
    assert effect.positions[0].shared_starts == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"temperature": 0.7}, "sampled at temperature 0.7"),
        ({"temperature": None}, "temperature is not stated"),
        ({"concurrency": 4}, "concurrency 4"),
    ],
)
def test_no_value_where_starts_cannot_be_compared(change: dict[str, float | None], said: str) -> None:
    effect = one(MatchedSweeps(MatchedTruth(), 1).starts(0), cells=CELLS.assign(**change))
    position = effect.positions[0]
    assert position.difference.value is None
    assert position.verdict == "not known"
    assert said in effect.reason
    assert said in position.difference.reason
    assert said in position.remainder.reason
    assert position.raw.low is not None  # the raw rates are still what was measured


def test_unknown_starts() -> None:
    """n-gram steps in between hide where a drafted step starts."""
    starts = MatchedSweeps(MatchedTruth(), 1).starts(0).assign(prefix_hash=None)
    assert "starts are not known" in one(starts).reason


def test_matching_stops_where_outputs_diverge() -> None:
    starts = starts_of(
        (1, "p", "p1", 1, 1), (1, "p", "p3", 1, 1), (1, "q", "q1", 1, 0),
        (3, "p", "p1", 3, 1), (3, "p", "other3", 3, 3), (3, "q", "q1", 3, 0),
    )  # fmt: skip
    outputs = pd.DataFrame(
        {"cell_id": CELL, "k": [1, 3, 1, 3], "prompt_id": ["p", "p", "q", "q"], "output_hash": ["x", "y", "z", "z"]}
    )
    effect = one(starts, outputs)
    assert (effect.positions[0].shared_starts, effect.diverged_prompts) == (2, 1)
    apart = starts.assign(
        prefix_hash=[f"{k}{prefix}" for k, prefix in zip(starts["k"], starts["prefix_hash"], strict=True)]
    )
    nothing = one(apart, outputs)
    assert "no start is shared" in nothing.reason
    assert nothing.positions[0].difference.value is None


def test_a_simulated_sweep_through_the_tables() -> None:
    """From request records to the verdict: no effect, and one that is planted."""
    truth = Truth(depths=(0, 1, 3, 7), blocks=2, prompts=30, max_tokens=96)
    none = depth_effects(
        as_starts(tables(simulate(truth))), NO_OUTPUTS, CELLS.assign(cell_id="simulated:1xtext:sim"), against=1
    )
    assert [p.verdict for effect in none for p in effect.positions] == ["agree", "agree"]
    planted = simulate(replace(truth, depth_effect=0.03))  # K=7 loses 1 - .97^6 = 17% of every conditional rate
    found = depth_effects(
        as_starts(tables(planted)), NO_OUTPUTS, CELLS.assign(cell_id="simulated:1xtext:sim"), against=1
    )
    deepest = found[-1].positions[0]
    assert (found[-1].k, deepest.verdict) == (7, "poisoning")
    assert deepest.difference.low < 0.63 * -0.167 < deepest.difference.high
    shallow = depth_effects(
        as_starts(tables(planted)), NO_OUTPUTS, CELLS.assign(cell_id="simulated:1xtext:sim"), against=7
    )[0]
    assert (shallow.k, shallow.positions[0].verdict) == (1, "poisoning")  # the deeper one loses, whichever is first
    assert shallow.positions[0].difference.value == pytest.approx(-deepest.difference.value)


def test_few_prompts_that_differ_are_never_significant() -> None:
    assert sign_flip_p(np.array([1.0, 2.0, 1.0, 0.0, 0.0])) == pytest.approx(0.25, abs=0.02)
    assert sign_flip_p(np.zeros(24)) == 1.0
    assert sign_flip_p(-np.ones(24)) < 0.001


@pytest.mark.slow
@pytest.mark.parametrize("nested", [True, False])
def test_an_effect_of_005_is_covered(nested: bool) -> None:
    """A small version of tests/bench/bench_depth_effect.py (2,000 sweeps a case: 93-97%)."""
    found = shares(MatchedTruth(effect=0.05, effect_sd=0.03, nested=nested), 200, draws=600)
    assert 0.95 - 3.5 * (0.95 * 0.05 / 200) ** 0.5 <= found["covered"] <= 0.995
    assert found["gain"] == 0
    if nested:
        assert found["poisoning"] > 0.95


@pytest.mark.slow
def test_composition_is_not_called_poisoning() -> None:
    """Raw rates move because deeper drafts hurry through easy passages; shared starts do not."""
    found = shares(MatchedTruth(passage_sd=2.0), 100, draws=600)
    assert found["agree"] == 1
    assert found["raw_apart"] > 0.5  # an interval of the raw difference would have said poisoning
    noisy = shares(MatchedTruth(passage_sd=2.0, numeric_noise=0.02), 200, draws=600)
    assert noisy["poisoning"] <= 0.05
    assert noisy["gain"] <= 0.05


def test_words_are_what_the_figures_say(demo: dict[int, list[DepthEffect]]) -> None:
    (sentence,) = effect_words(demo[1])
    assert sentence.startswith(
        "Position 0: K=2, 3, 4, 5, 6 and 7 and K=1 agree on all shared starts (503 to 793 starts"
    )
    assert "more than 0.117 either way is excluded" in sentence
    assert sentence.endswith("(-0.060 to -0.016) is composition, or effect on unshared starts.")
    assert "poison" not in " ".join(effect_words(demo[1]) + effect_words(demo[3], 2))
    planted = MatchedSweeps(MatchedTruth(effect=0.15), 1)
    found = depth_effects(planted.starts(0), NO_OUTPUTS, CELLS, against=1, draws=500)
    (said,) = effect_words(found)
    assert "drafting 3 deep poisons this position" in said
    assert f"{found[0].positions[0].difference.value:.3f}" in said
    sampled = depth_effects(planted.starts(0), NO_OUTPUTS, CELLS.assign(temperature=1.0), against=1, draws=500)
    assert effect_words(sampled) == [
        "Starts cannot be compared: sampled at temperature 1: depths are compared on equal starts only when greedy."
    ]
