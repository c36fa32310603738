"""How fast the explorer is: `python -m tests.bench viewer` or `python -m tests.bench.bench_viewer [--rows 1e6,1e7]`.

On a simulated snapshot of a million step rows, and of ten: the first page of a fresh server in Chromium, switching
pages in Chromium (95% of them within), and 20 viewers at once. Beside the first two, what the reference app takes in
the same Chromium, and a Streamlit page with nothing but a title: on a slow machine that alone is over the target. The
20 open pages over the websocket, each with a pause for reading, in turn on the explorer and on the small reference app
of tests/bench/reference, so that a busy machine slows both. Prints figures beside their targets, and the load; exits 1
where a target is missed.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from pages.parts.menu import MENU
from tests.bench.big_snapshot import SWEEP, big_snapshot
from tests.bench.streamlit_client import Viewer, Visit
from tests.browser.viewer_server import ROOT, free_port, launch, viewer

REFERENCE = ROOT / "tests" / "bench" / "reference" / "app.py"
EMPTY = REFERENCE.with_name("empty.py")
# The reference is Streamlit as it comes: it keeps the collection of all garbage after every rerun, which the explorer's
# settings turn off. Doing without is one of the things that the explorer does to be fast.
AS_IT_COMES = {"STREAMLIT_RUNNER_POST_SCRIPT_GC": "true"}
REFERENCE_PAGES = ("throughput", "steps", "fit", "runs", "positions")
REFERENCE_TITLES = ("Throughput", "Tokens per step", "Cycle", "Runs", "Positions")
VIEWERS, VISITS, THINK_S = 20, 12, (0.5, 3.5)
FIRST_PAGE_S, SWITCH_P95_S, REFERENCE_P95_S = 1.5, 0.5, 1.5
AGAINST_REFERENCE, AGAINST_SMALLER = 1.3, 1.5
STARTS, ROUNDS = 3, 4
# V8 notes where in the source each instruction stands when it is first asked. Playwright, being a debugger, asks at
# once, and then it parses Plotly twice. Noting all from the start costs a reader more than not noting, but not twice.
NO_DEBUGGERS_TAX = "--js-flags=--no-enable-lazy-source-positions"
CLICKED = """() => addEventListener(
    'click', click => { window.began_ms = click.timeStamp }, { capture: true, once: true })"""
DRAWN = """({ title, charts }) => new Promise((resolve, reject) => {
    const all = part => [...document.querySelectorAll(part)]
    const drawn = chart => chart.querySelector('.cartesianlayer :is(.trace, .hm)')
    const now = () => (performance.now() - (window.began_ms ?? 0)) / 1000
    let said = null
    const says = () =>
        all('h1').some(heading => heading.textContent.trim() === title)
        && all('[data-testid=stApp][data-test-script-state=notRunning]').length === 1
    const stands = () =>
        says() && (said ??= now())
        && all('[data-testid=stSkeleton]').length === 0
        && all('[data-testid=stPlotlyChart]').every(drawn)
        && (!charts || all('[data-testid=stPlotlyChart]').length > 0)
    const look = () => requestAnimationFrame(stands()
        ? () => resolve([now(), said])
        : look)
    setTimeout(() => reject(new Error(`${title} never stood`)), 30000)
    look()
})"""


@dataclass(frozen=True, slots=True)
class InChromium:
    """Seconds until a page of one app stands. first_s, said_s: medians over fresh servers, said_s without charts."""

    first_s: float
    said_s: float
    cold_s: dict[str, float]  # first visit of each page: no target, but told
    switches: list[tuple[str, float]]  # page and seconds, every later switch

    @property
    def switch_p95_s(self) -> float:
        return p95(took_s for _, took_s in self.switches)

    @property
    def switch_median_s(self) -> float:
        return statistics.median(took_s for _, took_s in self.switches)

    @property
    def slowest(self) -> str:
        """The page with the slowest median switch, and that."""
        titles = {title for title, _ in self.switches}
        medians = {t: statistics.median(s for title, s in self.switches if title == t) for t in titles}
        title = max(medians, key=medians.__getitem__)
        return f"{medians[title]:.2f} s ({title})"


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds on one snapshot, in Chromium and by 20 viewers."""

    explorer: InChromium
    small: InChromium  # the reference app
    empty_first_s: float
    ours: list[Visit]
    reference: list[Visit]

    @property
    def ours_p95_s(self) -> float:
        return p95(visit.took_s for visit in self.ours if not visit.failed)

    @property
    def reference_p95_s(self) -> float:
        return p95(visit.took_s for visit in self.reference if not visit.failed)


