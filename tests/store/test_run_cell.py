"""View `run_cell` against small sets computed by hand; every formula is the design's."""

from __future__ import annotations

from typing import Any

import pytest

from backend.records import Counter
from backend.store.database import Store
from tests.store.store_samples import (
    CELL,
    blank,
    cell,
    drafted,
    fill,
    only,
    request,
    rows,
    run,
)


def test_throughput_and_cycle_are_ratios_of_sums(store: Store) -> None:
    """Two requests of unequal length: 6 + 1 tokens after the first in 0.4 + 0.3 s, 2 + 1 steps."""
    fill(
        store,
        run("a", 3, block=0, order_index=5),
        drafted("a", 0, 3, [3, 1], decode_s=0.4, ttft_s=0.1),
        drafted("a", 1, 3, [0], decode_s=0.3, ttft_s=0.3),
    )
    row = only(store)
    assert (row["n_requests"], row["n_errors"], row["tokens_after_first"], row["steps"]) == (2, 0, 7, 3)
    assert row["decode_tok_s"] == pytest.approx(7 / 0.7)  # the mean of the two rates would be 9.17
    assert row["cycle_ms"] == pytest.approx(1e3 * 0.7 / 3)
    assert row["tokens_per_step"] == pytest.approx(7 / 3)
    assert row["acceptance_length"] == pytest.approx(1 + 4 / 3)
    assert row["acceptance"] == pytest.approx(4 / 9)
    assert row["overshoot_tokens"] == 0
    assert row["ttft_s"] == pytest.approx(0.2)
    assert row["decode_tok_s"] == pytest.approx(1e3 * row["tokens_per_step"] / row["cycle_ms"])
    assert [row[name] for name in ("source", "k", "block", "order_index", "concurrency", "workload", "valid")] == [
        "measured",
        3,
        0,
        5,
        1,
        "w",
        True,
    ]
    assert [row[name] for name in ("power_w", "power_scope", "tokens_per_joule", "context_tokens")] == [None] * 4


def test_tokens_after_eos_are_overshoot_and_no_throughput(store: Store) -> None:
    """vllm#56101: a step accepts [d1, d2, EOS, d4, d5]; 3 tokens are emitted, 5 were accepted."""
    fill(store, run("a", 5), drafted("a", 0, 5, [5], output_tokens=1 + 3, decode_s=0.1))
    row = only(store)
    assert (row["accepted_tokens"], row["acceptance_length"], row["tokens_after_first"]) == (5, 6.0, 3)
    assert row["overshoot_tokens"] == 1 + 5 - 3
    assert row["decode_tok_s"] == pytest.approx(30)
    assert row["tokens_per_step"] == 3.0


@pytest.mark.parametrize("spec_fields", [None, 0], ids=["engine says nothing", "engine says 0"])
def test_without_speculation_the_rate_is_missing_not_zero(store: Store, spec_fields: int | None) -> None:
    given = dict.fromkeys(("drafted_steps", "drafted_tokens", "accepted_tokens"), spec_fields)
    fill(store, run("a", 0), request("a", 0, output_tokens=11, decode_s=0.5, steps=10, **given))
    row = only(store)
    assert (row["acceptance_length"], row["acceptance"], row["overshoot_tokens"]) == (1.0, None, 0)
    assert (row["tokens_per_step"], row["cycle_ms"], row["decode_tok_s"]) == (1.0, 50.0, 20.0)
    assert rows(store, "acceptance_by_position") == []


def test_undrafted_steps_part_acceptance_length_from_tokens_per_step(store: Store) -> None:
    """n-gram: 10 steps, 4 of them with a draft of 3, 8 accepted: 18 tokens."""
    fill(
        store,
        run("a", 3),
        request(
            "a",
            0,
            output_tokens=19,
            decode_s=1.0,
            steps=10,
            drafted_steps=4,
            drafted_tokens=12,
            accepted_tokens=8,
            step_drafted=(3,) * 4,
            step_accepted=(3, 3, 2, 0),
        ),
    )
    row = only(store)
    assert (row["acceptance_length"], row["tokens_per_step"], row["overshoot_tokens"]) == (3.0, 1.8, 0)
    assert row["cycle_ms"] == pytest.approx(100)
    assert [found["drafted_steps"] for found in rows(store, "acceptance_by_position")] == [4, 4, 4]


