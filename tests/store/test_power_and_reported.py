"""Power and reported values in view `run_cell`: never mixed over scopes, nodes or kinds."""

from __future__ import annotations

from typing import Any

import pytest

from backend.records import PowerSample, Record
from backend.store.database import Store
from tests.store.store_samples import (
    blank,
    cell,
    drafted,
    fill,
    only,
    reported,
    request,
    rows,
    run,
)


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


def test_reported_totals_fill_in_for_what_requests_do_not_tell(store: Store) -> None:
    """Bench results: windows by request, drafts and acceptance as totals of the run, failed requests included."""
    untold = dict.fromkeys(("drafted_steps", "drafted_tokens", "accepted_tokens", "step_drafted", "step_accepted"))
    totals = {"drafted_steps": 2, "drafted_tokens": 6, "accepted_tokens": 5, "survival_0": 1.0, "acceptance": 0.9}
    fill(
        store,
        run("a", 3),
        drafted("a", 0, 3, [3, 1], decode_s=0.2, **untold),
        *[reported("a", quantity, value) for quantity, value in totals.items()],
    )
    row = only(store)
    assert (row["tokens_after_first"], row["steps"], row["drafted_steps"], row["accepted_tokens"]) == (6, 2, 2, 5)
    assert row["acceptance_length"] == 3.5
    assert row["acceptance"] == pytest.approx(5 / 6)  # from the counts, which go before a printed rate
    assert row["overshoot_tokens"] == 2 + 5 - 6
    assert row["decode_tok_s"] == pytest.approx(30)
    assert [(r["position"], r["survival"], r["drafted_steps"]) for r in rows(store, "acceptance_by_position")] == [
        (0, 1.0, None)
    ]
    fill(store, request("a", 1, error="HTTP 500"))  # what it drafted is in the totals, what it emitted is not
    assert (only(store)["overshoot_tokens"], only(store)["n_errors"]) == (None, 1)
    fill(store, drafted("a", 0, 3, [3, 1], decode_s=0.2))
    assert only(store)["accepted_tokens"] == 4  # requests that tell go before totals
