"""steps_of: rows of a request's drafted steps, with the hash of the tokens emitted before each."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from backend.derived import steps_of
from backend.measure.observe import Slot, unanswered
from backend.measure.workload import Prompt
from backend.records import Request, token_hash

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
