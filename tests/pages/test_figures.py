"""Figures and tables agree, numbers lead to their runs, and the machine is shown where it was watched."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from backend.records import Canary, PowerSample, Record
from tests.pages.page_databases import build, full
from tests.pages.test_pages import Environments, figures, visit, words


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The full sweep with a canary around every run, and clocks while it ran."""
    (head, *runs) = full()["full"]
    told: list[list[Record]] = [head]
    for records in runs:
        run = records[0]
        began = run.started_unix_s or 0.0
        told.append(
            [
                *records,
                Canary(run.run_id, "gx0", "before", "matvec", 0.010 + 0.0001 * (run.order_index or 0), None),
                Canary(run.run_id, "gx0", "after", "matvec", None, "the node did not answer"),
                *(
                    PowerSample(
                        run.run_id,
                        "gx0",
                        began + second,
                        40.0 + second,
                        None,
                        50.0,
                        2400.0 - second,
                        "gpu",
                        "nvml",
                        None,
                    )
                    for second in range(5)
                ),
            ]
        )
    data = build(tmp_path_factory.mktemp("watched") / "data", {"full": told}, {})
    return {"SOUNDING_DATA": str(data)}


@pytest.mark.parametrize(("page", "sweep"), [("overview", "full"), ("overview", "published-glm52-gb10")])
def test_chart_and_table_say_the_same(
    page: str, sweep: str, environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = visit(monkeypatch, environments["full"], page, sweep=sweep)
    table = app.table[0].value.set_index("K")
    name = "mean over runs" if sweep == "full" else sweep
    for figure in figures(app)[:3]:
        title = figure["layout"]["yaxis"]["title"]["text"]
        (curve,) = (trace for trace in figure["data"] if trace["name"] == name)
        hovers = dict(zip(curve["x"], curve["text"], strict=True)) if isinstance(curve["x"], list) else None
        shown = hovers or dict(zip(range(len(curve["text"])), curve["text"], strict=True))
        for k, hover in shown.items():
            assert table.loc[int(k), title] in hover.replace(" tok/s", "").replace(" tokens", "").replace(" ms", "")
            assert f"{sweep}:" in hover  # sweep and cell
            assert "n=" in hover


def test_the_answer_has_probability_and_regret(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], "overview", sweep="full")
    every, named = (table.value for table in app.table[:2])
    assert set(every["P(fastest)"]) <= {"under 0.01", "over 0.99"} | {f"{p / 100:.2f}" for p in range(1, 100)}
    assert dict(zip(named["Depth"], named["K"], strict=True)) == {"production": 1, "recipe": 3, "native": 7}
    assert all("[" in loss for loss in named["Loss against fastest (%)"])
    published = visit(monkeypatch, environments["full"], "overview", sweep="published-glm52-gb10")
    assert "one run per K" in published.table[1].value["Why no interval"].iloc[0]


def test_a_number_leads_to_its_runs(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], "overview", sweep="full")
    assert (
        app.table[0].value.set_index("K").loc[5, "Runs"]
        == "[3](runs?sweep=full&depth=5&cell=full%3A1xtext%3Amixed&ended=done)"
    )
    there = visit(monkeypatch, environments["full"], "runs", sweep="full", depth="5", ended="done")
    assert len(there.dataframe[0].value) == 3
    there = visit(monkeypatch, environments["full"], "runs", sweep="full", depth="5")
    listed = there.dataframe[0].value
    assert set(listed["K"]) == {5}
    assert len(listed) == 5  # three that count, the failed and the excluded one
    there = visit(monkeypatch, environments["full"], "runs", sweep="full", depth="5", ended="failed")
    assert len(there.dataframe[0].value) == 1
    there = visit(monkeypatch, environments["full"], "runs", sweep="full", depth="0", ended="failed")
    assert "No run of this depth ended so" in words(there)
    assert not there.exception


BUNDLED = {"SOUNDING_DATA": "/nonexistent"}  # no results: the sweeps that come with the project