def p95(values: Iterable[float]) -> float:
    """The 95% quantile of at least two values."""
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def in_chromium(environment: dict[str, str], scratch: Path, app: Path, titles: Sequence[str], link: str) -> InChromium:
    """Open one app's first page on fresh servers, then switch between its pages.

    Times are the page's own clock: from its start, or from the click as the browser dates it, to the frame after the
    one in which all of it stands. Playwright looks at pages up to half a second apart and waits before it clicks.
    """
    first: list[tuple[float, float]] = []
    cold: dict[str, float] = {}
    switches: list[tuple[str, float]] = []
    with sync_playwright() as playwright:
        browser = launch(playwright, NO_DEBUGGERS_TAX)
        window = browser.new_context(viewport={"width": 1280, "height": 900})
        port = free_port()  # one for all, so that Streamlit's scripts are in the browser's cache from the second on
        for start in range(STARTS + 1):
            with viewer(environment, scratch / "viewed.log", app=app, port=port) as address:
                tab = window.new_page()
                tab.goto(f"{address}/{link}")
                first.append(tab.evaluate(DRAWN, {"title": titles[0], "charts": app != EMPTY}))
                if start == STARTS and len(titles) > 1:  # each page once before: first visits are told apart
                    cold = {title: switch(tab, title) for title in (*titles[1:], titles[0])}
                    switches = [(title, switch(tab, title)) for title in order_of_visits(titles)]
                tab.close()
        browser.close()
    first_s, said_s = map(statistics.median, zip(*first[1:], strict=True))
    return InChromium(first_s, said_s, cold, switches)


def order_of_visits(pages: Sequence[str]) -> list[str]:
    """Every page ROUNDS times, never one twice in a row."""
    titles = [title for title in pages if title != "Live"]  # it draws itself anew all the time
    found: list[str] = []
    chance = random.Random(1)
    for _ in range(ROUNDS):
        chance.shuffle(titles)
        if found and titles[0] == found[-1]:
            titles.append(titles.pop(0))
        found += titles
    return found if found[0] != pages[-1] else found[1:]


