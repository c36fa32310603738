"""What-if: known answers of the study, identities, what is not known and why, and coverage by simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.analysis.estimate import Estimate, point, student_t_log_mean
from backend.analysis.hold_out import hold_out, survival_of
from backend.analysis.whatif import WhatIf, prediction_errors, what_if
from backend.analysis.whatif_report import answer, turns
from backend.analysis.whatif_runs import Change, changed_cycle_ms, fitted_costs, runs_of
from backend.analysis.whatif_search import break_even_hop, fastest, flips
from backend.truth import FastSweeps, Truth
from tests.analysis.coverage import holds
from tests.analysis.frames import published_run_cell

QUIET = Truth(run_sd_ms=0.4, block_sd=0.03, blocks=5)
GIVEN = point(15.88, "ms", "given", method="given", n=None)


FRAME = FastSweeps(replace(QUIET, blocks=3), 1).frame(0)
THREE_BLOCKS = runs_of(FRAME, fitted_costs(FRAME))[1]


def asked(frame: pd.DataFrame, change: Change, **more: object) -> WhatIf:
    return what_if(frame, change, fitted_costs(frame, **more))


def rates(found: WhatIf) -> dict[int, float | None]:
    return {d.k: d.then_tok_s.value for d in found.depths}


def test_the_study_with_its_measured_t_draft_freed_and_no_hop() -> None:
    frame = published_run_cell()
    found = asked(frame, Change(free_draft=True), t_draft_ms=GIVEN)
    assert rates(found)[2] == pytest.approx(2.15 / (89.40 - 15.88) * 1000, abs=0.01)
    assert rates(found)[2] == pytest.approx(29.2, abs=0.05)
    assert rates(found)[0] == pytest.approx(16.06)  # K=0 has no drafter to move
    assert (found.best_now, found.best_then, found.p_best(2)) == (2, 2, None)
    assert all(d.then_tok_s.reason == "one run" for d in found.depths)  # single figures carry no interval
    _, runs = runs_of(frame, found.costs)
    even = break_even_hop(runs, found.change)
    assert (even.value, even.reason) == (pytest.approx(15.88, abs=1e-6), "one run per K")


def test_the_study_s_fit_is_used_where_no_t_draft_is_given() -> None:
    found = asked(published_run_cell(), Change(free_draft=True))
    assert found.costs.source == "the cycle fit"
    assert found.costs.t_draft_ms.value == pytest.approx(1.35, abs=0.01)


def test_overlap_hides_the_draft_behind_the_verify_step_but_no_more() -> None:
    k, cycle = np.array([0.0, 1.0, 2.0]), np.array([60.0, 90.0, 100.0])
    draft, marginal = np.full(3, 20.0), np.full(3, 15.0)
    side = changed_cycle_ms(k, cycle, draft, marginal, Change(free_draft=True, overlap=True, hop_ms=5.0))
    assert list(side) == [60.0, 70.0, 80.0]
    far = changed_cycle_ms(k, cycle, draft, marginal, Change(free_draft=True, overlap=True, hop_ms=55.0))
    assert list(far) == [60.0, 75.0, 80.0]
    scaled = changed_cycle_ms(k, cycle, draft, marginal, Change(verify_scale=0.5, verify_position_ms=1.0, step_ms=2.0))
    assert list(scaled) == [62.0, 90 + 2 - 7.5 + 1, 100 + 2 - 15 + 2]
    gone = changed_cycle_ms(k, cycle, np.full(3, 200.0), marginal, Change(free_draft=True))
    assert np.isnan(gone[1:]).all()


@given(
    st.booleans(),
    st.booleans(),
    st.floats(0, 40),
    st.floats(-3, 20),
    st.floats(0, 3),
)
def test_dearer_is_never_faster_and_nothing_is_nothing(
    free: bool, overlap: bool, hop: float, position: float, scale: float
) -> None:
    runs = THREE_BLOCKS
    assert runs.then(Change()) == pytest.approx(runs.now())
    base = Change(free, free and overlap, hop, position, scale)
    dearer = replace(base, hop_ms=hop + 1, verify_position_ms=position + 1, step_ms=1.0)
    assert (runs.then(dearer) <= runs.then(base) + 1e-9).all()


def test_flips_and_break_even_are_where_the_curves_cross() -> None:
    frame = FastSweeps(QUIET, 1).frame(0)
    costs = fitted_costs(frame)
    _, runs = runs_of(frame, costs)
    change = Change(free_draft=True)
    for flip in flips(runs, Change(), "verify_position_ms", -14.0, 60.0):
        assert fastest(runs, Change(verify_position_ms=flip.at - 0.01)) == flip.from_k
        assert fastest(runs, Change(verify_position_ms=flip.at + 0.01)) == flip.to_k
    assert [f.to_k for f in flips(runs, Change(), "verify_position_ms", -14.0, 60.0)][-1] == 0
    even = break_even_hop(runs, change)
    assert even.low < QUIET.t_draft_ms < even.high  # the hop that eats what was freed
    assert "Student t over blocks" in even.method
    said = answer(found := what_if(frame, change, costs), turns(frame, found))
    assert any(line.startswith("Break-even hop:") for line in said)
    stays = break_even_hop(runs, Change())
    assert (stays.value, stays.reason) == (None, "the drafter stays on this host")


def test_without_a_gain_there_is_no_break_even() -> None:
    frame = FastSweeps(replace(QUIET, t_draft_ms=0.0), 1).frame(0)
    costs = fitted_costs(frame, t_draft_ms=point(-1.0, "ms", "given", method="given", n=None))
    _, runs = runs_of(frame, costs)
    assert "not faster" in break_even_hop(runs, Change(free_draft=True)).reason


def test_another_sweep_s_acceptance_carries_its_interval_and_its_gaps() -> None:
    frame = FastSweeps(QUIET, 1).frame(0)
    tight = {k: Estimate(1 + 0.5 * k, 0.99 + 0.5 * k, 1.01 + 0.5 * k, 0.95, "m", 9, "tokens", None) for k in (1, 2)}
    wide = {1: replace(tight[1], low=1.2, high=1.8)}
    costs = fitted_costs(frame)
    a, b = ({d.k: d for d in what_if(frame, Change(), costs, tokens=t, tokens_from="x").depths} for t in (tight, wide))
    assert a[1].then_tok_s.value == b[1].then_tok_s.value
    assert b[1].then_tok_s.high - b[1].then_tok_s.low > 3 * (a[1].then_tok_s.high - a[1].then_tok_s.low)
    assert a[0].then_tok_s.value == pytest.approx(a[0].now_tok_s.value)  # K=0 emits one token a step everywhere
    assert a[7].then_tok_s.value is None
    assert a[7].then_tok_s.reason == "x has no tokens per step at K=7"


def test_a_given_t_draft_with_an_interval_widens_the_answer() -> None:
    frame = FastSweeps(QUIET, 1).frame(0)
    sure = asked(frame, Change(free_draft=True), t_draft_ms=GIVEN).depths[2].then_tok_s
    unsure = asked(
        frame, Change(free_draft=True), t_draft_ms=Estimate(15.88, 10.0, 21.76, 0.95, "direct", 3, "ms", None)
    )
    wide = unsure.depths[2].then_tok_s
    assert (wide.high - wide.low) > 1.3 * (sure.high - sure.low)
    assert "direct" in wide.method


def test_no_cycle_is_no_answer_with_the_reason() -> None:
    frame = FastSweeps(QUIET, 1).frame(0).assign(concurrency=4, cycle_ms=np.nan)
    found = asked(frame, Change(hop_ms=1.0))
    assert found.depths == ()
    assert "nothing to change" in found.reason
    assert answer(found, turns(frame, found)) == [f"No answer: {found.reason}."]


def test_intervals_hold_the_true_throughput_under_the_change() -> None:
    truth = replace(QUIET, run_sd_ms=2.0, blocks=5)
    change = Change(free_draft=True, hop_ms=4.0, verify_position_ms=2.0)
    k = np.arange(8.0)
    then = truth.cycle_ms(k) + np.where(k > 0, -truth.t_draft_ms + 4.0 + 2.0 * k, 0.0)
    true = [1000 * truth.tokens_per_step(int(d)) / c for d, c in zip(k, then, strict=True)]
    hits, sweeps = np.zeros(8), 120
    for frame in FastSweeps(truth, sweeps).frames():
        _, runs = runs_of(frame, fitted_costs(frame))
        rate = runs.then(change)
        hits += [holds(student_t_log_mean(rate[runs.k == d], "tok/s"), true[d]) for d in range(8)]
    share = hits.sum() / (8 * sweeps)
    assert 0.92 <= share <= 0.985, share


def test_a_slow_down_that_was_made_is_predicted() -> None:
    normal = FastSweeps(replace(QUIET, seed=1), 1).frame(0)
    slowed = FastSweeps(replace(QUIET, seed=2, t_marginal_ms=QUIET.t_marginal_ms + 5), 1).frame(0)
    errors = prediction_errors(asked(normal, Change(draft_position_ms=5.0)), slowed)
    assert sorted(errors) == list(range(8))
    assert all(abs(e.value) < 5 and e.low < 0 < e.high for e in errors.values())
    unchanged = prediction_errors(asked(normal, Change(step_ms=0.0)), slowed)
    assert unchanged[7].low > 10  # without the change the prediction is shown to be wrong
    assert prediction_errors(asked(normal, Change()), slowed[slowed["k"] < 2])[5].reason == "not measured"


def test_every_inner_depth_is_predicted_from_the_others() -> None:
    curved = replace(QUIET, t_convex_ms=1.0)
    found = hold_out(FastSweeps(curved, 1).frame(0))
    assert [one.k for one in found] == [2, 3, 4, 5, 6]
    assert max(abs(one.error_percent.value) for one in found) < 5
    assert all(one.error_percent.has_interval and one.predicted_tok_s.has_interval for one in found)
    assert [one.error_percent.reason for one in hold_out(published_run_cell())] == ["one run per K"] * 2  # K=2, 3


def test_tokens_come_from_the_survival_curve() -> None:
    truth = replace(QUIET, conditional=(0.9, 0.5, 0.9, 0.5, 0.9, 0.5, 0.9))  # a jagged curve, equal at every K
    frame = FastSweeps(truth, 1).frame(0)
    rate = np.cumprod(truth.conditional)
    rows = [{"cell_id": "c", "k": k, "position": i, "survival": rate[i]} for k in range(1, 8) for i in range(k)]
    with_curve = hold_out(frame, survival_of(pd.DataFrame(rows), "c"))
    assert all(abs(one.tokens_error_percent) < 1e-6 for one in with_curve)
    assert max(abs(one.tokens_error_percent) for one in hold_out(frame)) > 1
