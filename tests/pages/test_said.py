"""What pages say of every kind of database: nothing missing is called nan, charts tell their sweep and finding."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pages.parts.menu import MENU
from pages.parts.terms import IN_PARALLEL
from tests.pages.page_databases import build, cell_of, measured, one_run, run_of, sweep_of
from tests.pages.test_pages import Environments, figures, visit, words

NOT_SAID = re.compile(r"(?<![\w-])(nan|NaN|None|NaT|<NA>)(?![\w-])")
WITH_FIGURES = ("full", "sparse", "one run", "published", "imported")
OPEN = {name: "open" for page in MENU for name in page.more if name != "columns"}  # columns: words of the schema


def texts(app: AppTest) -> Iterator[str]:
    """All that a reader, or a screen reader, meets: words, cells of tables, marks' hovers, alt texts, metrics."""
    yield words(app)
    for table in app.table:
        yield from (str(cell) for column in table.value for cell in table.value[column])
    for chart in app.get("plotly_chart"):
        yield chart.proto.alt
    for figure in figures(app):
        for trace in figure["data"]:
            yield from map(str, (*hovers(trace), trace.get("name", "")))
    yield from (f"{metric.label} {metric.value}" for metric in app.metric)


def hovers(trace: dict) -> list[str]:
    """What the marks of a trace say under the pointer; nothing for what is no mark."""
    if trace.get("hoverinfo") == "skip" or trace["hovertemplate" if "hovertemplate" in trace else "type"] == "":
        return []
    texts = trace.get("text") if trace["type"] != "heatmap" else [hover for row in trace["customdata"] for hover in row]
    if "%{text}" in trace.get("hovertemplate", "") or trace["type"] == "heatmap":
        return [text for text in ([texts] if isinstance(texts, str) else texts or []) if text]
    return [trace.get("hovertemplate") or trace.get("name", "")]


@pytest.mark.parametrize("kind", WITH_FIGURES)
@pytest.mark.parametrize("page", [page.stem for page in MENU])
def test_what_is_missing_is_never_called_nan(
    page: str, kind: str, environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = visit(monkeypatch, environments[kind], page, **OPEN)
    assert not app.exception
    assert not [text for text in texts(app) if NOT_SAID.search(text)]


@pytest.mark.parametrize("page", [page.stem for page in MENU if page.chart and page.stem != "sql"])
def test_marks_name_their_sweep_and_charts_state_figures(
    page: str, environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQL's chart is of columns that the reader chose."""
    app = visit(monkeypatch, environments["full"], page, sweep="full", **OPEN)
    for chart, figure in zip(app.get("plotly_chart"), figures(app), strict=True):
        assert re.search(r"\d\.\d|\d runs|\d+ (done|failed)", chart.proto.alt), chart.proto.alt
        for trace in figure["data"]:
            assert all("full" in hover for hover in hovers(trace)), hovers(trace)[:1]


def test_a_command_to_paste_is_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a specification's environment holds, and wherever the results lie."""
    (head, (run, *rest)) = one_run()["single"]
    env = {"FLAGS": "a b; touch x", "PLAIN": "1"}
    data = build(tmp_path / "with space", {"single": [head, [replace(run, env=env), *rest]]}, {})  # type: ignore[type-var]
    app = visit(monkeypatch, {"SOUNDING_DATA": str(data)}, "runs")
    (command,) = (block.value for block in app.code if "PLAIN" in block.value)
    assert shlex.split(command.replace("\\\n", " "))[:2] == ["FLAGS=a b; touch x", "PLAIN=1"]
    shell, python, _ = (block.value for block in visit(monkeypatch, {"SOUNDING_DATA": str(data)}, "data").code)
    assert shlex.split(shell)[2] == str(data / "results.duckdb")
    told: dict[str, object] = {}
    exec(python.replace("con.sql", "rows = con.sql"), told)
    assert len(told["rows"]) == 1  # type: ignore[arg-type]


def test_above_concurrency_1_throughput_is_explained_as_it_is_measured(
    environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    for page in ("overview", "compare"):
        single, several = (
            words(visit(monkeypatch, environments["full"], page, sweep="two-cells", cell=cell, cells=cell))
            for cell in ("two-cells:1xtext:mixed", "two-cells:4xtext:mixed")
        )
        assert IN_PARALLEL not in single
        assert IN_PARALLEL in several
        assert "over cycle time" not in several


def test_a_mean_without_a_fit_tells_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = cell_of("flat")
    runs = [measured(run_of("flat", block, block, 3), cell) for block in range(3)]
    data = build(tmp_path, {"flat": [[sweep_of("flat"), cell], *runs]}, {})
    (figure,) = figures(visit(monkeypatch, {"SOUNDING_DATA": str(data)}, "cycle"))
    assert "n=3" in figure["data"][0]["text"][0]