def switch(tab: Page, title: str) -> float:
    """Seconds from the click on a page's link until its title and every chart are there and its script has ended."""
    place = tab.get_by_test_id("stSidebar").get_by_role("link", name=title, exact=True).bounding_box()
    assert place is not None, title
    tab.evaluate(CLICKED)
    tab.mouse.click(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    stands_s, _ = tab.evaluate(DRAWN, {"title": title, "charts": False})
    return float(stands_s)


def crowd(address: str, pages: Sequence[str], link: dict[str, str], visits: int = VISITS) -> list[Visit]:
    """What VIEWERS viewers see who open pages of their own choice, with a pause for reading before each."""
    seen: list[Visit] = []
    failed: list[str] = []

    def look(number: int) -> None:
        chance = random.Random(number)
        try:
            session = Viewer(address)
            for _ in range(visits):
                time.sleep(chance.uniform(*THINK_S))
                seen.append(session.open(chance.choice(pages), **link))
            session.close()
        except Exception as error:  # noqa: BLE001  whatever a viewer meets is an error of the bench's figure
            failed.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=look, args=(number,)) for number in range(VIEWERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen + [Visit(words, float("nan"), 0, True) for words in failed]


def measure(database: Path, scratch: Path) -> Figures:
    """All figures of one snapshot."""
    titles = [page.title for page in MENU]
    explorer = in_chromium({"SOUNDING_DB": str(database)}, scratch, ROOT / "app.py", titles, f"?sweep={SWEEP}")
    reference = {"RESULTS_DB": str(database), "RESULTS_SWEEP": SWEEP, **AS_IT_COMES}
    in_reference = in_chromium(reference, scratch, REFERENCE, REFERENCE_TITLES, "")
    empty = in_chromium({}, scratch, EMPTY, ["Empty"], "")
    ours_pages = [page.address for page in MENU]
    with (
        viewer({"SOUNDING_DB": str(database)}, scratch / "explorer.log") as ours,
        viewer(reference, scratch / "reference.log", app=REFERENCE) as small,
    ):
        seen: tuple[list[Visit], list[Visit]] = ([], [])
        for address, pages, link in ((ours, ours_pages, {"sweep": SWEEP}), (small, REFERENCE_PAGES, {})):
            session = Viewer(address)  # once each, alone: both have their caches filled, neither is measured cold
            for page in pages:
                session.open(page, **link)
            session.close()
        for _ in range(2):  # in turn, so that a change of the machine's load falls on both
            seen[0].extend(crowd(ours, ours_pages, {"sweep": SWEEP}, VISITS // 2))
            seen[1].extend(crowd(small, REFERENCE_PAGES, {}, VISITS // 2))
    return Figures(explorer, in_reference, empty.first_s, *seen)


def report(rows: int, found: Figures, smaller: Figures | None) -> bool:
    """Print figures beside targets; whether all are met."""
    errors = [visit for visit in (*found.ours, *found.reference) if visit.failed]
    lines = [
        ("first page of a fresh server", found.explorer.first_s, FIRST_PAGE_S),
        ("page switch, p95", found.explorer.switch_p95_s, SWITCH_P95_S),
        ("reference app, 20 viewers, p95", found.reference_p95_s, REFERENCE_P95_S),
        ("explorer, 20 viewers, p95", found.ours_p95_s, AGAINST_REFERENCE * found.reference_p95_s),
    ]
    if smaller is not None:  # the absolute targets are for the smaller snapshot
        pairs = (
            ("first page of a fresh server", found.explorer.first_s, smaller.explorer.first_s),
            ("page switch, p95", found.explorer.switch_p95_s, smaller.explorer.switch_p95_s),
            ("explorer, 20 viewers, p95", found.ours_p95_s, smaller.ours_p95_s),
        )
        lines = [(words, value, AGAINST_SMALLER * base) for words, value, base in pairs]
    print(f"\n{rows:.0e} step rows; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    for words, value, target in lines:
        print(f"  {words:34s} {value:6.2f} s   at most {target:5.2f}: {value / target:4.2f} of it")
    medians = [statistics.median(v.took_s for v in seen if not v.failed) for seen in (found.ours, found.reference)]
    print(f"  20 viewers, medians: explorer {medians[0]:.2f} s, reference {medians[1]:.2f} s; "
          f"p95 ratio {found.ours_p95_s / found.reference_p95_s:.2f}")  # fmt: skip
    ours, small = found.explorer, found.small
    print(f"  first page here: explorer {ours.first_s:.2f} s, reference {small.first_s:.2f} s (ratio "
          f"{ours.first_s / small.first_s:.2f}), an empty Streamlit page {found.empty_first_s:.2f} s; all but the "
          f"charts (Plotly has 4.7 MB): explorer {ours.said_s:.2f} s, reference {small.said_s:.2f} s")  # fmt: skip
    print(f"  switches here: median {ours.switch_median_s:.2f} s, reference {small.switch_median_s:.2f} s; p95 "
          f"{ours.switch_p95_s:.2f} s, reference {small.switch_p95_s:.2f} s; slowest page {ours.slowest}")  # fmt: skip
    cold = max(ours.cold_s, key=ours.cold_s.__getitem__)
    print(f"  first visits of pages: median {statistics.median(ours.cold_s.values()):.2f} s, "
          f"slowest {ours.cold_s[cold]:.2f} s ({cold})")  # fmt: skip
    opened = len(found.ours) + len(found.reference)
    print(f"  errors: {len(errors)} of {opened} pages {sorted({visit.page for visit in errors})}")
    return not errors and all(value <= target for _, value, target in lines)


def main() -> None:
    """Print all figures; exit 1 where one misses its target."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", default="1e6,1e7", help="step rows of the snapshots, smallest first")
    options.add_argument("--keep", type=Path, help="directory to build the snapshots in, and to find them again")
    asked = options.parse_args()
    good, smaller = True, None
    with tempfile.TemporaryDirectory() as folder:
        for rows in (int(float(part)) for part in asked.rows.split(",")):
            found = measure(big_snapshot(asked.keep or Path(folder), rows), Path(folder))
            good = report(rows, found, smaller) and good
            smaller = smaller or found
    sys.exit(not good)


if __name__ == "__main__":
    main()
