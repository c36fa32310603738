"""Rows that no journal holds: the drafted steps of a request, with the hash of the tokens before each; its stages."""

from __future__ import annotations

from dataclasses import astuple, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.derived import StageTime, stage_columns, steps_of
from backend.errors import StoreError
from backend.measure.observe import Slot, unanswered
from backend.measure.workload import Prompt
from backend.records import Request, StageTimes, token_hash

EMPTY = unanswered(Slot("s:r", "s:c", "measure", 0), Prompt("p", None, "x"), 0.0, "none")


def request(accepted: list[int], tokens: tuple[int, ...], undrafted: int = 0) -> Request:
    return replace(
        EMPTY,
        error=None,
        token_ids=tokens,
        steps=len(accepted) + undrafted,
        drafted_steps=len(accepted),
        step_drafted=(7,) * len(accepted),
        step_accepted=tuple(accepted),
    )


@given(st.lists(st.integers(0, 7), max_size=20), st.integers(0, 4), st.data())
def test_hashes_grow_with_the_prefix(accepted: list[int], overshoot: int, data: st.DataObject) -> None:
    """Equal to hashing each whole prefix, also where the last step's accepted tokens were cut by EOS."""
    total = max(1, 1 + sum(a + 1 for a in accepted) - overshoot)
    tokens = tuple(data.draw(st.lists(st.integers(0, 10**5), min_size=total, max_size=total)))
    start = 1
    for step, count in zip(steps_of(request(accepted, tokens)), accepted, strict=True):
        assert step.start_token_index == start
        assert step.prefix_hash == token_hash("p", tokens[:start])
        start += count + 1


def test_undrafted_steps_in_between_leave_starts_unknown() -> None:
    steps = list(steps_of(request([1, 0], (1, 2, 3, 4, 5), undrafted=1)))
    assert [(step.start_token_index, step.prefix_hash, step.accepted_tokens) for step in steps] == [
        (None, None, 1),
        (None, None, 0),
    ]


def test_nothing_drafted_has_no_steps() -> None:
    assert list(steps_of(EMPTY)) == []


@st.composite
def stage_times(draw: st.DrawFn) -> StageTimes:
    """A request's stages: none ran in some steps, some never ran, and there may be no step at all."""
    request_index, rank, width = draw(st.integers(0, 9)), draw(st.integers(0, 3)), draw(st.integers(0, 4))
    step = st.tuples(*[st.none() | st.floats(0, 1e6)] * width)
    return StageTimes(
        "s:r",
        "s:c",
        f"s:r:{request_index}",
        request_index,
        rank,
        "perf_counter",
        False,
        draw(st.integers(0, 1)),
        tuple(draw(st.lists(st.sampled_from(["draft_forward", "verify_forward"]), min_size=width, max_size=width))),
        tuple(draw(st.lists(st.integers(-1, 7), min_size=width, max_size=width))),
        tuple(draw(st.lists(step, max_size=4))),
    )


@given(st.lists(stage_times(), min_size=1, max_size=4))
def test_stages_are_a_row_each(measured: list[StageTimes]) -> None:
    """As read off one by one."""
    columns = stage_columns(measured)
    rows = zip(*(columns[field.name].to_pylist() for field in fields(StageTime)), strict=True)
    assert list(rows) == [
        astuple(
            StageTime(
                times.run_id,
                times.cell_id,
                times.request_id,
                times.rank,
                times.request_index,
                times.first_step + index,
                times.stages[column],
                times.positions[column],
                duration_us * 1e-6,
                times.source,
            )
        )
        for times in measured
        for index, step in enumerate(times.durations_us)
        for column, duration_us in enumerate(step)
        if duration_us is not None
    ]


@pytest.mark.parametrize("part", ["positions", "durations_us"])
def test_stages_that_do_not_match_are_refused(part: str) -> None:
    times = StageTimes("s:r", "s:c", "s:r:0", 0, 0, "perf_counter", False, 0, ("draft_forward",), (0,), ((1.0,),))
    with pytest.raises(StoreError, match="s:r:0: stages, positions and durations_us differ in length"):
        stage_columns(
            [replace(times, **{part: getattr(times, part)[:0] if part == "positions" else ((1.0,), (1.0, 2.0))})]
        )