def test_a_fastest_depth_that_the_others_do_not_predict_is_told(
    environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = visit(monkeypatch, BUNDLED, "overview", sweep="demo-vllm-cpu").warning[0].value
    assert told.startswith("**Faster than the other depths predict**: they give 136.41 tok/s for K=6, -9.1 [-15.4,")
    elsewhere = visit(monkeypatch, environments["full"], "overview", sweep="published-glm52-gb10")
    assert "Faster than the other depths" not in words(elsewhere)  # single figures: no interval, no surprise


def test_a_run_leads_to_its_requests_and_anchors_have_a_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, BUNDLED, "runs", sweep="demo-vllm-cpu", run="demo-vllm-cpu:b1k3")
    (ring,) = (trace for trace in figures(app)[0]["data"] if trace["name"].startswith("anchor"))
    assert ring["marker"]["symbol"] == "circle-open"
    (run_id,) = (box.value for box in app.selectbox if box.label == "Run")
    (to_sql,) = (link.proto for link in app.get("page_link") if link.proto.label == "Requests of this run")
    asked = dict(parse_qsl(to_sql.query_string))["sql"]
    rows = visit(monkeypatch, BUNDLED, "sql", sweep="demo-vllm-cpu", sql=asked).dataframe[-1].value
    assert set(rows["run_id"]) == {run_id}


def test_words_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    said = words(visit(monkeypatch, BUNDLED, "overview"))
    assert all(f"**{word}**" in said for word in ("block", "cell", "anchor", "canary", "Holm", "composition"))


def test_the_runs_cell_is_a_choice(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (
        visit(monkeypatch, environments["full"], "runs", sweep="two-cells", cell=f"two-cells:{c}xtext:mixed")
        for c in (1, 4)
    )
    assert first.dataframe[0].value["Decode tok/s"].notna().all()
    assert "Decode tok/s" not in second.dataframe[0].value  # too few requests for a throughput at concurrency 4


def test_canaries_and_clocks_over_the_runs(watched: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, watched, "runs", sweep="full")
    assert not app.exception
    _, canary, clock = figures(app)
    assert canary["layout"]["yaxis"]["title"]["text"] == "Canary (ms)"
    assert clock["layout"]["yaxis"]["title"]["text"] == "SM clock (MHz)"
    said = words(app)
    assert "gx0 matvec: median 11.3" in said
    assert "lowest median 2398 MHz" in said
    assert "50 to 50 °C" in said


def test_what_was_not_watched_is_said(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    said = words(visit(monkeypatch, environments["full"], "runs", sweep="full"))
    assert "No canary" in said
    assert "No clock was recorded" in said


@pytest.mark.parametrize(("link", "expected"), [({}, "png"), ({"image": "svg"}, "svg")])
def test_charts_are_saved_as_the_link_says(
    link: dict[str, str], expected: str, environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = visit(monkeypatch, environments["full"], "overview", **link)
    config = json.loads(app.get("plotly_chart")[0].proto.config)
    assert config["toImageButtonOptions"]["format"] == expected
    assert app.toggle("image-svg").value is (expected == "svg")


def test_every_metric_has_its_n_in_words(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    for metric, over in (("decode_tok_s", "3 runs"), ("tokens_per_step", "5 prompts"), ("ttft_s", "3 runs")):
        app = visit(monkeypatch, environments["full"], "compare", sweep="full", metric=metric)
        assert not app.exception
        assert set(app.table[0].value["n"]) == {over}


def test_data_tells_other_clients(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], "data", sweep="full")
    shell, python, r = (block.value for block in app.code)
    path = str(Path(environments["full"]["SOUNDING_DATA"]) / "results.duckdb")
    assert shell.startswith(f"duckdb -readonly {path}")
    assert "sweep = 'full'" in shell
    told: dict[str, object] = {}
    assert python.splitlines()[-1].endswith(".df()")
    exec(python.replace("con.sql", "rows = con.sql"), told)  # what readers paste
    assert len(told["rows"]) == 8  # type: ignore[arg-type]
    assert "dbGetQuery" in r


def test_every_prompt_category_has_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, BUNDLED, "compare", sweep="demo-vllm-cpu")
    assert [heading.value for heading in app.subheader] == [
        f"{name}: Best so far: K=6, not resolved" for name in ("class", "doctest", "table")
    ]
    for table in (shown.value for shown in app.table[-3:]):
        assert list(table["K"]) == list(range(8))
        assert table["Loss against fastest (%)"].str.contains(r"\[", regex=True).all()
        assert table["Runs"].str.startswith("[3](runs?").all()
