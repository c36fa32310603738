"""Every page on every kind of database: no traceback, the right figures, and words where there is nothing to show."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from backend.progress import Progress
from pages.parts.menu import MENU, Page
from tests.pages.page_databases import all_failed, build, one_run

APP = Path(__file__).parents[2] / "explorer.py"
PAGES = tuple(page.stem for page in MENU)
KINDS = (
    "full",
    "published",
    "imported",
    "empty",
    "one run",
    "all failed",
    "anchor only",
    "sparse",
    "missing",
    "foreign",
    "newer",
    "older",
    "not a database",
)
Environments = dict[str, dict[str, str]]


def visit(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], page: str, /, **link: str) -> AppTest:
    """Open a page by its link and run it."""
    for name in ("SOUNDING_DB", "SOUNDING_DATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    app = AppTest.from_file(str(APP), default_timeout=60)
    for name, value in link.items():
        app.query_params[name] = value
    return app.switch_page(f"pages/{page}.py").run()


def words(app: AppTest) -> str:
    """All that a page says."""
    kinds = ("title", "header", "subheader", "markdown", "caption", "info", "warning", "error", "success")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def contents(app: AppTest) -> int:
    """How much a page holds: tables, code blocks, characters of text."""
    return len(app.table) + len(app.dataframe) + len(app.code) + len(words(app))


def figures(app: AppTest) -> list[dict]:
    """The Plotly figures on a page."""
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("page", [page for page in MENU if page.more], ids=lambda page: page.stem)
def test_no_traceback_with_every_part_open(
    page: Page, kind: str, environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = visit(monkeypatch, environments[kind], page.stem, **dict.fromkeys(page.more, "closed"))
    opened = visit(monkeypatch, environments[kind], page.stem, **dict.fromkeys(page.more, "open"))
    assert not opened.exception
    parts = [[part.proto.expanded for part in app.expander if part.proto.id] for app in (closed, opened)]
    assert parts == [[False] * len(parts[0]), [True] * len(parts[0])]
    assert not parts[0] or contents(opened) > contents(closed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("page", PAGES)
def test_no_traceback(page: str, kind: str, environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments[kind], page)
    assert not app.exception
    assert app.title[0].value
    assert [link.proto.label for link in app.sidebar.get("page_link")] == [page.title for page in MENU]


@pytest.mark.parametrize("page", [page.stem for page in MENU if page.chart])
def test_charts(page: str, environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], page)
    assert figures(app)
    for figure in figures(app):
        assert any(trace.get("y") or trace.get("z") for trace in figure["data"])
    assert all(chart.proto.alt for chart in app.get("plotly_chart"))


@pytest.mark.parametrize("page", ["overview", "compare", "cycle", "runs"])
def test_source_is_told(page: str, environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "published" in words(visit(monkeypatch, environments["published"], page))
    assert "simulated" in words(visit(monkeypatch, environments["full"], page))
    assert "Taken over from another tool" in words(visit(monkeypatch, environments["imported"], page))


def test_published_answer(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["published"], "overview")
    said = words(app)
    assert "K=2, not resolved" in said
    assert "24.05 tok/s" in said
    table = app.table[0].value
    assert table.loc[table["K"] == 4, "Decode throughput (tok/s)"].item() == "not known"
    throughput = figures(app)[0]
    curve = next(trace for trace in throughput["data"] if trace["name"] == "published-glm52-gb10")
    assert "error_y" not in curve or "array" not in curve["error_y"]  # single figures: no interval is drawn
    assert "no value at K=4, 5 and 7" in throughput["layout"]["xaxis"]["title"]["text"]


def test_published_fit(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["published"], "cycle")
    table = app.table[0].value.set_index("Depths")
    assert table.loc["K=1,2", "t_draft (ms)"] == "29.56"
    assert table.loc["K=1-3", "t_draft (ms)"].startswith("17.81 [")
    drift = figures(app)[2]
    assert [note["text"] for note in drift["layout"]["annotations"]].count("no interval") == 2
    app = visit(monkeypatch, environments["published"], "cycle", window="3")
    assert app.metric[1].value == "17.81 ms"


def test_link_is_the_state(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(
        monkeypatch,
        environments["full"],
        "compare",
        sweep="two-cells",
        metric="cycle_ms",
        k="1,2",
        base="1",
        **{"with": "published-glm52-gb10"},
    )
    assert app.sidebar.selectbox("sweep").value == "two-cells"
    assert app.multiselect("k").value == ["1", "2"]
    assert set(app.table[0].value["K"]) == {1, 2}
    assert app.table[0].value["Sweep and cell"].nunique() == 3
    assert "never pooled" in words(app)
    app.selectbox("metric").select("tokens_per_step").run()
    assert app.query_params["metric"] in ("tokens_per_step", ["tokens_per_step"])
    assert not app.exception
    app.multiselect("k").unselect("1").unselect("2").run()
    assert "Choose at least one depth" in words(app)


def test_unknown_values_in_a_link_fall_back(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], "compare", sweep="nope", metric="'; drop", k="99,x", base="77")
    assert not app.exception
    assert app.sidebar.selectbox("sweep").value == "full"
    app = visit(monkeypatch, environments["full"], "cycle", sweep="full", window="../..", cell="x")
    assert not app.exception


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("empty", "no sweep in these results"),
        ("missing", "no results here"),
        ("foreign", "not a Sounding database"),
        ("newer", "has schema 999, this code knows"),
        ("older", "has the older schema 1"),
        ("not a database", "cannot be opened"),
        ("all failed", "No run of this sweep gave a figure"),
        ("anchor only", "Only K=0 anchors of this sweep are finished"),
    ],
)
def test_nothing_to_show_is_explained(
    kind: str,
    said: str,
    environments: Environments,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = visit(monkeypatch, environments[kind], "overview")
    assert said in words(app)
    assert not figures(app)


def test_one_run_has_no_interval(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    said = words(visit(monkeypatch, environments["one run"], "overview"))
    assert "Only K=3 was measured" in said
    app = visit(monkeypatch, environments["one run"], "compare")
    assert set(app.table[0].value["Why no interval"]) == {"one run"}


def test_an_unknown_fact_is_called_so(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never "nan" or "None"."""
    app = visit(monkeypatch, environments["full"], "runs", run="full:r25b2k5a1")
    facts = next(table.value for table in app.table if "Fact" in table.value).set_index("Fact")["Value"]
    assert facts["cpu_governor"] == "not known"
    assert not set(map(str, facts)) & {"nan", "None", "<NA>"}


