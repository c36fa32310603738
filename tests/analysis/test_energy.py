"""Energy from power samples: joules by hand, what makes a figure missing, and sensors that contradict each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.analysis.checks_power import power_findings
from backend.analysis.energy import energies_of, run_energies, with_energy
from backend.analysis.energy_reported import reported_energy
from backend.analysis.power_sensor import Sensor, period_s
from backend.analysis.summary import summarise
from tests.analysis.frames import published_run_cell, runs

CELL = "s:1xtext:w"


def samples(run: str, node: str, t: Any, watts: Any = None, joules: Any = None, **more: Any) -> pd.DataFrame:
    """Rows of power_sample of one sensor."""
    columns = {"power_w": watts, "energy_j": joules, "scope": "gpu", "source": "nvml", "unsupported_reason": None}
    return pd.DataFrame({"run_id": run, "node": node, "t_unix_s": np.asarray(t, dtype=float), **columns, **more})


def asked(
    run: str,
    start: float = 0.0,
    windows: tuple[float, ...] = (4.0, 4.0),
    ttft_s: float = 1.0,
    tokens: int = 41,
    **more: Any,
) -> pd.DataFrame:
    """MEASURE requests one after the other, each a ttft and a decode window."""
    rows, at = [], start
    for decode_s in windows:
        rows.append({"started_unix_s": at, "client_total_s": ttft_s + decode_s, "decode_s": decode_s})
        at += ttft_s + decode_s
    fixed = {"run_id": run, "cell_id": CELL, "phase": "measure", "output_tokens": tokens, "error": None}
    return pd.DataFrame(rows).assign(**{**fixed, **more})


def seconds(step: float = 0.5, until: float = 12.0) -> np.ndarray:
    return np.arange(-2.0, until + step / 2, step)


def busy_w(t: np.ndarray) -> np.ndarray:
    """20 W while prefill runs (0-1 s and 5-6 s), 50 W in the decode windows; the noise tells the period."""
    in_window = ((t > 1) & (t <= 5)) | ((t > 6) & (t <= 10))
    return np.where(in_window, 50.0, 20.0)


def test_the_counter_comes_before_the_readings_and_the_windows_before_the_phase() -> None:
    t = seconds()
    counter = np.concatenate([[0.0], np.cumsum(busy_w(t[1:]) * 0.5)]) + 1000
    (one,) = energies_of(samples("s:a", "n1", t, watts=99.0, joules=counter), asked("s:a"))
    assert (one.method, one.phase, one.nodes) == ("counter difference", "decode", 1)
    assert (one.energy_j, one.duration_s, one.power_w) == (
        pytest.approx(400.0),
        pytest.approx(8.0),
        pytest.approx(50.0),
    )
    assert one.tokens_per_joule == pytest.approx(80 / 400)
    assert one.sensor_period_s == pytest.approx(0.5)


def test_a_slow_sensor_gives_the_phase_not_the_windows() -> None:
    t = seconds(step=2.0)
    wobble = 30 + np.arange(len(t)) % 2  # a change every 2 s: a window of 4 s holds two periods, not three
    (one,) = energies_of(samples("s:a", "n1", t, watts=wobble), asked("s:a"))
    assert (one.phase, one.method, one.duration_s) == ("measure", "trapezoid", pytest.approx(10.0))
    assert one.energy_j == pytest.approx(305.0)
    assert (one.tokens, one.tokens_per_joule) == (82, pytest.approx(82 / 305))


def test_polling_faster_than_the_sensor_does_not_shorten_its_period() -> None:
    t = np.arange(0, 20, 0.1)
    assert period_s(t, np.floor(t)) == pytest.approx(1.0)
    assert period_s(t, np.full(len(t), 7.0)) == pytest.approx(0.1)
    assert period_s(t[:1], t[:1]) is None


def test_nodes_are_added_and_none_may_be_missing() -> None:
    t = seconds()
    both = pd.concat([samples("s:a", "n1", t, watts=20.0), samples("s:a", "n2", t, watts=30.0)])
    (one,) = energies_of(both, asked("s:a"))
    assert (one.power_w, one.nodes, one.scope, one.source) == (pytest.approx(50.0), 2, "gpu", "nvml")
    more = pd.concat([both, samples("s:b", "n1", t, watts=20.0)])  # n2 was not read in run b at all
    answers = {e.run_id: e for e in energies_of(more, pd.concat([asked("s:a"), asked("s:b")]))}
    assert answers["s:a"].power_w == pytest.approx(50.0)
    assert answers["s:b"].power_w is None
    assert "node n2" in answers["s:b"].reason
    silent = samples("s:a", "n2", t, unsupported_reason="nvmlDeviceGetPowerUsage: Not Supported")
    (none,) = energies_of(pd.concat([samples("s:a", "n1", t, watts=20.0), silent]), asked("s:a"))
    assert (none.energy_j, none.tokens_per_joule) == (None, None)
    assert "Not Supported" in none.reason


def test_power_missing_for_half_a_run_is_no_figure() -> None:
    t = seconds()
    (one,) = energies_of(samples("s:a", "n1", t[t < 5], watts=20.0), asked("s:a"))
    assert one.energy_j is None
    assert "missing for" in one.reason
    (hole,) = energies_of(samples("s:a", "n1", t[(t < 2) | (t > 8)], watts=20.0), asked("s:a"))
    assert "missing for" in hole.reason
    assert [f.code for f in power_findings(samples("s:a", "n1", t[t < 5], watts=20.0), asked("s:a"), "s")] == [
        "power-missing"
    ]


def test_a_counter_that_goes_back_falls_to_the_readings_and_zero_is_no_energy() -> None:
    t = seconds()
    back = np.where(t < 5, 1000.0 + t, t)
    (one,) = energies_of(samples("s:a", "n1", t, watts=20.0, joules=back), asked("s:a"))
    assert (one.method, one.power_w) == ("trapezoid", pytest.approx(20.0))
    (zero,) = energies_of(samples("s:a", "n1", t, watts=0.0), asked("s:a"))
    assert (zero.energy_j, zero.tokens_per_joule) == (None, None)


def test_a_cell_has_one_scope_the_one_that_most_runs_have() -> None:
    t = seconds()
    wall = samples("s:a", "n1", t, watts=90.0, scope="wall", source="meter")
    chips = [samples(run, "n1", t, watts=20.0) for run in ("s:a", "s:b")]
    asks = pd.concat([asked("s:a"), asked("s:b")])
    assert {(e.scope, e.power_w) for e in energies_of(pd.concat([wall, *chips]), asks)} == {("gpu", 20.0)}
    walls = pd.concat([wall, samples("s:b", "n1", t, watts=91.0, scope="wall", source="meter")])
    assert {e.scope for e in energies_of(pd.concat([walls, *chips]), asks)} == {"wall"}


def test_overlapping_windows_give_the_phase() -> None:
    two = asked("s:a").assign(started_unix_s=[0.0, 1.0])
    (one,) = energies_of(samples("s:a", "n1", seconds(0.1), watts=20.0), two)
    assert (one.phase, one.duration_s) == ("measure", pytest.approx(6.0))


@given(
    st.lists(st.floats(1.0, 500.0), min_size=12, max_size=30),
    st.floats(1.0, 4.0),
    st.floats(4.5, 9.0),
)
def test_joules_of_adjoining_spans_add_up(watts: list[float], middle: float, end: float) -> None:
    sensor = Sensor(samples("s:a", "n1", np.arange(len(watts)), watts=watts))
    parts = np.array([0.3, middle]), np.array([middle, end])
    whole = sensor.energy_j(np.array([0.3]), np.array([end]), counter=False)[0]
    assert sensor.energy_j(*parts, counter=False)[0] == pytest.approx(whole)
    assert min(watts) * (end - 0.3) - 1e-6 <= whole <= max(watts) * (end - 0.3) + 1e-6


def test_sensors_that_contradict_each_other_are_found() -> None:
    t = seconds()
    nvml = samples("s:a", "n1", t, watts=20.0)
    other = samples("s:a", "n1", t, watts=23.0, source="dcgm")
    (found,) = power_findings(pd.concat([nvml, other]), asked("s:a"), "s")
    assert (found.code, found.severity) == ("power-sources-disagree", "warning")
    assert found.figure == pytest.approx(15.0)
    same = samples("s:a", "n1", t, watts=20.5, source="dcgm")
    assert power_findings(pd.concat([nvml, same]), asked("s:a"), "s") == []
    wall = samples("s:a", "n1", t, watts=15.0, scope="wall", source="meter")
    (narrow,) = power_findings(pd.concat([nvml, wall]), asked("s:a"), "s")
    assert narrow.code == "power-scopes-disagree"
    lying = samples("s:a", "n1", t, watts=20.0, joules=10 * t + 100)
    (counter,) = power_findings(lying, asked("s:a"), "s")
    assert counter.code == "power-sources-disagree"


def test_the_summary_takes_the_energy_over_and_never_compares_phases() -> None:
    cells = runs({0: [10.0], 1: [20.0]})
    ids = list(cells["run_id"])
    t = seconds()
    read = pd.concat([samples(ids[0], "n1", t, watts=20.0), samples(ids[1], "n1", t, watts=25.0)])
    asks = pd.concat([asked(ids[0]), asked(ids[1], windows=(4.0, 4.0))])
    rows = with_energy(cells.assign(power_w=1.0, power_scope="gpu", tokens_per_joule=9.0), read, asks)
    depth = {row.k: row for row in summarise(rows)}
    assert (depth[0].power_w.value, depth[1].power_w.value) == (pytest.approx(20.0), pytest.approx(25.0))
    assert depth[1].tokens_per_joule.value == pytest.approx(80 / 200)
    short = pd.concat([asked(ids[0]), asked(ids[1], windows=(0.4,) * 6)])  # one run's windows are too short
    assert set(run_energies(read, short)["phase"]) == {"measure"}
    assert with_energy(cells, read.iloc[:0], asks) is cells


def test_a_run_whose_samples_give_no_energy_loses_the_mean_of_readings() -> None:
    cells = runs({0: [10.0]}).assign(power_w=20.0, power_scope="gpu", tokens_per_joule=0.5)
    run = cells["run_id"].iloc[0]
    half = samples(run, "n1", seconds()[:8], watts=20.0)
    row = with_energy(cells, half, asked(run)).iloc[0]
    assert np.isnan(row["power_w"])
    assert np.isnan(row["tokens_per_joule"])
    assert row["power_scope"] is None


def test_the_study_s_tokens_per_joule_follow_from_its_figures_with_scope_unknown() -> None:
    found = {row.k: row for row in reported_energy(published_run_cell())}
    assert sorted(found) == [0, 2, 6]
    assert found[0].follows.value == pytest.approx(0.365, abs=5e-4)
    assert found[6].follows.value == pytest.approx(0.304, abs=1e-3)
    assert abs(found[6].difference_percent or 9) < 0.2
    assert (found[2].follows.value, found[2].tokens_per_joule.value) == (None, 0.512)
    assert found[2].implied_power_w.value == pytest.approx(46.97, abs=0.005)
    assert {row.scope for row in found.values()} == {"unknown"}
