"""The cycle fit: exact truths, blocks, windows, which rows count, and words that follow the tests."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.analysis.cycle_model import fit_cycle, fit_json
from backend.analysis.cycle_window import fit_window
from backend.analysis.linear import aicc, least_squares
from backend.truth import FastSweeps, Truth
from tests.analysis.frames import runs


def sweep(truth: Truth) -> pd.DataFrame:
    return FastSweeps(truth, 1).frame(0)


@settings(deadline=None, max_examples=25)
@given(st.floats(1, 200), st.floats(0, 50), st.floats(0.1, 40), st.integers(1, 4))
def test_a_line_without_scatter_comes_back(base: float, draft: float, slope: float, blocks: int) -> None:
    truth = Truth(t_verify_base_ms=base, t_draft_ms=draft, t_marginal_ms=slope, blocks=blocks)
    fit = fit_cycle(sweep(truth))
    assert fit.full is not None
    assert fit.full.t_draft_ms.value == pytest.approx(draft, abs=1e-6)
    assert fit.full.t_marginal_ms.value == pytest.approx(slope, abs=1e-6)
    assert fit.t_verify_base_ms.value == pytest.approx(base)
    assert fit.full.cycle_at(3).value == pytest.approx(base + draft + 3 * slope)


def test_windows_grow_from_two_depths_and_count_runs_with_k0() -> None:
    fit = fit_cycle(sweep(Truth(run_sd_ms=2.0)))
    assert [w.k for w in fit.windows] == [tuple(range(1, m + 1)) for m in range(2, 8)]
    assert [w.n for w in fit.windows] == [3 * (m + 1) for m in range(2, 8)]
    assert [k for k, _, _ in fit.leave_one_out] == list(range(1, 8))


def test_only_finished_valid_arms_count() -> None:
    good = sweep(Truth(run_sd_ms=2.0))
    odd = pd.concat(
        [
            good,
            good.iloc[:3].assign(role="anchor", cycle_ms=900.0),
            good.iloc[:3].assign(status="failed", cycle_ms=900.0),
            good.iloc[:3].assign(valid=False, cycle_ms=900.0),
        ]
    )
    assert fit_cycle(odd).to_dict() == fit_cycle(good).to_dict()


def test_three_complete_blocks_get_a_line_each_and_the_pool_is_beside() -> None:
    frame = sweep(Truth(block_sd=0.05, run_sd_ms=1.0, seed=4))
    window = fit_cycle(frame).full
    assert window is not None
    per_block = [
        least_squares(np.column_stack([np.ones(8), b["k"] > 0, b["k"]]).astype(float), b["cycle_ms"].to_numpy())
        for _, b in frame.groupby("block")
    ]
    assert window.t_marginal_ms.value == pytest.approx(np.mean([f.beta[2] for f in per_block]))
    assert window.t_marginal_ms.n == 3
    assert "Student t over blocks" in window.t_marginal_ms.method
    assert window.pooled_t_marginal_ms.n == 24
    two = fit_cycle(frame[frame["block"] < 2]).full
    assert two is not None
    assert two.t_draft_ms == two.pooled_t_draft_ms


def test_an_incomplete_block_has_no_line_of_its_own() -> None:
    frame = sweep(Truth(run_sd_ms=1.0, blocks=4))
    window = fit_cycle(frame[~((frame["block"] == 0) & (frame["k"] == 5))]).full
    assert window is not None
    assert (window.n, window.t_draft_ms.n) == (31, 3)


def test_joint_fit_by_hand() -> None:
    # K=0: 60; K=1,2,3: 80, 90, 106 -> slope 13, mean 92 at 2; t_draft = 92 - 26 - 60
    window = fit_window(np.array([0.0, 1, 2, 3]), np.array([60.0, 80, 90, 106]), None)
    assert window.t_marginal_ms.value == pytest.approx(13)
    assert window.t_draft_ms.value == pytest.approx(6)
    s = 6.0**0.5  # residuals 1, -2, 1 on one df
    assert window.residual_ms.value == pytest.approx(s)
    half = 12.706204736432095 * s * (1 + 1 / 3 + 4 / 2) ** 0.5  # with the K=0 run's own error
    assert window.t_draft_ms.high == pytest.approx(6 + half)


def test_without_k0_t_draft_is_missing_and_the_slope_is_not() -> None:
    frame = sweep(Truth(run_sd_ms=1.0))
    fit = fit_cycle(frame[frame["k"] > 0])
    assert fit.full is not None
    assert fit.full.t_draft_ms.value is None
    assert "cannot be told apart" in (fit.full.t_draft_ms.reason or "")
    assert fit.full.t_marginal_ms.has_interval


def test_blocks_that_are_depths_are_dropped_with_a_flag() -> None:
    frame = pd.concat([sweep(Truth(run_sd_ms=1.0, blocks=1)), sweep(Truth(run_sd_ms=1.0, blocks=1, seed=1))])
    fit = fit_cycle(frame.assign(block=frame["k"]))
    assert fit.full is not None
    assert "blocks-confounded-with-depth" in fit.full.flags


def test_too_little_data_says_why() -> None:
    frame = sweep(Truth())
    one = fit_cycle(frame[frame["k"] <= 1])
    assert (one.windows, one.reason) == ((), "a line needs two depths above 0, this cell has 1")
    crowded = fit_cycle(frame.assign(concurrency=8, cycle_ms=np.nan))
    assert crowded.reason == "no cycle time was measured (above concurrency 1 there is none)"
    assert fit_json(frame.iloc[:0])["reason"] == "no runs"


def test_cells_are_fitted_apart_lowest_concurrency_first() -> None:
    frame = sweep(Truth(run_sd_ms=1.0))
    both = pd.concat([frame.assign(cell_id="c8", concurrency=8, cycle_ms=np.nan), frame])
    out = json.loads(json.dumps(fit_json(both), allow_nan=False))
    assert [c["cell_id"] for c in out["cells"]] == ["simulated:1xtext:sim", "c8"]
    assert out["windows"] == out["cells"][0]["windows"]


def test_convex_is_said_only_when_the_test_says_so() -> None:
    curved = fit_cycle(sweep(Truth(run_sd_ms=1.0, t_convex_ms=2.0)))
    assert any("convex in K" in w for w in curved.diagnosis)
    assert any("A line does not fit" in w for w in curved.diagnosis)
    assert any("AICc prefers a quadratic" in w for w in curved.diagnosis)
    straight = fit_cycle(sweep(Truth(run_sd_ms=1.0)))
    assert not any("convex" in w or "concave" in w or "does not fit" in w for w in straight.diagnosis)
    bent = fit_cycle(sweep(Truth(run_sd_ms=1.0, t_convex_ms=-1.0)))
    assert any("concave in K" in w for w in bent.diagnosis)


def test_hinge_is_found() -> None:
    frame = sweep(Truth(run_sd_ms=0.5, blocks=5))
    frame["cycle_ms"] += 12.0 * np.maximum(0, frame["k"] - 4)
    tests = fit_cycle(frame).tests
    assert tests is not None
    assert tests.hinge_knot == 4
    assert tests.aicc_hinge is not None
    assert tests.aicc_linear is not None
    assert tests.aicc_quadratic is not None
    assert tests.aicc_hinge < min(tests.aicc_linear, tests.aicc_quadratic)


def test_aicc_needs_n_above_p_plus_1() -> None:
    x = np.column_stack([np.ones(4), np.arange(4.0)])
    assert aicc(least_squares(x, np.array([1.0, 2, 3, 5]))) is None  # p = 3, n = 4
    assert aicc(least_squares(np.vstack([x, [1, 4]]), np.array([1.0, 2, 3, 5, 6]))) is not None


def test_assumed_value_is_tested() -> None:
    fit = fit_cycle(sweep(Truth(run_sd_ms=1.0)), assumed_ms=32.0)
    assert fit.assumed is not None
    assert fit.assumed.p is not None
    assert fit.assumed.p < 0.01
    assert "is below the assumed 32 ms" in fit.assumed.words
    near = fit_cycle(sweep(Truth(run_sd_ms=3.0, seed=2)), assumed_ms=14.9)
    assert near.assumed is not None
    assert "does not contradict" in near.assumed.words


def test_study_interval_is_given_on_request_only() -> None:
    frame = sweep(replace(Truth(), run_sd_ms=2.0))
    assert all(w.study_t_draft_ms is None for w in fit_cycle(frame).windows)
    window = fit_cycle(frame, study=True).full
    assert window is not None
    assert window.study_t_draft_ms is not None
    assert "+/- 2 SE" in window.study_t_draft_ms.method


def test_identical_runs_leave_a_zero_width_interval_and_untestable_curvature() -> None:
    fit = fit_cycle(runs({0: [10.0, 10.0], 1: [8.0, 8.0], 2: [7.0, 7.0], 3: [6.0, 6.0]}))
    assert fit.tests is not None
    assert fit.tests.lack_of_fit.reason == "no residual scatter: the larger model is exact"
