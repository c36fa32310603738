"""The study's known answers: every number of study.md, "What was recomputed", that analysis gives."""

from __future__ import annotations

import json
import math

import pytest

from backend.analysis.acceptance import from_counts
from backend.analysis.compare import compare
from backend.analysis.cycle_model import fit_cycle, fit_json
from backend.analysis.export import static_depth
from backend.analysis.gains import decay, gains, reported_figures
from backend.analysis.plan import line_errors, reported_t_draft, reported_test, runs_needed
from backend.analysis.selection import cycle_ms
from backend.analysis.sentence import answer_sentence
from backend.analysis.summary import headline_estimates, summarise
from backend.analysis.trend import implied_power_w, trend
from tests.analysis.frames import published_positions, published_run_cell

FIT = fit_cycle(published_run_cell(), study=True, assumed_ms=32.0)
BY_WINDOW = {w.k: w for w in FIT.windows}
LINE = tuple(range(1, 8))


def test_cycles() -> None:
    cycles = dict(zip(range(8), cycle_ms(published_run_cell().drop(columns="cycle_ms")), strict=True))
    assert [round(cycles[k], 2) for k in (0, 1, 2, 3, 6)] == [62.27, 90.61, 89.40, 105.81, 167.56]
    assert [k for k, c in cycles.items() if math.isnan(c)] == [4, 5, 7]


@pytest.mark.parametrize(
    ("window", "t_draft", "slope"), [((1, 2), 29.56, -1.22), ((1, 2, 3), 17.81, 7.60), ((1, 2, 3, 6), 1.35, 16.58)]
)
def test_windows(window: tuple[int, ...], t_draft: float, slope: float) -> None:
    assert BY_WINDOW[window].t_draft_ms.value == pytest.approx(t_draft, abs=0.006)
    assert BY_WINDOW[window].t_marginal_ms.value == pytest.approx(slope, abs=0.006)
    assert BY_WINDOW[window].n == len(window) + 1  # and K=0


def test_two_depths_leave_no_interval_and_a_negative_slope_is_flagged() -> None:
    w = BY_WINDOW[(1, 2)]
    assert (w.t_draft_ms.low, w.t_draft_ms.high, w.residual_ms.value) == (None, None, None)
    assert w.t_draft_ms.reason == "no residual degrees of freedom: 3 runs for 3 coefficients"
    assert "negative-slope" in w.flags
    assert any("slope is negative (-1.22 ms)" in words for words in FIT.diagnosis)


def test_residual_of_the_published_arms() -> None:
    assert BY_WINDOW[(1, 2, 3, 6)].residual_ms.value == pytest.approx(10.95, abs=0.005)


def test_t_verify_base_is_the_k0_cycle_without_an_interval() -> None:
    assert FIT.t_verify_base_ms.value == pytest.approx(62.27, abs=0.005)
    assert FIT.t_verify_base_ms.reason == "one K=0 run"


def test_convexity_is_not_shown() -> None:
    assert FIT.tests is not None
    assert FIT.tests.quadratic.p == pytest.approx(0.20, abs=0.005)
    assert FIT.diagnosis[0] == "Curvature is not shown (p = 0.2)."
    assert not any("convex" in words for words in FIT.diagnosis)
    assert FIT.tests.lack_of_fit.reason == "no replicates: one run per depth"
    assert FIT.tests.aicc_quadratic is None  # n <= p + 1


def test_standard_errors_of_the_whole_line() -> None:
    errors = line_errors(LINE, 11.006)
    assert errors.slope_ms == pytest.approx(2.08, abs=0.005)
    assert errors.intercept_ms == pytest.approx(9.30, abs=0.005)
    assert errors.df == 5


def test_intervals_of_the_printed_t_draft() -> None:
    intervals = reported_t_draft(2.8, LINE, 11.006)
    bounds = {name: (round(e.low or 0, 1), round(e.high or 0, 1)) for name, e in intervals.items()}
    assert bounds["study"] == (-15.8, 21.4)  # printed [-16, +21]
    assert bounds["t"] == (-21.1, 26.7)
    assert bounds["t_with_k0"] == (-34.2, 39.8)


def test_assumed_32_ms() -> None:
    assert reported_test(14.90, 2.08, 5, 32.0) < 0.001
    assert FIT.assumed is not None
    assert FIT.assumed.words.startswith("The measured cost of a position, 16.58 ms, is below the assumed 32 ms")
    two = fit_cycle(published_run_cell()[lambda f: f["k"] <= 2], assumed_ms=32.0)
    assert two.assumed is not None
    assert two.assumed.p is None
    assert "cannot be tested" in two.assumed.words


def test_runs_for_three_ms() -> None:
    assert runs_needed(3.0, LINE, 11.006, interval=False) == 10
    assert runs_needed(3.0, LINE, 11.006, interval=True) == 38
    assert runs_needed(3.0, LINE, 11.006, interval=True, with_k0=True) == 89


def test_rates_at_k3() -> None:
    a = from_counts(3, 1000, [644, 383, 232])
    assert a.acceptance_length.value == pytest.approx(2.259)
    assert [round(p.conditional.value or 0, 3) for p in a.positions] == [0.644, 0.595, 0.606]


