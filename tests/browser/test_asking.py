"""What a reader does with the explorer: asks in SQL, saves files and pictures, follows a number, uses the keyboard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import Browser, Page, expect
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from backend.store import queries
from tests.browser.viewer_server import settle

pytestmark = pytest.mark.browser
ASKED = "SELECT k, run_id, decode_tok_s, valid FROM run_cell WHERE sweep = 'full' AND k > 4 ORDER BY run_id"


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """One tab for all, so that Streamlit's scripts are loaded once."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    yield tab
    tab.close()


def test_downloads_are_the_query(page: Page, address: str, data: Path, tmp_path: Path) -> None:
    page.goto(f"{address}/sql?sql={ASKED}&y=decode_tok_s")
    settle(page, "SQL")
    con = queries.connect(data / "results.duckdb")
    expected = con.execute(ASKED).df()
    con.close()
    found = {}
    for label, read in (("CSV", pd.read_csv), ("Parquet", pd.read_parquet)):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Download {label}", exact=True).click()
        file = tmp_path / download.value.suggested_filename
        download.value.save_as(file)
        found[label] = read(file)
        assert file.name == f"query.{label.lower()}"
    for frame in found.values():
        pd.testing.assert_frame_equal(frame, expected, check_dtype=False, rtol=1e-12)


def test_a_query_that_is_run_is_in_the_link(page: Page, address: str) -> None:
    page.goto(f"{address}/sql")
    settle(page, "SQL")
    page.get_by_role("textbox", name="Query").fill("SELECT 6 * 7 AS answer")
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url("**/sql?*sql=SELECT*answer*")
    expect(page.get_by_text("1 row, ")).to_be_visible()
    page.go_back()
    expect(page.get_by_text("8 rows, ")).to_be_visible()


@pytest.mark.parametrize(("link", "suffix", "begins"), [("", ".png", b"\x89PNG"), ("&image=svg", ".svg", b"<svg")])
def test_a_chart_is_saved_from_its_own_button(
    link: str, suffix: str, begins: bytes, page: Page, address: str, tmp_path: Path
) -> None:
    page.goto(f"{address}/?sweep=full{link}")
    settle(page, "Overview")
    page.locator(".js-plotly-plot").first.hover()
    with page.expect_download() as download:
        page.locator(".modebar-btn[data-title^='Download plot']").first.click()
    assert download.value.suggested_filename == f"sounding-curve-decode_tok_s{suffix}"
    download.value.save_as(tmp_path / "chart")
    assert (tmp_path / "chart").read_bytes().startswith(begins)


def test_the_setting_for_svg_is_in_the_link(page: Page, address: str) -> None:
    page.goto(f"{address}/?sweep=full")
    settle(page, "Overview")
    page.get_by_test_id("stSidebar").get_by_text("Save charts as SVG").click()
    page.wait_for_url("**image=svg**")
    runs = page.get_by_test_id("stSidebar").get_by_role("link", name="Runs", exact=True)
    expect(runs).to_have_attribute("href", re.compile("image=svg"))  # the links follow the choice, a moment later
    runs.click()
    settle(page, "Runs")
    assert "image=svg" in page.url


def test_a_part_that_is_opened_is_in_the_link(page: Page, address: str) -> None:
    page.goto(f"{address}/acceptance?sweep=full")
    settle(page, "Acceptance")
    table = page.get_by_role("table", name=re.compile("Survival, conditional and per-drafted rates"))
    expect(table).to_have_count(0)
    page.get_by_text("Every rate as a table").click()
    expect(table).to_be_visible()
    expect(page).to_have_url(re.compile(r"[?&]rates=open"))
    page.reload()
    settle(page, "Acceptance")
    expect(table).to_be_visible()
    page.get_by_text("Every rate as a table").click()
    expect(table).to_have_count(0)
    expect(page).to_have_url(re.compile(r"[?&]rates=closed"))


def test_a_number_in_a_table_leads_to_its_runs(page: Page, address: str) -> None:
    page.goto(f"{address}/?sweep=full")
    settle(page, "Overview")
    with page.expect_popup() as opened:
        page.get_by_test_id("stTable").first.get_by_role("link", name="3").nth(5).click()
    runs = opened.value
    settle(runs, "Runs")
    assert "depth=5" in runs.url
    expect(runs.get_by_role("combobox", name="Depth K")).to_have_value("5")
    runs.close()


def test_the_keyboard_alone_is_enough(page: Page, address: str) -> None:
    page.goto(f"{address}/?sweep=full")
    settle(page, "Overview")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText") == "Compare K":
            break
    page.keyboard.press("Enter")
    settle(page, "Compare K")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('aria-label') || ''").endswith("Metric"):
            break
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**metric=**")


def test_a_wide_screen_is_used(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 2560, "height": 1200})
    page.goto(f"{address}/?sweep=full")
    settle(page, "Overview")
    assert page.evaluate("document.documentElement.scrollWidth") <= 2560
    chart = page.locator(".js-plotly-plot").first.bounding_box()
    page.set_viewport_size({"width": 1280, "height": 900})
    assert chart is not None
    assert chart["width"] > 1000


def test_another_site_gets_no_session(address: str) -> None:
    """Cross-origin requests stay refused (server.enableCORS): a page elsewhere cannot read here."""
    stream = address.replace("http://", "ws://") + "/_stcore/stream"
    with pytest.raises(InvalidStatus):
        connect(stream, subprotocols=["streamlit"], origin="http://evil.example")  # type: ignore[arg-type]
    connect(stream, subprotocols=["streamlit"], origin=address).close()  # type: ignore[arg-type]


def test_hover_tells_k_sweep_cell_and_n(page: Page, address: str) -> None:
    page.goto(f"{address}/?sweep=full")
    settle(page, "Overview")
    told = page.evaluate(
        "Array.from(document.querySelector('.js-plotly-plot').data).find(t => t.name == 'mean over runs').text[5]"
    )
    assert all(part in told for part in ("K=5", "tok/s", "[", "n=3", "full:1xtext:mixed")), json.dumps(told)
