"""The explorer in a real browser: what AppTest cannot see, namely drawing, the URL bar, timers, requests, faults."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pandas as pd
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from pages.parts.menu import MENU
from tests.browser.viewer_server import CHROMIUM_FLAGS, PAGES, WITH_CHART, chromium_path, settle, viewer
from tests.pages.page_databases import all_failed, build, cell_of, measured, one_run, run_of

pytestmark = pytest.mark.browser


@dataclass(frozen=True)
class Opened:
    """A page that was opened once for several tests: what it asked for and what it complained of."""

    path: str
    tab: Page
    asked: list[str]
    complaints: list[str]


def watch(tab: Page) -> tuple[list[str], list[str]]:
    """(addresses asked for, console and page errors) from now on."""
    asked: list[str] = []
    complaints: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        # On a deep link Streamlit's client looks for its server under the page's own path first, and gets a 404.
        probe = re.search(r"/[a-z]+/_stcore/(health|host-config)$", message.location.get("url", ""))
        if message.type == "error" and not probe:
            complaints.append(f"{message.text} {message.location}")

    tab.on("request", lambda request: asked.append(request.url))
    tab.on("websocket", lambda socket: asked.append(socket.url.replace("ws://", "http://")))
    tab.on("console", heard)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    return asked, complaints


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One window for all, so that Streamlit's scripts are loaded once."""
    window = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    yield window
    window.close()


@pytest.fixture(scope="module", params=PAGES, ids=[path or "overview" for path in PAGES])
def opened(request: pytest.FixtureRequest, context: BrowserContext, address: str) -> Iterator[Opened]:
    """Every page in turn, opened by its deep link, with every part of it open."""
    tab = context.new_page()
    asked, complaints = watch(tab)
    parts = next(page.more for page in MENU if page.address == request.param)
    tab.goto(f"{address}/{request.param}?{urlencode(dict.fromkeys(parts, 'open'))}")
    settle(tab, PAGES[request.param], chart=request.param in WITH_CHART)
    yield Opened(request.param, tab, asked, complaints)
    tab.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A fresh tab whose errors fail the test."""
    tab = context.new_page()
    _, complaints = watch(tab)
    yield tab
    tab.close()
    assert complaints == []


def faults(tab: Page) -> list[tuple[str, str, list[str]]]:
    """What axe finds and goes on finding: rule, words, the first elements. Colours take a moment to change."""
    deadline = time.monotonic() + 5
    while (found := Axe().run(tab).response["violations"]) and time.monotonic() < deadline:
        tab.wait_for_timeout(200)
    return [(fault["id"], fault["help"], [node["html"][:160] for node in fault["nodes"][:3]]) for fault in found]


def test_page_is_drawn(opened: Opened) -> None:
    assert opened.tab.get_by_test_id("stException").count() == 0
    if opened.path not in WITH_CHART:
        told = opened.tab.locator("[data-testid=stDataFrame], [data-testid=stAlert]")  # rows, or why there are none
        expect(told.first).to_be_visible()


def test_page_asks_nobody_else(opened: Opened, address: str) -> None:
    assert [url for url in opened.asked if not url.startswith((address, "data:", "blob:"))] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_is_accessible(scheme: str, opened: Opened) -> None:
    opened.tab.emulate_media(color_scheme=scheme)
    expect(opened.tab.get_by_test_id("stApp")).to_have_css("color-scheme", scheme)
    assert faults(opened.tab) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_of_charts_has_the_colour_of_the_page(scheme: str, opened: Opened) -> None:
    opened.tab.emulate_media(color_scheme=scheme)
    expect(opened.tab.get_by_test_id("stApp")).to_have_css("color-scheme", scheme)
    colours = opened.tab.evaluate("""() => {
        const words = ':is(.xtick, .ytick, .g-xtitle, .g-ytitle, .legend, .annotation) text'
        const drawn = [...document.querySelectorAll('.js-plotly-plot ' + words)].map(t => getComputedStyle(t).fill)
        return [getComputedStyle(document.querySelector('[data-testid=stMain]')).color, ...drawn]
    }""")
    assert len(set(colours)) == 1, set(colours)
    assert opened.path not in WITH_CHART or len(colours) > 10


def test_labels_fit_into_the_margins(opened: Opened) -> None:
    grown = opened.tab.evaluate("""() => [...document.querySelectorAll('.js-plotly-plot')].flatMap(chart =>
        ['l', 'r', 't', 'b'].filter(side => chart._fullLayout._size[side] > chart._fullLayout.margin[side])
        .map(side => [chart._fullLayout.yaxis.title.text, side, chart._fullLayout._size[side]]))""")
    assert grown == []  # Plotly draws a chart a second time when a margin grows: slower, never wrong


def test_narrow_page_does_not_scroll_sideways(opened: Opened) -> None:
    opened.tab.set_viewport_size({"width": 360, "height": 780})
    opened.tab.wait_for_timeout(500)
    main = "document.querySelector('[data-testid=stMain]')"
    assert opened.tab.evaluate(f"{main}.scrollWidth") <= opened.tab.evaluate(f"{main}.clientWidth")
    assert opened.tab.evaluate("document.documentElement.scrollWidth") <= 360


def test_page_had_no_error(opened: Opened) -> None:
    assert opened.complaints == []


def test_deep_links_on_a_fresh_server(browser: Browser, data: Path, tmp_path: Path) -> None:
    """The first visit of a server's life may be a deep link: the page and sweep asked for, and no legacy menu."""
    for path, title in list(PAGES.items())[1:]:  # a server each: only its first visit can go wrong so
        with viewer({"SOUNDING_DATA": str(data)}, tmp_path / "log") as fresh:
            tab = browser.new_page()
            tab.goto(f"{fresh}/{path}?sweep=two-cells")
            settle(tab, title, chart=False)
            expect(tab.get_by_test_id("stSidebarNav")).to_have_count(0)
            links = tab.get_by_test_id("stSidebar").get_by_test_id("stPageLink")
            expect(links).to_have_count(len(PAGES))
            expect(tab.get_by_test_id("stSidebar").get_by_role("link", name="Runs")).to_have_attribute(
                "href", re.compile(r"^/?runs\?sweep=two-cells$")
            )
            assert "sweep=two-cells" in tab.url
            tab.close()


