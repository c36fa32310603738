"""The views against small sets computed by hand; every formula is the design's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from store_samples import CELL, SWEEP, blank, cell, drafted, fill, open_store, reported, request, run, sweep

from backend.records import Counter, PowerSample, Record
from backend.store import queries
from backend.store.database import EstimateRow, Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path) as store:
        fill(store, sweep(), cell())
        yield store


def rows(store: Store, view: str) -> list[dict[str, Any]]:
    """The rows of a view, missing as None."""
    with store.reading() as con:
        cursor = con.execute(f"SELECT * FROM {view} ORDER BY ALL")
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def only(store: Store, view: str = "run_cell") -> dict[str, Any]:
    (row,) = rows(store, view)
    return row


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


# -- above concurrency 1 ----------------------------------------------------------------------------------------------
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


# -- power ------------------------------------------------------------------------------------------------------------
def _power(node: str, at: float, watts: float | None, scope: str = "gpu", **given: Any) -> PowerSample:
    return blank(PowerSample, run_id="s:a", node=node, t_unix_s=at, power_w=watts, scope=scope, source="nvml", **given)


def _timed(index: int, begin: float) -> Record:
    return drafted("a", index, 1, [1], decode_s=0.1, started_unix_s=begin, client_total_s=1.0)


def test_power_is_the_mean_over_measure_summed_over_nodes(store: Store) -> None:
    """Samples before and after the MEASURE requests do not count (loading, INSTRUMENT)."""
    fill(
        store,
        run("a", 1), _timed(0, 100.0), _timed(1, 102.0),
        _power("n1", 99.0, 900.0), _power("n1", 100.5, 10.0), _power("n1", 102.5, 20.0), _power("n1", 103.5, 900.0),
        _power("n2", 101.0, 5.0), _power("n2", 102.0, None),
    )  # fmt: skip
    row = only(store)
    assert (row["power_w"], row["power_scope"]) == (20.0, "gpu")
    assert row["tokens_per_joule"] == pytest.approx(row["decode_tok_s"] / 20)


def test_a_node_without_a_reading_makes_power_missing(store: Store) -> None:
    fill(store, run("a", 1), _timed(0, 100.0), _power("n1", 100.5, 10.0), _power("n2", 100.5, None))
    assert only(store)["power_w"] is None


def test_scopes_are_never_added(store: Store) -> None:
    fill(
        store,
        run("a", 1), _timed(0, 100.0),
        _power("n1", 100.5, 10.0), _power("n2", 100.5, 10.0),
        _power("n1", 100.5, 30.0, "soc"), _power("n2", 100.5, 30.0, "soc"),
        _power("n1", 100.5, 90.0, "wall"),
    )  # fmt: skip
    row = only(store)
    assert (row["power_w"], row["power_scope"]) == (60.0, "soc")  # wall was read on one node only


def test_runs_with_other_scopes_are_not_averaged(store: Store) -> None:
    fill(
        store,
        run("a", 1),
        _timed(0, 100.0),
        _power("n1", 100.5, 10.0),
        run("b", 1),
        reported("b", "power_w", 50.0),
        reported("b", "decode_tok_s", 10.0),
    )
    row = only(store, "k_summary")
    assert (row["n_runs"], row["power_w"], row["power_scope"], row["tokens_per_joule"]) == (2, None, None, None)
    assert row["decode_tok_s"] == pytest.approx((20 + 10) / 2)


# -- reported values --------------------------------------------------------------------------------------------------
def test_reported_values_fill_where_there_are_no_requests(store: Store) -> None:
    fill(
        store,
        run("a", 2),
        reported("a", "decode_tok_s", 20.0),
        reported("a", "tokens_per_step", 2.0),
        reported("a", "tokens_per_joule", 0.5),
        reported("a", "survival_0", 0.6),
        reported("a", "survival_1", 0.3),
    )
    row = only(store)
    assert (row["cycle_ms"], row["tokens_per_joule"], row["power_w"]) == (100.0, 0.5, None)
    assert (row["n_requests"], row["acceptance_length"], row["acceptance"]) == (None, None, None)
    found = rows(store, "acceptance_by_position")
    assert [(r["position"], r["survival"], r["conditional"], r["per_drafted"]) for r in found] == [
        (0, 0.6, 0.6, None),
        (1, 0.3, 0.5, None),
    ]
    fill(store, drafted("a", 0, 2, [2, 1], decode_s=0.1))  # once requests are there, they count
    row = only(store)
    assert (row["decode_tok_s"], row["tokens_per_joule"]) == (pytest.approx(50), None)
    assert [r["accepted"] for r in rows(store, "acceptance_by_position")] == [2, 1]


def test_a_reported_cycle_goes_before_a_derived_one_and_needs_concurrency_1(store: Store) -> None:
    given = [
        reported("a", name, value)
        for name, value in (("decode_tok_s", 20.0), ("tokens_per_step", 2.0), ("cycle_ms", 99.0), ("power_w", 40.0))
    ]
    fill(store, run("a", 2), *given)
    row = only(store)
    assert (row["cycle_ms"], row["tokens_per_joule"], row["power_scope"]) == (99.0, 0.5, "reported")
    fill(store, cell(concurrency=4))
    assert only(store)["cycle_ms"] is None


# -- summaries --------------------------------------------------------------------------------------------------------
def test_summary_is_the_mean_over_valid_arms(store: Store) -> None:
    """Anchors, failed, excluded and unfinished runs stay outside; the mean is over runs, not over tokens."""
    fill(
        store,
        run("a", 0), request("a", 0, output_tokens=11, decode_s=1.0, steps=10),
        run("b", 0), request("b", 0, output_tokens=41, decode_s=2.0, steps=40),
        *[row for name, given in (
            ("anchor", {"role": "anchor"}), ("failed", {"status": "failed"}), ("running", {"status": "running"}),
            ("interrupted", {"status": "interrupted"}), ("excluded", {"valid": False, "exclusion_reason": "traffic"}),
        ) for row in (run(name, 0, **given), request(name, 0, output_tokens=1001, decode_s=1.0, steps=1000))],
    )  # fmt: skip
    row = only(store, "k_summary")
    assert (row["n_runs"], row["n_requests"], row["decode_tok_s"]) == (2, 2, 15.0)
    assert len(rows(store, "run_cell")) == 7


def test_acceptance_by_position_has_both_denominators(store: Store) -> None:
    """sglang#33518: 43 verifies of 5 drafts, accepted histogram [11, 14, 11, 4, 0, 3]; and trimmed drafts."""
    accepted = [count for count, times in enumerate([11, 14, 11, 4, 0, 3]) for _ in range(times)]
    fill(store, run("a", 5), drafted("a", 0, 5, accepted))
    found = rows(store, "acceptance_by_position")
    assert [round(row["survival"], 3) for row in found] == [0.744, 0.419, 0.163, 0.070, 0.070]
    assert [row["accepted"] for row in found] == [32, 18, 7, 3, 3]
    assert [round(row["conditional"], 4) for row in found] == [
        round(x, 4) for x in (32 / 43, 18 / 32, 7 / 18, 3 / 7, 1)
    ]
    assert all(row["survival"] == row["per_drafted"] for row in found)
    summary = only(store, "k_summary")
    assert summary["acceptance_length"] == pytest.approx(2.4651, abs=5e-5)
    assert summary["acceptance_length"] == pytest.approx(1 + math.fsum(row["survival"] for row in found))
    assert summary["acceptance"] == pytest.approx(0.2930, abs=5e-5)


