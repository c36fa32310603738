"""Comparing depths: layout, Holm, verdicts, recommendation, break-even, regret, categories, trend, export, sentence."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from backend.analysis.categories import category_run_cell, compare_categories
from backend.analysis.compare import blocks_needed, compare, compare_cell
from backend.analysis.export import per_batch_size, static_depth
from backend.analysis.layout import fit_layout, layout_of
from backend.analysis.sentence import answer_sentence
from backend.analysis.simultaneous import dunnett_quantile, holm, loss_bounds
from backend.analysis.trend import trend
from backend.simulate import simulate
from backend.truth import Truth
from tests.analysis.frames import runs, tables

RATES = {0: 16.06, 1: 18.43, 2: 24.05, 3: 21.36, 6: 14.92}


def noisy(scatter: float, blocks: int, rates: dict[int, float] = RATES, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return runs({k: list(r * np.exp(scatter * rng.standard_normal(blocks))) for k, r in rates.items()})


def test_layout_keeps_blocks_out_of_the_differences() -> None:
    plain = {0: [10.0, 10.1, 9.9], 2: [12.0, 12.3, 11.8]}
    slow = {k: [r * f for r, f in zip(v, (1.0, 0.7, 1.3), strict=True)] for k, v in plain.items()}
    a, b = fit_layout(runs(plain)), fit_layout(runs(slow))
    assert a is not None
    assert b is not None
    assert b.blocks == 3
    assert a.log_means[1] - a.log_means[0] == pytest.approx(b.log_means[1] - b.log_means[0])
    assert a.variance == pytest.approx(b.variance)
    assert a.df == 2


def test_unequal_scatter_keeps_each_depths_own_variance() -> None:
    rng = np.random.default_rng(3)
    k, block = np.tile(np.arange(6.0), 10), np.repeat(np.arange(10.0), 6)
    y = rng.standard_normal(60) * np.array([0.01, 0.01, 0.02, 0.02, 0.04, 0.10])[k.astype(int)]
    layout = layout_of(k, y, block)
    assert "unequal-scatter" in layout.flags
    assert layout.df == 9
    assert layout.covariance[5, 5] > 20 * layout.covariance[1, 1]
    assert layout_of(k, rng.standard_normal(60), block).flags == ()


def test_dunnett_against_tables_and_simulation() -> None:
    assert dunnett_quantile(0.95, 1, 14) == pytest.approx(stats.t.ppf(0.975, 14), abs=1e-3)
    assert dunnett_quantile(0.95, 2, 5) == pytest.approx(3.03, abs=0.01)  # Dunnett 1964, two-sided
    assert dunnett_quantile(0.95, 5, 10) == pytest.approx(2.99, abs=0.01)
    assert dunnett_quantile(0.95, 9, 20) == pytest.approx(2.95, abs=0.01)
    rng = np.random.default_rng(0)
    z, scale = rng.standard_normal((400_000, 8)), np.sqrt(rng.chisquare(14, 400_000) / 14)
    t = np.abs(z[:, 1:] - z[:, :1]).max(axis=1) / np.sqrt(2) / scale
    assert dunnett_quantile(0.95, 7, 14) == pytest.approx(np.quantile(t, 0.95), abs=0.015)


def test_loss_bounds_at_their_edges() -> None:
    means = np.log(np.array([1.0, 2.0, 2.0]))
    low, high = loss_bounds(means, np.eye(3) * 1e-8, 10, 0.95)
    assert low[0] == pytest.approx(np.log(2), abs=1e-3)
    assert (low[1], low[2]) == (0.0, 0.0)
    assert 0 < high[1] < 1e-3
    alone_low, alone_high = loss_bounds(np.array([0.0, 5.0]), np.eye(2) * 1e-8, 10, 0.95)
    assert (alone_low[1], alone_high[1]) == (0.0, 0.0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
@example([1.0] * 8 + [0.005, 0.005])  # 10 x 0.005 is the level itself
def test_holm_is_monotone_and_its_levels_agree_with_its_decisions(p: list[float]) -> None:
    raw = np.array(p)
    adjusted, levels = holm(raw, 0.95)
    assert (adjusted >= raw - 1e-15).all()
    assert (adjusted <= 1).all()
    assert (np.diff(adjusted[np.argsort(raw, kind="stable")]) >= 0).all()
    for value, adj, level in zip(raw, adjusted, levels, strict=True):
        assert (adj < 0.05) == (value < 1 - level) or abs(value - (1 - level)) < 1e-12


def test_holm_by_hand() -> None:
    adjusted, levels = holm(np.array([0.04, 0.001, 0.03]), 0.95)
    assert adjusted == pytest.approx([0.06, 0.003, 0.06])
    assert levels == pytest.approx([0.975, 1 - 0.05 / 3, 0.975])


def test_pairwise_intervals_exclude_zero_exactly_when_holm_rejects() -> None:
    c = compare_cell(noisy(0.05, 4))
    assert len(c.pairs) == 10
    for pair in c.pairs:
        assert pair.p_holm is not None
        e = pair.change_percent
        assert e.low is not None
        assert e.high is not None
        assert (pair.p_holm < 0.05) == (e.low > 0 or e.high < 0)


def test_little_scatter_resolves_to_the_best_depth() -> None:
    c = compare_cell(noisy(0.004, 5), {"recipe": 3})
    assert c.recommendation is not None
    assert (c.recommendation.k, c.recommendation.resolved) == (2, True)
    assert {d.k: d.verdict for d in c.depths} == {0: "worse", 1: "worse", 2: "within", 3: "worse", 6: "worse"}
    assert c.depths[2].p_best is not None
    assert c.depths[2].p_best > 0.999
    regret = c.regrets[0].loss_percent
    assert regret.low is not None
    assert regret.high is not None
    assert regret.low < 11.2 < regret.high
    assert c.break_even is not None
    assert (c.break_even.k, c.break_even.next_loss) == (3, 6)
    assert c.break_even.shown_better == (1, 2, 3)
    assert c.break_even.shown_worse == (6,)


def test_the_smallest_depth_within_the_margin_is_advised() -> None:
    c = compare_cell(noisy(0.001, 6, {0: 16.0, 2: 23.95, 3: 24.0, 4: 20.0}))
    assert c.best_k == 3
    assert c.recommendation is not None
    assert (c.recommendation.k, c.recommendation.resolved) == (2, True)
    assert "so does K=3, and the smallest is advised" in answer_sentence(c)


def test_much_scatter_is_unresolved_with_the_blocks_it_would_take() -> None:
    frame = noisy(0.10, 3, seed=1)
    c = compare_cell(frame)
    assert c.recommendation is not None
    assert not c.recommendation.resolved
    layout = fit_layout(frame)
    assert layout is not None
    needed = blocks_needed(layout, 0.95, 1.0)
    assert c.recommendation.blocks_needed == needed
    assert needed is not None
    assert needed > 3
    assert f"About {needed} blocks would tell." in answer_sentence(c)


def test_the_same_seed_says_the_same() -> None:
    frame = noisy(0.05, 3)
    assert compare_cell(frame, seed=7) == compare_cell(frame, seed=7)


def test_identical_runs_have_no_scatter_to_judge_by() -> None:
    c = compare_cell(runs({0: [10.0] * 3, 2: [12.0] * 3}))
    assert c.depths[0].loss_percent.reason == "the runs of a depth do not differ at all"
    assert c.depths[0].p_best is None


def test_one_depth_and_no_throughput() -> None:
    (only,) = compare(runs({2: [10.0, 11.0]}))
    assert only.recommendation is not None
    assert not only.recommendation.resolved
    (none,) = compare(runs({0: [1.0], 2: [1.0]}).assign(decode_tok_s=np.nan))
    assert none.reason == "no decode throughput was measured"
    assert answer_sentence(none) == "No answer yet: no decode throughput was measured."
    assert static_depth(none) is None


def test_never_beating_k0_advises_no_speculation() -> None:
    c = compare_cell(noisy(0.004, 4, {0: 20.0, 1: 18.0, 2: 17.0}))
    assert c.break_even is not None
    assert (c.break_even.k, c.break_even.estimate.value) == (None, 0.0)
    words = answer_sentence(c)
    assert words.startswith("Do not speculate: K=0")
    assert words.endswith("No measured depth beats K=0.")
    exported = static_depth(c)
    assert exported is not None
    assert exported["speculative_config"] is None


def test_json_is_safe() -> None:
    json.dumps(compare_cell(noisy(0.1, 2), {"native": 7}).to_dict(), allow_nan=False)


def test_one_block_reads_well() -> None:
    words = answer_sentence(compare_cell(noisy(0.02, 1), {"production": 2}))
    assert words.startswith("The best measured depth is K=2")
    assert "no interval: one run per K" in words
    assert "In these runs speculation beats K=0 up to K=3; K=6 loses to it." in words


def test_a_flat_curve_does_not_claim_a_break_even() -> None:
    c = compare_cell(noisy(0.02, 3, dict.fromkeys(range(5), 10.0), seed=2))
    assert "is not shown" in answer_sentence(c) or "No measured depth" in answer_sentence(c)


def test_order_covariate_removes_a_straight_drift_from_k_major_runs() -> None:
    frame = runs({k: [r] * 3 for k, r in RATES.items()}).sort_values(["k", "block"])
    frame["order_index"] = np.arange(len(frame))
    frame["decode_tok_s"] *= np.exp(-0.004 * frame["order_index"])
    plain, adjusted = fit_layout(frame.assign(block=None)), fit_layout(frame.assign(block=None), order_covariate=True)
    assert plain is not None
    assert adjusted is not None
    true = np.log(14.92 / 16.06)
    assert adjusted.log_means[-1] - adjusted.log_means[0] == pytest.approx(true, abs=1e-9)
    assert abs(plain.log_means[-1] - plain.log_means[0] - true) > 0.04


def test_categories_are_compared_from_their_own_requests() -> None:
    data = tables(simulate(Truth(blocks=2, prompts=6, max_tokens=40, run_sd=0.01, depths=(0, 1, 3))))
    rows = category_run_cell(data["request"], data["run_cell"])
    assert set(rows) == {"code", "prose"}
    assert len(rows["code"]) == 6  # anchors are out
    one = rows["code"].iloc[0]
    mine = data["request"][(data["request"]["run_id"] == one["run_id"]) & (data["request"]["category"] == "code")]
    assert one["decode_tok_s"] == pytest.approx((mine["output_tokens"] - 1).sum() / mine["decode_s"].sum())
    found = compare_categories(data["request"], data["run_cell"], {"native": 3})
    assert {c.n_runs for group in found.values() for c in group} == {6}
    assert compare_categories(data["request"].assign(category=None), data["run_cell"]) == {}


def test_power_trend_follows_its_test() -> None:
    data = tables(simulate(Truth(prompts=3, max_tokens=30, power_interval_s=0.2)))["run_cell"]
    t = trend(data)
    assert t.monotone == "rises"
    assert t.slope_per_k.low is not None
    assert t.slope_per_k.low < 0.83 < (t.slope_per_k.high or 0)
    assert t.page_p is not None
    assert t.page_p < 0.01
    assert t.words.startswith("power_w rises with K")
    flat = trend(data.assign(power_w=[44.0 + (i * 7 % 5) for i in range(len(data))]))
    assert "is not shown" in flat.words


def test_batch_size_table_is_vllms_and_experimental() -> None:
    def at(concurrency: int, rates: dict[int, float]) -> object:
        return compare_cell(noisy(0.002, 4, rates).assign(concurrency=concurrency))

    exported = per_batch_size([at(8, {0: 5, 2: 9, 4: 8}), at(1, {0: 5, 2: 8, 4: 9}), at(32, {0: 9, 2: 8, 4: 7})])  # type: ignore[list-item]
    assert exported is not None
    assert exported["num_speculative_tokens_per_batch_size"] == [[1, 7, 4], [8, 31, 2], [32, 32, 0]]
    assert exported["num_speculative_tokens"] == 4
    assert str(exported["status"]).startswith("experimental")
    assert per_batch_size([]) is None