def test_implied_rates_are_not_monotone_over_depth() -> None:
    figures = reported_figures(published_run_cell(), published_positions())
    assert [round(figures[k].survival[0].value, 3) for k in (1, 2, 3)] == [0.670, 0.689, 0.644]
    assert figures[2].survival[1].value == pytest.approx(0.461)
    assert (figures[1].implied, figures[2].implied, figures[3].implied) == ((0,), (1,), ())
    assert figures[5].survival == {}


def test_marginal_gain_2_to_3_taken_apart() -> None:
    gain = {g.k: g for g in gains(reported_figures(published_run_cell(), published_positions()))}
    third = gain[3]
    assert third.tokens_per_step.value == pytest.approx(0.110)
    assert third.own_rate.value == 0.232
    assert third.tokens_per_step.value < third.own_rate.value / 2
    assert third.shallow[0].value == pytest.approx(-0.045)
    assert third.shallow[1].value == pytest.approx(-0.078)
    assert third.acceptance_length.value == pytest.approx(0.109)
    assert third.tokens_per_step.reason == "reported figures carry no interval"
    flagged = [k for k, g in gain.items() if "gain-above-shallower-position" in g.flags]
    assert flagged == [7]
    assert gain[7].tokens_per_step.value == pytest.approx(0.29)


def test_decay_beyond_position_2() -> None:
    d = decay(reported_figures(published_run_cell(), published_positions())[3].survival)
    assert d.ratio.value == pytest.approx(0.600, abs=0.0005)
    assert [round(e.value or 0, 3) for e in d.beyond.values()] == [0.139, 0.084]


def test_best_depth_and_regrets() -> None:
    (c,) = compare(published_run_cell(), {"production": 2, "recipe": 3, "native": 7})
    assert c.best_k == 2
    assert all(d.p_best is None and d.loss_percent.reason == "one run per K" for d in c.depths)
    loss = {r.name: r.loss_percent for r in c.regrets}
    assert loss["production"].value == 0.0
    assert loss["recipe"].value == pytest.approx(11.2, abs=0.05)
    assert (loss["native"].value, loss["native"].reason) == (None, "K=7 has no measured throughput")
    assert c.recommendation is not None
    assert (c.recommendation.k, c.recommendation.resolved, c.recommendation.blocks_needed) == (2, False, None)
    exported = static_depth(c)
    assert exported is not None
    assert exported["speculative_config"] == {"num_speculative_tokens": 2}


def test_break_even_from_what_was_published() -> None:
    (c,) = compare(published_run_cell())
    assert c.break_even is not None
    assert (c.break_even.k, c.break_even.next_loss, c.break_even.estimate.low) == (3, 6, None)


def test_power_of_k2_follows_and_a_trend_of_two_depths_is_no_test() -> None:
    filled = implied_power_w(published_run_cell())
    assert filled.set_index("k")["power_w"][2] == pytest.approx(46.97, abs=0.005)
    assert trend(published_run_cell()).words.endswith("which is no test.")
    three = trend(filled)
    assert three.monotone == "rises"
    assert three.words.startswith("A trend of power_w with K is not shown")


def test_sentence_says_that_there_is_no_interval() -> None:
    (c,) = compare(published_run_cell(), {"production": 2, "recipe": 3, "native": 7})
    words = answer_sentence(c, source="published")
    assert words.startswith("As published, the best depth is K=2 at 24.05 tok/s; no interval: one run per K")
    assert "It is the production depth." in words
    assert "The recipe depth K=3 costs 11.2% of the best." in words


def test_summary_keeps_unpublished_figures_missing() -> None:
    rows = {r.k: r for r in summarise(published_run_cell(), positions=published_positions())}
    assert rows[4].decode_tok_s.value is None
    assert rows[4].cycle_ms.value is None
    assert rows[4].tokens_per_step.value == 2.38
    assert [a.value for a in rows[3].acceptance] == [0.644, 0.383, 0.232]
    assert rows[3].acceptance_length.value == pytest.approx(1 + sum(a.value or 0 for a in rows[3].acceptance))
    assert rows[2].acceptance_length.value is None  # only position 0 was published
    assert rows[0].acceptance == ()
    assert rows[0].acceptance_rate.value is None
    json.dumps([r.to_dict() for r in rows.values()], allow_nan=False)


def test_fit_json_and_estimate_rows() -> None:
    out = json.loads(json.dumps(fit_json(published_run_cell()), allow_nan=False))
    windows = {tuple(w["k"]): w for w in out["windows"]}
    assert windows[(1, 2)]["t_draft_ms"]["value"] == pytest.approx(29.56, abs=0.006)
    assert windows[(1, 2, 3)]["t_draft_ms"]["value"] == pytest.approx(17.81, abs=0.006)
    assert windows[(1, 2)]["t_draft_ms"]["low"] is None
    assert windows[(1, 2, 3)]["n"] == 4
    rows = headline_estimates(published_run_cell(), sweep="published", code_version="0")
    drafts = [r for r in rows if r["quantity"] == "t_draft_ms"]
    assert [r["window_k"] for r in drafts] == [[1, 2], [1, 2, 3], [1, 2, 3, 6]]
