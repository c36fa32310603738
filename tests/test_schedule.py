"""Run order: complete blocks, anchors at the ends, the same on every machine."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from backend.schedule import plan
from backend.spec import SweepSpec


def spec(depths: list[int], blocks: int, seed: int, **more: object) -> SweepSpec:
    return SweepSpec.model_validate(
        {
            "name": "s",
            "depths": depths,
            "blocks": blocks,
            "seed": seed,
            "target": {"model": "t"},
            "speculator": {"method": "ngram"},
            "workload": {"prompts": "p", "max_tokens": 2},
            "server": {},
            **more,
        }
    )


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=8, unique=True),
    st.integers(1, 6),
    st.integers(0, 2**40),
)
def test_every_block_is_complete_and_anchors_are_first_and_last(depths: list[int], blocks: int, seed: int) -> None:
    runs = plan(spec(depths, blocks, seed))
    assert [run.order_index for run in runs] == list(range(len(runs)))
    arms = [run for run in runs if run.role == "arm"]
    for block in range(blocks):
        assert Counter(run.k for run in arms if run.block == block) == Counter(depths)
    assert [run.block for run in arms] == sorted(run.block for run in arms)
    anchors = [run for run in runs if run.role == "anchor"]
    assert [(run.k, run.order_index) for run in anchors] == ([(0, 0), (0, len(runs) - 1)] if 0 in depths else [])
    assert plan(spec(depths, blocks, seed)) == runs


PINNED = [2, 1, 3, 0, 0, 1, 2, 3]


def test_the_order_is_pinned() -> None:
    """A stored seed must give its order for ever: this one is what the code gave when it was written."""
    assert [run.k for run in plan(spec([0, 1, 2, 3], 2, 7, anchors=False))] == PINNED


def test_order_is_not_the_same_in_every_block() -> None:
    orders = {
        tuple(run.k for run in plan(spec(list(range(8)), 6, 1, anchors=False)) if run.block == b) for b in range(6)
    }
    assert len(orders) == 6


def test_cells_are_shuffled_per_run_but_all_there() -> None:
    runs = plan(spec([1, 2], 4, 3, concurrency=[1, 2, 4], context_tokens=[16, 64]))
    assert all(len(run.cells) == 6 and len(set(run.cells)) == 6 for run in runs)
    assert len({run.cells for run in runs}) > 1


def test_retries_are_attempts_of_the_same_plan() -> None:
    run = plan(spec([2], 1, 0))[0]
    assert run.run_id("s", 1) == "s:r000b0k2a1"
    assert run.run_id("s", 2) == "s:r000b0k2a2"


def test_diagnostic_runs_come_last_once_a_drafted_depth() -> None:
    python = {"python": "/usr/bin/python3"}
    runs = plan(spec([0, 1, 3], 2, 7, timing={"diagnostic": True}, server=python))
    assert [run.role for run in runs] == ["anchor"] + ["arm"] * 6 + ["anchor"] + ["diagnostic"] * 2
    assert [run.k for run in runs if run.role == "diagnostic"] == [1, 3]
    assert plan(spec([0, 1, 3], 2, 7))[:8] == runs[:8]  # they change nothing before them
