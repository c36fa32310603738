"""Proposer timing on a bundled sweep of real vLLM whose n-gram proposer was timed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb
import pytest
from streamlit.testing.v1 import AppTest

from backend.analysis.stages import PARTS
from backend.store import queries, queries_timing
from backend.store.paths import BUNDLED_SNAPSHOT
from pages.parts.menu import MENU
from tests.pages.test_pages import visit, words

SWEEP = "ngram-vllm-cpu"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """The page as a link to that sweep opens it."""
    app = visit(monkeypatch, {"SOUNDING_DB": str(BUNDLED_SNAPSHOT)}, "proposer", sweep=SWEEP)
    assert not app.exception
    return app


def middle(cell: str) -> float:
    """The value of a table's figure, with or without its interval."""
    return float(cell.split(" [")[0])


def test_the_books_close(page: AppTest) -> None:
    assert page.title[0].value == next(entry.title for entry in MENU if entry.stem == "proposer")
    books = next(t.value for t in page.table if "Residual (%)" in t.value).set_index("K")
    con = queries.connect(BUNDLED_SNAPSHOT)
    timed = queries_timing.timed_requests(con, SWEEP)
    con.close()
    assert list(books.index) == sorted(timed["k"].unique())
    assert len(books) > 2
    parts = ("Proposer (ms)", "Verify step (ms)", "Sampling (ms)", "Host and gaps (ms)")
    for k, row in books.iterrows():
        told = sum(middle(row[part]) for part in parts if row[part] != "not known")
        assert told == pytest.approx(middle(row["Cycle (ms)"]) * (1 - middle(row["Residual (%)"]) / 100), abs=0.01)
        assert (row["Proposer (ms)"] == "not known") == (k == 0)  # nothing proposes at K=0


def test_the_charts_show_the_books(page: AppTest) -> None:
    charts = {chart.proto.alt.split(" ")[0]: json.loads(chart.proto.spec) for chart in page.get("plotly_chart")}
    assert len(charts) == 2  # this proposer takes one look, so it has no chart by draft position
    bars = {trace["name"]: trace for trace in charts["Parts"]["data"] if trace["type"] == "bar"}
    assert len(bars) == len(PARTS)
    books = next(t.value for t in page.table if "Residual (%)" in t.value)
    shown = dict(zip(bars["Verify step"]["x"], bars["Verify step"]["y"], strict=True))
    assert shown == pytest.approx(dict(zip(books["K"], books["Verify step (ms)"].map(middle), strict=True)), abs=0.01)
    assert charts["Proposer:"]["data"]


def test_a_link_chooses_the_part_of_single_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, {"SOUNDING_DB": str(BUNDLED_SNAPSHOT)}, "proposer", sweep=SWEEP, part="verify")
    assert any(chart.proto.alt.startswith("Verify step: spread") for chart in app.get("plotly_chart"))
    assert "Draft positions" not in words(app)
    assert "perf_counter" in words(app)


def test_a_sweep_that_was_only_timed_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `time-proposer` stores: times of the proposer and nothing measured."""
    copy = tmp_path / "results.duckdb"
    shutil.copy(BUNDLED_SNAPSHOT, copy)
    with duckdb.connect(str(copy)) as con:
        for table in ("run_cell", "k_summary", "estimate"):
            con.execute(f"DELETE FROM {table} WHERE sweep = ?", [SWEEP])
        con.execute("DELETE FROM request WHERE phase = 'measure' AND starts_with(run_id, ?)", [SWEEP])
    there = visit(monkeypatch, {"SOUNDING_DB": str(copy)}, "proposer", sweep=SWEEP)
    assert not there.exception
    assert next(t.value for t in there.table if "Residual (%)" in t.value).shape[0] > 2
    for stem in ("overview", "compare", "cycle", "whatif", "power", "acceptance"):
        app = visit(monkeypatch, {"SOUNDING_DB": str(copy)}, stem, sweep=SWEEP)
        assert not app.exception
        assert "were timed and not measured" in words(app)