def test_failed_requests_are_counted_and_summed_nowhere(store: Store) -> None:
    fill(
        store,
        run("a", 1),
        drafted("a", 0, 1, [1, 0], decode_s=0.2),
        drafted("a", 1, 1, [1, 1], decode_s=9.0, error="connection lost"),
        drafted("a", 2, 1, [1, 1], decode_s=9.0, phase="warmup"),
        drafted("a", 3, 1, [1, 1], decode_s=9.0, phase="instrument"),
    )
    row = only(store)
    assert (row["n_requests"], row["n_errors"], row["decode_s"]) == (1, 1, 0.2)
    assert row["decode_tok_s"] == pytest.approx(15)
    assert [found["accepted"] for found in rows(store, "acceptance_by_position")] == [1]


def test_a_run_of_failed_requests_has_a_row_and_no_figures(store: Store) -> None:
    fill(store, run("a", 0), request("a", 0, error="HTTP 500"))
    row = only(store)
    assert (row["n_requests"], row["n_errors"]) == (0, 1)
    assert [row[name] for name in ("decode_tok_s", "cycle_ms", "tokens_per_step", "acceptance_length")] == [None] * 4


@pytest.mark.parametrize(
    ("missing", "lost"),
    [
        ("steps", {"steps", "tokens_per_step", "cycle_ms", "overshoot_tokens"}),
        ("decode_s", {"decode_s", "decode_tok_s", "cycle_ms"}),
        ("output_tokens", {"tokens_after_first", "decode_tok_s", "tokens_per_step", "overshoot_tokens"}),
        ("drafted_steps", {"drafted_steps", "acceptance_length"}),
        ("drafted_tokens", {"drafted_tokens", "acceptance"}),
        ("accepted_tokens", {"accepted_tokens", "acceptance", "acceptance_length", "overshoot_tokens"}),
        ("ttft_s", {"ttft_s"}),
    ],
)
def test_a_figure_that_one_request_lacks_is_missing(store: Store, missing: str, lost: set[str]) -> None:
    """A sum over the others would be a sum over another set of prompts."""
    both = {"ttft_s": 0.1}
    fill(
        store,
        run("a", 1),
        drafted("a", 0, 1, [1, 0], **both),
        drafted("a", 1, 1, [1, 0], **{**both, missing: None}),
    )
    row = only(store)
    never = {"power_w", "power_scope", "tokens_per_joule", "context_tokens", "block", "order_index"}
    assert {name for name, value in row.items() if value is None} - never == lost


def test_a_request_of_one_token_has_no_decoding(store: Store) -> None:
    fill(store, run("a", 1), drafted("a", 0, 1, [1, 0], decode_s=0.3), request("a", 1, output_tokens=1))
    row = only(store)
    assert (row["n_requests"], row["tokens_after_first"]) == (2, 3)
    assert row["decode_tok_s"] == pytest.approx(10)
    assert row["cycle_ms"] == pytest.approx(150)


def _busy(labels: str, before: float | None, after: float, **given: Any) -> Counter:
    values = {"run_id": "s:a", "cell_id": CELL, "phase": "measure", "span": "busy", "before_unix_s": 10.0}
    name = "vllm:generation_tokens_total"
    return blank(
        Counter, **{**values, "after_unix_s": 14.0, "name": name, **given}, labels=labels, before=before, after=after
    )


@pytest.mark.parametrize(
    ("requests", "counters", "expected"),
    [
        (20, [_busy("e0", 100, 300), _busy("e1", None, 200)], 100.0),  # engines are summed, not maximised
        (19, [_busy("e0", 100, 300)], None),  # fewer than 10 x C requests
        (20, [_busy("e0", 100, 300), _busy("e1", 300, 200)], None),  # a counter was reset
        (20, [_busy("e0", 100, 300, span="phase")], None),
        (20, [_busy("e0", 100, 300, name="vllm:prompt_tokens_total")], None),
        (20, [_busy("e0", 100, 300, phase="instrument")], None),
        (20, [], None),
    ],
)
def test_above_concurrency_1_throughput_is_the_busy_counters(
    store: Store, requests: int, counters: list[Counter], expected: float | None
) -> None:
    fill(store, cell(concurrency=2), run("a", 1), *[drafted("a", i, 1, [1]) for i in range(requests)], *counters)
    row = only(store)
    assert row["decode_tok_s"] == expected
    assert row["cycle_ms"] is None
    assert row["tokens_per_step"] == 2.0
