"""Views `k_summary`, `acceptance_by_position`, `cycle_fit` against small sets computed by hand."""

from __future__ import annotations

import math

import pytest

from backend.store import queries
from backend.store.database import EstimateRow, Store
from tests.store.store_samples import (
    CELL,
    SWEEP,
    drafted,
    fill,
    only,
    request,
    rows,
    run,
)


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
