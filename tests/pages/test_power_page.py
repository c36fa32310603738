"""Page Power: figures where a sensor was read or reported, the reason where not, one run over time."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from backend.analysis.power_series import power_lines
from backend.store import queries, queries_nodes
from backend.store.connection import open_snapshot
from tests.pages.test_pages import Environments, figures, visit, words
from tests.pages.watched import BASE_W, LOST, NAME, WATTS_PER_K, database


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The watched sweep's data directory."""
    return database(tmp_path_factory.mktemp("watched") / "data")


def test_watts_and_tokens_per_joule_by_depth(watched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both nodes added up, GPU scope: the counter of the whole machine is on one node only."""
    app = visit(monkeypatch, {"SOUNDING_DATA": str(watched)}, "power", sweep=NAME)
    assert not app.exception
    efficiency, power = figures(app)[:2]
    table = app.table[0].value.set_index("K")
    for k in range(4):
        mean_w = float(table.loc[k, "Power (W)"].split(" ")[0])
        assert mean_w == pytest.approx(2 * (BASE_W + WATTS_PER_K * k + 0.1), abs=0.3)
    assert efficiency["layout"]["yaxis"]["title"]["text"] == "Energy efficiency (tok/J)"
    assert "gpu (the GPU alone)" in words(app)
    assert power["layout"]["yaxis"]["title"]["text"] == "Power (W)"
    assert "[" in table.loc[2, "Power (W)"]
    assert table.loc[1, "Runs"].startswith(
        "[1](runs?"
    )  # the other run of K=1 lost its readings: no half is taken for the whole


def test_sensors_and_their_missing_readings_are_named(watched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, {"SOUNDING_DATA": str(watched)}, "power", sweep=NAME)
    sensors = next(t.value for t in app.table if "Source" in t.value).set_index(["Node", "Scope"])
    assert sensors.loc[("spark-a", "node"), "Counter"] == "yes"
    assert sensors.loc[("spark-a", "node"), "Mean (W)"] == "65.0"  # what the counter gained
    assert sensors.loc[("spark-b", "gpu"), "Why readings are missing"] == "GPU is lost"
    found = next(t.value for t in app.table if "Finding" in t.value)
    assert found["Finding"].str.contains("No energy of this run").any()


def test_one_run_over_time_with_its_gap(watched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = f"{NAME}:r{LOST}b1k1a1"
    app = visit(monkeypatch, {"SOUNDING_DATA": str(watched)}, "power", sweep=NAME, run=run_id)
    assert not app.exception
    watts, clock = figures(app)[2:]
    lines = {trace["name"]: trace for trace in watts["data"]}
    assert set(lines) == {"spark-a: gpu (nvml)", "spark-a: node (hwmon)", "spark-b: gpu (nvml)"}
    assert [trace["name"] for trace in clock["data"]] == ["spark-a", "spark-b"]
    assert watts["layout"]["shapes"][0]["x0"] == pytest.approx(0, abs=1e-6)  # measured from second 0
    assert "spark-b: gpu (nvml): GPU is lost" in words(app)
    con = open_snapshot(watched / "results.duckdb")
    samples = queries_nodes.power_of_run(con, run_id)
    counted = next(line for line in power_lines(samples, 0.0) if line.source == "hwmon")
    lost = next(line for line in power_lines(samples, 0.0) if line.name == "spark-b: gpu (nvml)")
    assert queries.canaries(con, NAME).shape[0] == 8 * 2 * 2
    con.close()
    assert (counted.method, counted.mean_w) == ("counter differences", pytest.approx(65.0))
    assert 0.3 < sum(map(math.isnan, lost.power_w)) / len(lost.power_w) < 0.7


def test_without_a_sensor_the_reason_and_what_to_do(
    environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = visit(monkeypatch, environments["one run"], "power")
    assert "No energy is known for this sweep: no power sensor was read" in words(app)
    assert figures(app) == []


def test_published_power_is_shown_as_reported(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["published"], "power")
    assert "As reported by the source" in words(app)
    table = app.table[0].value.set_index("K")
    assert table.loc[0, "Power (W)"] == "44.0"
    assert table.loc[1, "Power (W)"] == "not known"
    assert len(figures(app)) == 2
