"""A run's power lines: gaps stay gaps, counters become watts, long runs are averaged."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from backend.analysis.power_series import POINTS, power_lines


def rows(count: int, **columns: object) -> pd.DataFrame:
    base = {"node": "a", "scope": "gpu", "source": "nvml", "power_w": None, "energy_j": None}
    frame = pd.DataFrame({**base, "sm_clock_mhz": 2400.0, "unsupported_reason": None, "t_unix_s": 0.0}, range(count))
    frame["t_unix_s"] = [100.0 + i for i in range(count)]
    return frame.assign(**columns)


def test_a_counter_that_went_backwards_is_a_gap() -> None:
    (line,) = power_lines(rows(5, energy_j=[0.0, 50.0, 110.0, 10.0, 60.0]), 100.0)
    assert line.t_s == (0.5, 1.5, 2.5, 3.5)
    assert line.power_w[:2] == (50.0, 60.0)
    assert math.isnan(line.power_w[2])
    assert line.mean_w == pytest.approx((50 + 60 + 50) / 3)


def test_a_reading_that_is_missing_is_a_gap_and_never_0() -> None:
    (line,) = power_lines(rows(3, power_w=[10.0, None, 20.0], unsupported_reason=[None, "GPU is lost", None]), 0.0)
    assert math.isnan(line.power_w[1])
    assert (line.mean_w, line.reason) == (15.0, "GPU is lost")


def test_nothing_read_has_no_mean() -> None:
    (line,) = power_lines(rows(2, unsupported_reason="Not Supported"), 0.0)
    assert line.mean_w is None


def test_a_long_run_is_averaged_and_keeps_its_mean() -> None:
    n = 3 * POINTS + 1
    (line,) = power_lines(rows(n, power_w=[float(i % 7) for i in range(n)]), 100.0)
    assert (len(line.power_w), line.averaged) == (-(-n // 4), 4)
    assert line.mean_w == pytest.approx(3.0, abs=0.01)
