"""Acceptance from simulated requests with a known truth: identities, clusters, gains, decay."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.analysis.acceptance import acceptance, from_histogram
from backend.analysis.counted import counted_acceptance
from backend.analysis.gains import decay, figures_of, gains
from backend.analysis.prompts import cell_counts
from backend.analysis.summary import summarise
from backend.simulate import simulate
from backend.truth import Truth
from tests.analysis.frames import tables

TRUTH = Truth(depths=(0, 1, 2, 3, 7), blocks=2, prompts=30, max_tokens=100, run_sd=0.02, block_sd=0.02)


@pytest.fixture(scope="module")
def data() -> dict[str, pd.DataFrame]:
    return tables(simulate(TRUTH))


def test_length_is_one_plus_the_sum_of_survival(data: dict[str, pd.DataFrame]) -> None:
    for a in acceptance(data["request"], data["step"], data["run_cell"], draws=200):
        assert a.acceptance_length.value == pytest.approx(1 + sum(p.survival.value or 0 for p in a.positions))
        chained = 1.0
        for p in a.positions:
            chained *= p.conditional.value or 0
            assert p.survival.value == pytest.approx(chained)
            assert p.survival.value == p.per_drafted.value  # nothing was trimmed
        assert a.overshoot_tokens is not None
        assert 0 <= a.overshoot_tokens <= a.overshoot_bound_tokens
        assert a.flags == ()
        json.dumps(a.to_dict(), allow_nan=False)


def test_n_counts_prompts_and_not_requests(data: dict[str, pd.DataFrame]) -> None:
    deep = acceptance(data["request"], data["step"], data["run_cell"], draws=200)[-1]
    assert deep.n_requests == 60  # 30 prompts in 2 blocks
    assert deep.acceptance.n == 30


def test_repeats_of_greedy_prompts_do_not_narrow_the_interval(data: dict[str, pd.DataFrame]) -> None:
    two = acceptance(data["request"], data["step"], data["run_cell"], draws=500)[-1]
    first = data["run_cell"][data["run_cell"]["block"] == 0]
    one = acceptance(data["request"], data["step"], first, draws=500)[-1]
    assert one.acceptance.to_dict() == two.acceptance.to_dict()


def test_counters_give_the_same_points(data: dict[str, pd.DataFrame]) -> None:
    from_requests = acceptance(data["request"], data["step"], data["run_cell"], draws=50)
    from_counters = counted_acceptance(data["run_cell"], data["counter"])
    for a, b in zip(from_requests, from_counters, strict=True):
        assert (a.k, a.acceptance.value) == (b.k, b.acceptance.value)
        assert a.acceptance_length.value == b.acceptance_length.value
        assert [p.survival.value for p in a.positions] == pytest.approx([p.survival.value for p in b.positions])
        assert b.acceptance_length.has_interval is False


def test_gain_is_own_rate_plus_shallow_changes(data: dict[str, pd.DataFrame]) -> None:
    figures = figures_of(cell_counts(data["request"], data["step"], data["run_cell"])[0], draws=500)
    found = {g.k: g for g in gains(figures)}
    assert set(found) == {1, 2, 3}  # 6 was not measured
    third = found[3]
    assert third.acceptance_length.value == pytest.approx(
        (third.own_rate.value or 0) + sum(e.value or 0 for e in third.shallow.values())
    )
    assert third.tokens_per_step.low is not None
    assert third.tokens_per_step.low < (third.tokens_per_step.value or 0) < (third.tokens_per_step.high or 0)
    assert all(g.flags == () for g in found.values())
    json.dumps(third.to_dict(), allow_nan=False)


def test_decay_of_a_geometric_truth(data: dict[str, pd.DataFrame]) -> None:
    figures = figures_of(cell_counts(data["request"], data["step"], data["run_cell"])[0], draws=500)
    d = decay({i: figures[7].survival[i] for i in range(4)})
    assert d.ratio.low is not None
    assert d.ratio.low < 0.62 < (d.ratio.high or 0)
    assert list(d.beyond) == [4, 5]
    assert decay({0: figures[7].survival[0]}).ratio.reason == "a decay needs two positions with accepted drafts"


def test_per_step_data_missing_says_so(data: dict[str, pd.DataFrame]) -> None:
    a = acceptance(data["request"], None, data["run_cell"], draws=50)[-1]
    assert a.positions[0].survival.reason == "not recorded for every request"
    assert a.acceptance_length.value is not None


def test_summary_has_a_row_per_depth(data: dict[str, pd.DataFrame]) -> None:
    rows = summarise(data["run_cell"], requests=data["request"], steps=data["step"], draws=200)
    assert [(r.k, r.n_runs) for r in rows] == [(0, 2), (1, 2), (2, 2), (3, 2), (7, 2)]  # anchors are not counted
    deep = rows[-1]
    assert len(deep.acceptance) == 7
    assert deep.power_w.value == pytest.approx(44 + 7 * 0.83, abs=0.3)
    assert deep.decode_tok_s.value is not None
    assert deep.tokens_per_joule.value == pytest.approx(deep.decode_tok_s.value / (deep.power_w.value or 1), rel=1e-3)
    assert deep.flags == ()


def test_summary_lists_excluded_depths_and_flags(data: dict[str, pd.DataFrame]) -> None:
    frame = data["run_cell"].assign(valid=lambda f: f["k"] != 3)
    run_id = frame.loc[frame["k"] == 7, "run_id"].iloc[0]
    findings = pd.DataFrame(
        [
            {"sweep": "s", "run_id": run_id, "cell_id": "", "code": "client-starved", "severity": "warning"},
            {"sweep": "s", "run_id": "other", "cell_id": "", "code": "spread", "severity": "warning"},
            {"sweep": "s", "run_id": "", "cell_id": "", "code": "note", "severity": "info"},
        ]
    )
    rows = {r.k: r for r in summarise(frame, requests=data["request"], steps=data["step"], draws=50, findings=findings)}
    assert rows[3].n_runs == 0
    assert rows[3].decode_tok_s.value is None
    assert "no-valid-run" in rows[3].flags
    assert rows[7].flags == ("client-starved",)
    assert rows[1].flags == ()


@settings(deadline=None)
@given(st.lists(st.integers(0, 500), min_size=2, max_size=9).filter(lambda h: sum(h) > 0))
def test_histogram_identities(histogram: list[int]) -> None:
    k = len(histogram) - 1
    a = from_histogram(k, histogram)
    rates = [p.survival.value or 0 for p in a.positions]
    assert a.acceptance_length.value == pytest.approx(1 + sum(rates))
    assert a.acceptance.value == pytest.approx(sum(rates) / k)
    assert (np.diff(rates) <= 1e-12).all()
    assert a.flags == ()