def test_trimmed_drafts_have_their_own_denominator(store: Store) -> None:
    fill(
        store,
        run("a", 2),
        request("a", 0, step_drafted=(2, 2, 1, 0), step_accepted=(2, 1, 1, 0)),
        run("anchor", 2, role="anchor"),
        request("anchor", 0, step_drafted=(2,), step_accepted=(2,)),
    )
    found = rows(store, "acceptance_by_position")
    assert [(r["drafted_steps"], r["drafted_at_position"], r["accepted"]) for r in found] == [(3, 3, 3), (3, 2, 1)]
    assert [(r["survival"], r["per_drafted"]) for r in found] == [(1.0, 1.0), (pytest.approx(1 / 3), 0.5)]


def test_cycle_fit_is_a_row_a_window(store: Store) -> None:
    def row(quantity: str, window: tuple[int, ...] | None, value: float | None, method: str) -> EstimateRow:
        reason = None if value else "no residual degrees of freedom"
        return EstimateRow(CELL, quantity, None, window, value, None, None, None, method, 3, "ms", reason)

    fill(store, run("a", 0))
    store.replace_estimates(SWEEP, [
        row("t_draft_ms", (0, 1, 2), 29.56, "joint"), row("t_marginal_ms", (0, 1, 2), -1.22, "joint"),
        row("residual_ms", (0, 1, 2), None, "chi-square"),
        row("t_verify_base_ms", (0, 1, 2, 3), 62.27, "joint"), row("residual_ms", (0, 1, 2, 3), 4.0, "chi-square"),
        row("t_draft_ms", (0, 1, 2, 3), 17.81, "joint"), row("t_marginal_ms", (0, 1, 2, 3), 5.0, "joint"),
        row("t_draft_ms", (0, 1, 2, 3), 18.0, "per block"), row("t_marginal_ms", (0, 1, 2, 3), 6.0, "per block"),
        row("decode_tok_s", None, 20.0, "joint"),
    ])  # fmt: skip
    with store.reading() as con:
        found = queries.cycle_fit(con, SWEEP)
    shown = [(list(r.window_k), r.method, r.t_draft_ms, r.t_marginal_ms) for r in found.itertuples()]
    assert shown == [
        ([0, 1, 2], "joint", 29.56, -1.22),
        ([0, 1, 2, 3], "joint", 17.81, 5.0),
        ([0, 1, 2, 3], "per block", 18.0, 6.0),
    ]
    assert found["t_verify_base_ms"].tolist()[1:] == [62.27, 62.27]
    assert found["t_verify_base_ms"].isna().tolist() == [True, False, False]
    assert found["residual_ms"].isna().tolist() == [True, False, False]
    assert set(found["source"]) == {"measured"}
