"""Links: the menu carries what is chosen, numbers lead to their own cell, and a name that is not there is told."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from streamlit.testing.v1 import AppTest

from pages.parts.menu import MENU
from tests.pages.page_databases import all_failed, build, cell_of, full, measured, run_of, sweep_of
from tests.pages.test_pages import Environments, visit, words

FOUR = "two-cells:4xtext:mixed"
SHARED = {"cell", "k", "run", "table", "columns"}  # names that mean the same on every page that has them


def menu(app: AppTest) -> dict[str, dict[str, str]]:
    """Title of a page -> what the menu's link to it says."""
    links = [link.proto for link in app.sidebar.get("page_link")]
    return {proto.label: dict(parse_qsl(proto.query_string)) for proto in links}


def test_pages_share_no_name_that_means_different_things() -> None:
    every = Counter(key for page in MENU for key in {*page.keys, *page.more})
    assert {key for key, pages in every.items() if pages > 1} <= SHARED


def test_the_menu_carries_a_cell_that_the_link_says(
    environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = visit(monkeypatch, environments["full"], "overview", sweep="two-cells", cell=FOUR)
    carried = menu(app)
    for page in MENU:
        assert carried[page.title] == {"sweep": "two-cells"} | ({"cell": FOUR} if "cell" in page.keys else {})


def test_the_menu_carries_a_choice_at_once(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], "overview", sweep="two-cells")
    assert "cell" not in menu(app)["Compare K"]
    app.selectbox("cell").select(FOUR).run()
    assert menu(app)["Compare K"]["cell"] == FOUR
    app.switch_page("pages/acceptance.py")
    for name, value in menu(app)["Acceptance"].items():
        app.query_params[name] = value
    app.run()
    assert app.selectbox("cell").value == FOUR
    assert menu(app)["Runs"]["cell"] == FOUR


def test_a_number_leads_to_runs_of_its_own_cell(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    for page in ("overview", "compare", "cycle", "acceptance", "whatif"):
        app = visit(monkeypatch, environments["full"], page, sweep="two-cells", cell=FOUR, rates="open")
        links = [
            dict(parse_qsl(urlsplit(cell.partition("](")[2].rstrip(")")).query))
            for table in app.table
            for column in table.value
            for cell in table.value[column].astype(str)
            if "](runs?" in cell
        ]
        if page in ("overview", "compare", "acceptance"):  # no cycle at this concurrency, so no fit and no what-if
            assert links, page
        own = [link for link in links if link["cell"] == FOUR]
        assert own or not links
        assert page == "compare" or own == links
        for link in own[:1]:
            there = visit(monkeypatch, environments["full"], "runs", **link)
            assert not there.warning
            assert there.selectbox("cell").value == FOUR


@pytest.mark.parametrize("page", [page.stem for page in MENU])
def test_a_sweep_that_is_not_there_is_told(
    page: str, environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = visit(monkeypatch, environments["full"], page, sweep="colleague", cell="colleague:1xtext:mixed")
    told = [warning.value for warning in app.warning if "The link's sweep colleague is not in these" in warning.value]
    assert told == ["The link's sweep colleague is not in these results. Shown is full."]
    assert not [warning.value for warning in app.warning if "Cell:" in warning.value]  # said once, not twice
    assert app.query_params["sweep"] in ("colleague", ["colleague"])  # what the colleague sent is still there
    assert all(said == {"sweep": "full"} for said in menu(app).values())


@pytest.mark.parametrize(
    ("page", "key", "value"),
    [
        ("overview", "cell", "two-cells:9xtext:mixed"),
        ("runs", "run", "two-cells:r99"),
        ("runs", "depth", "17"),
        ("compare", "with", "full,gone"),
        ("compare", "cells", "gone"),
        ("whatif", "tokens", "gone"),
    ],
)
def test_a_part_that_is_not_there_is_told(
    page: str, key: str, value: str, environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = visit(monkeypatch, environments["full"], page, sweep="two-cells", **{key: value})
    (told,) = (warning.value for warning in app.warning if "the link says" in warning.value)
    assert value.rpartition(",")[2] in told
    assert not app.exception


def test_an_only_cell_of_another_name_is_told(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], "overview", sweep="full", cell="full:9xtext:mixed")
    assert "full:9xtext:mixed, which is not here" in words(app)


def test_a_run_left_out_by_a_filter_is_no_wrong_link(
    environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = visit(monkeypatch, environments["full"], "runs", sweep="full", depth="5", run="full:r25b2k5a1")
    other = visit(monkeypatch, environments["full"], "runs", sweep="full", depth="4", run="full:r25b2k5a1")
    assert not [warning.value for seen in (app, other) for warning in seen.warning if "the link says" in warning.value]


def test_another_sweep_s_tokens_are_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A donor without figures is said to have none; one with several cells gives those of the cell most alike."""
    data = {"SOUNDING_DATA": str(build(tmp_path / "data", {**full(), **all_failed()}, {}))}
    app = visit(monkeypatch, data, "whatif", sweep="full", tokens="broken")
    assert "broken has no tokens per step" in words(app)
    assert not app.table
    app = visit(monkeypatch, data, "whatif", sweep="full", tokens="two-cells")
    assert "Tokens per step of two-cells: its cell with concurrency 1," in words(app)


def test_a_sweep_is_not_beside_itself(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changing to the sweep that was beside this one, or whose tokens were taken, is no wrong link."""
    for page, key in (("compare", "with"), ("whatif", "tokens")):
        app = visit(monkeypatch, environments["full"], page, sweep="full", **{key: "two-cells"})
        app.sidebar.selectbox("sweep").select("two-cells").run()
        assert key not in app.query_params
        assert not [warning.value for warning in app.warning if "the link says" in warning.value]


def test_a_sweep_put_beside_is_drawn(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], "compare", sweep="two-cells", cells=FOUR)
    app.multiselect("with").select("full").run()
    assert app.table[0].value["Sweep and cell"].str.startswith("full").any()
    app.multiselect("with").unselect("full").run()
    assert not [warning.value for warning in app.warning if "the link says" in warning.value]


def test_the_menu_passes_no_cell_on_that_is_not_there(
    environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = visit(monkeypatch, environments["full"], "overview", sweep="full", cell="full:9xtext:mixed")
    assert all(said == {"sweep": "full"} for said in menu(app).values())


def test_a_cell_without_figures_yet_is_no_wrong_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [cell_of("half", 1), cell_of("half", 4)]
    sweeps = {"half": [[sweep_of("half"), *cells], measured(run_of("half", 0, 0, 2), cells[0])]}
    data = {"SOUNDING_DATA": str(build(tmp_path, sweeps, {}))}
    app = visit(monkeypatch, data, "overview", sweep="half", cell="half:4xtext:mixed")
    assert "has no figures yet" in app.info[0].value
    assert not [warning.value for warning in app.warning if "the link says" in warning.value]