def test_links_and_history_restore_the_view(page: Page, address: str) -> None:
    page.goto(f"{address}/compare?sweep=two-cells&metric=cycle_ms&k=1%2C2")
    settle(page, "Compare K")
    expect(page.get_by_test_id("stSidebar").get_by_role("combobox")).to_have_value("two-cells")
    assert {"sweep=two-cells", "metric=cycle_ms", "k=1%2C2"} <= set(page.url.split("?")[1].split("&"))
    sidebar = page.get_by_test_id("stSidebar")
    sidebar.get_by_role("link", name="Cycle fit").click()
    settle(page, "Cycle fit")
    assert "sweep=two-cells" in page.url
    sidebar.get_by_role("combobox").click()
    page.get_by_role("option", name="full").click()
    page.wait_for_url("**/cycle?*sweep=full*")
    overview = sidebar.get_by_role("link", name="Overview")
    expect(overview).to_have_attribute("href", re.compile("sweep=full"))  # the links follow the choice, a moment later
    overview.click()
    settle(page, "Overview")
    assert page.url.endswith("?sweep=full")
    page.go_back()
    settle(page, "Cycle fit")
    assert "sweep=full" in page.url
    page.go_back()
    page.wait_for_url("**/cycle?*sweep=two-cells*")


def test_live_follows_the_file_without_a_reload(page: Page, address: str, data: Path) -> None:
    now = {
        "state": "running",
        "sweep": "full",
        "run_id": "full:r1",
        "k": 4,
        "block": 0,
        "phase": "measure",
        "runs_done": 1,
        "runs_total": 8,
        "runs_failed": 0,
        "requests_done": 3,
        "requests_total": 10,
        "started_unix_s": time.time() - 60,
        "updated_unix_s": time.time(),
        "eta_s": 420.0,
        "message": "",
        "queue": [],
    }
    file = data / "progress.json"
    file.write_text(json.dumps(now))
    try:
        page.goto(f"{address}/live")
        settle(page, "Live")
        expect(page.get_by_text("Running K=4, block 0: measuring.")).to_be_visible()
        fresh = file.with_suffix(".tmp")
        fresh.write_text(json.dumps({**now, "k": 6, "requests_done": 9, "updated_unix_s": time.time()}))
        fresh.replace(file)
        expect(page.get_by_text("Running K=6, block 0: measuring.")).to_be_visible(timeout=8000)
        expect(page.get_by_text("Requests of this run: 9 of 10")).to_be_visible()
    finally:
        file.unlink()


