"""Estimates: intervals by hand, undefined ones None with the reason, JSON without NaN."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from backend.analysis.estimate import (
    Estimate,
    chi_square_sd,
    missing,
    point,
    ratio_of_sums,
    student_t_log_mean,
    student_t_mean,
)
from backend.analysis.resample import cluster_ratio, from_draws, tail, weights


def test_mean_by_hand() -> None:
    e = student_t_mean([1.0, 2.0, 3.0], "ms")
    half = 4.302652729911275 * 1.0 / math.sqrt(3)
    assert (e.value, e.n, e.level, e.reason) == (2.0, 3, 0.95, None)
    assert e.low == pytest.approx(2 - half)
    assert e.high == pytest.approx(2 + half)


def test_mean_leaves_missing_out_and_says_why_there_is_no_interval() -> None:
    assert student_t_mean([None, 5.0, math.nan], "ms") == Estimate(
        5.0, None, None, None, "Student t over runs", 1, "ms", "one run"
    )
    nothing = student_t_mean([None], "W")
    assert nothing.value is None
    assert nothing.reason == "not measured"


def test_log_mean_is_the_geometric_mean_with_a_ratio_interval() -> None:
    e = student_t_log_mean([10.0, 20.0, 40.0], "tok/s")
    assert e.value == pytest.approx(20.0)
    assert e.low is not None
    assert e.high is not None
    assert e.low * e.high == pytest.approx(400.0)
    assert student_t_log_mean([24.05], "tok/s").value == pytest.approx(24.05)
    assert student_t_log_mean([0.0, 1.0], "tok/s").value is None


def test_ratio_of_sums_pairs_rows_and_refuses_a_zero_denominator() -> None:
    e = ratio_of_sums([10, None, 30], [1, 100, 3], "tok/s", reason="r")
    assert (e.value, e.n) == (10.0, 2)
    assert ratio_of_sums([1], [0], "1", reason="r").reason == "the denominator is zero"


def test_estimate_refuses_a_missing_interval_without_a_reason() -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        Estimate(1.0, None, None, None, "m", 1, "ms", None)


@given(st.floats(), st.floats(), st.floats())
def test_json_never_holds_nan(value: float, low: float, high: float) -> None:
    e = Estimate(value, low, high, 0.95, "m", 3, "ms", "why")
    text = json.dumps(e.to_dict(), allow_nan=False)
    assert set(json.loads(text)) == {"value", "low", "high", "level", "method", "n", "unit", "reason"}
    assert (e.low is None) == (e.high is None) == (e.level is None)


def test_numpy_numbers_become_plain_ones() -> None:
    e = Estimate(np.float64(1), np.float64(0), np.float64(2), 0.95, "m", np.int64(3), "ms", None)  # type: ignore[arg-type]
    assert [type(x) for x in (e.value, e.low, e.n)] == [float, float, int]


def test_text_says_the_interval_or_the_reason() -> None:
    assert Estimate(24.05, 23.1, 25.0, 0.95, "m", 3, "tok/s", None).text() == "24.05 tok/s [23.10, 25.00]"
    assert point(24.05, "tok/s", "one run", method="m", n=1).text() == "24.05 tok/s (no interval: one run)"
    assert missing("ms", "no runs").text() == "not known (no runs)"


def test_residual_sd_interval_needs_df() -> None:
    e = chi_square_sd(10.0, 5, "ms", n=7)
    assert e.low == pytest.approx(10 * math.sqrt(5 / stats.chi2.ppf(0.975, 5)))
    assert chi_square_sd(10.0, 0, "ms", n=3).reason == "no residual degrees of freedom"


def test_bootstrap_is_seeded_and_draws_whole_clusters() -> None:
    assert (weights(7, 50, 3).sum(axis=1) == 7).all()
    assert (weights(7, 50, 3) == weights(7, 50, 3)).all()
    top, bottom = np.array([[1.0], [4.0], [2.0], [6.0]]), np.array([[2.0], [5.0], [3.0], [8.0]])
    first = cluster_ratio(top, bottom, "1", seed=1)
    assert first == cluster_ratio(top, bottom, "1", seed=1)
    assert first[0].value == pytest.approx(13 / 18)
    assert first[0].n == 4


def test_bootstrap_with_one_or_no_cluster_has_no_interval() -> None:
    one = cluster_ratio(np.array([[3.0]]), np.array([[4.0]]), "1")[0]
    assert (one.value, one.low, one.reason) == (0.75, None, "one prompt")
    none = cluster_ratio(np.zeros((2, 1)), np.zeros((2, 1)), "1")[0]
    assert (none.value, none.n, none.reason) == (None, 0, "no prompt has the denominator")


def test_zero_events_get_the_bound_and_not_an_empty_interval() -> None:
    zero = cluster_ratio(np.zeros((20, 1)), np.full((20, 1), 9.0), "1", rate=True)[0]
    assert (zero.value, zero.low) == (0.0, 0.0)
    assert zero.high == pytest.approx(1 - 0.05 ** (1 / 20))
    every = from_draws(1.0, np.ones(10), "1", clusters=20, rate=True)
    assert every.low == pytest.approx(0.05 ** (1 / 20))


def test_tail_is_wider_for_few_clusters() -> None:
    assert tail(1000, 0.95) == pytest.approx(0.025, abs=2e-4)
    assert tail(5, 0.95) < 0.002