def test_runs_show_the_evidence(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], "runs")
    code = "\n".join(block.value for block in app.code)
    assert "ERROR out of memory" in code
    assert "--port 18931" in code
    ends = app.dataframe[0].value["Ended"].value_counts()
    assert (ends["failed"], ends["excluded"]) == (1, 1)
    app = visit(monkeypatch, environments["full"], "runs", run="full:r25b2k5a1")
    assert "Excluded from every figure: the canary ran 30% slower" in words(app)


def test_log_outside_the_data_directory_stays_unread(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sweeps = one_run()
    (head, (run, *rest)) = sweeps["single"]
    (tmp_path / "secret").write_text("hidden")

    data = build(tmp_path / "data", {"single": [head, [replace(run, log_path="../secret"), *rest]]}, {})
    app = visit(monkeypatch, {"SOUNDING_DATA": str(data)}, "runs", log="open")
    assert "The log is not in this data directory" in words(app)
    assert all("hidden" not in block.value for block in app.code)


def test_a_new_snapshot_shows_up_without_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = build(tmp_path / "data", all_failed(), {})
    app = visit(monkeypatch, {"SOUNDING_DATA": str(data)}, "overview")
    assert "gave a figure" in words(app)
    build(data, one_run(), {})
    app.query_params["sweep"] = "single"
    app.run()
    assert not app.exception
    assert "Only K=3 was measured" in words(app)


def write_progress(data: Path, **changes: object) -> None:
    """progress.json of a sweep under way, as the sweep writes it."""
    now = Progress(
        state="running",
        sweep="full",
        runs_total=8,
        run_id="full:r2b0k5a1",
        k=5,
        block=0,
        phase="measure",
        runs_done=2,
        requests_done=3,
        requests_total=10,
        eta_s=400.0,
        queue=("next-sweep",),
    )
    (data / "progress.json").write_text(json.dumps({**asdict(now), **changes}))


@pytest.mark.parametrize(
    ("changes", "said", "unsaid"),
    [
        ({}, "Running K=5, block 0: measuring", "Stale"),
        ({"age_s": 3600}, "Stale: it says running, but nothing was written for 1 h", "Left"),
        ({"state": "failed", "message": "2 runs failed."}, "Failed. 2 runs failed.", "Running"),
        ({"state": "done", "runs_done": 8, "queue": []}, "Done.", "Stale"),
        ({"phase": "launch", "age_s": 300}, "starting the server", "Stale"),
        ({"nonsense": 1}, "No sweep has reported", "Running"),
    ],
)
def test_live(
    changes: dict[str, object],
    said: str,
    unsaid: str,
    environments: Environments,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copy(Path(environments["full"]["SOUNDING_DATA"]) / "results.duckdb", tmp_path)
    changes = dict(changes)
    if "age_s" in changes:  # counted when the test runs, not when it is collected
        changes["updated_unix_s"] = time.time() - float(str(changes.pop("age_s")))
    write_progress(tmp_path, **changes)
    app = visit(monkeypatch, {"SOUNDING_DATA": str(tmp_path)}, "live")
    assert not app.exception
    told = words(app) + "".join(metric.label for metric in app.metric)
    assert said in told
    assert unsaid not in told


def test_live_without_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_progress(tmp_path)
    app = visit(monkeypatch, {"SOUNDING_DATA": str(tmp_path), "SOUNDING_DB": str(tmp_path / "results.duckdb")}, "live")
    assert not app.exception
    assert "Running K=5" in words(app)


def test_data_offers_every_table(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], "data", table="run")
    assert {"run", "request", "run_cell", "cycle_fit"} <= {
        option.split(" ")[0] for option in app.selectbox("table").options
    }
    assert len(app.dataframe[0].value) > 27
    assert [button.proto.label for button in app.get("download_button")] == [
        "Download CSV",
        "Download Parquet",
        "Download JSON",
        "Download results.duckdb",
    ]