def test_live_follows_the_stored_runs_without_a_reload(page: Page, tmp_path: Path) -> None:
    data = build(tmp_path / "data", one_run(), {})
    with viewer({"SOUNDING_DATA": str(data)}, tmp_path / "viewer.log") as address:
        page.goto(f"{address}/live")
        settle(page, "Live", chart=False)
        first = page.get_by_text("Snapshot ").inner_text()
        cell = cell_of("single")
        more = [measured(run_of("single", k, 0, k), cell) for k in (1, 2)]
        build(data, {"single": [*one_run()["single"], *more]}, {})
        expect(page.get_by_text("Snapshot ")).not_to_have_text(first, timeout=15000)
        expect(page.locator("[aria-label^='3 runs in order'], [alt^='3 runs in order']").first).to_be_attached()


def test_downloads_are_the_tables(page: Page, address: str, tmp_path: Path) -> None:
    page.goto(f"{address}/data?table=k_summary")
    settle(page, "Data", chart=False)
    rows = {}
    for label, name in (("CSV", "k_summary.csv"), ("Parquet", "k_summary.parquet"), ("JSON", "k_summary.json")):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Download {label}", exact=True).click()
        assert download.value.suggested_filename == name
        download.value.save_as(tmp_path / name)
    rows["csv"] = pd.read_csv(tmp_path / "k_summary.csv")
    rows["parquet"] = pd.read_parquet(tmp_path / "k_summary.parquet")
    rows["json"] = pd.read_json(tmp_path / "k_summary.json")
    keys = ["sweep", "cell_id", "k"]
    told = {kind: frame.sort_values(keys)["decode_tok_s"].dropna().round(9).tolist() for kind, frame in rows.items()}
    assert told["csv"] == told["parquet"] == told["json"]
    assert len(told["csv"]) == 12  # at concurrency 4 there are too few requests for a throughput
    assert {len(frame) for frame in rows.values()} == {16}
    with page.expect_download() as download:
        page.get_by_role("button", name="Download results.duckdb").click()
    download.value.save_as(tmp_path / "results.duckdb")
    assert (tmp_path / "results.duckdb").read_bytes()[8:12] == b"DUCK"


def test_a_replaced_snapshot_shows_up(browser: Browser, tmp_path: Path) -> None:
    data = build(tmp_path / "data", all_failed(), {})
    with viewer({"SOUNDING_DATA": str(data)}, tmp_path / "log") as url:
        tab = browser.new_page()
        tab.goto(f"{url}/runs")
        settle(tab, "Runs")
        first = tab.get_by_test_id("stSidebar").get_by_text("Snapshot").inner_text()
        build(data, {}, {})
        tab.get_by_role("link", name="Data").click()
        settle(tab, "Data", chart=False)
        expect(tab.get_by_test_id("stSidebar").get_by_text("Snapshot")).not_to_have_text(first)
        tab.close()


def test_a_public_name_is_refused(address: str, browser: Browser) -> None:
    """DNS rebinding: the page of another site that had its own name point here sees no result."""
    port = address.rsplit(":", 1)[1]
    rebound = browser.browser_type.launch(
        executable_path=chromium_path(), args=[*CHROMIUM_FLAGS, "--host-resolver-rules=MAP lab.example.com 127.0.0.1"]
    )
    tab = rebound.new_page()
    tab.goto(f"http://lab.example.com:{port}/")
    expect(tab.get_by_text("does not answer to the name in your address bar")).to_be_visible()
    assert tab.locator(".js-plotly-plot").count() == 0
    rebound.close()


def test_the_server_asks_nobody_for_its_own_address(data: Path, browser: Browser, tmp_path: Path) -> None:
    """A server of its own: what another site's attempt makes Streamlit log is not what is looked for."""
    log = tmp_path / "log"
    with viewer({"SOUNDING_DATA": str(data)}, log) as fresh:
        tab = browser.new_page()
        tab.goto(fresh)
        settle(tab, "Overview", chart=False)
        tab.close()
    said = log.read_text()
    assert "URL: http://localhost:" in said
    assert "external" not in said.lower()
    assert "Traceback" not in said
