"""A real viewer in a process of its own, and a real Chromium to look at it with. Shared by tests and screenshots."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, Playwright

from pages.parts.menu import MENU

ROOT = Path(__file__).parents[2]
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
]
PAGES = {page.address: page.title for page in MENU}
WITH_CHART = tuple(page.address for page in MENU if page.chart)
READY_S = 30.0


def chromium_path() -> str:
    """Debian's Chromium. `make test` installs it; without it the tests fail, they are not skipped."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        raise FileNotFoundError("Chromium is not installed: apt-get install chromium fonts-dejavu")
    return path


def launch(playwright: Playwright, *flags: str) -> Browser:
    """Chromium, headless."""
    return playwright.chromium.launch(executable_path=chromium_path(), args=[*CHROMIUM_FLAGS, *flags])


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def viewer(
    environment: Mapping[str, str], log: Path, *, app: Path = ROOT / "app.py", port: int | None = None
) -> Iterator[str]:
    """Start the explorer, or another app, on a port, else a free one; its address once /_stcore/health says "ok"."""
    port = port or free_port()
    command = [sys.executable, "-m", "streamlit", "run", str(app), f"--server.port={port}"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SOUNDING_", "STREAMLIT_"))}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**clean, **environment}, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_healthy(f"http://127.0.0.1:{port}", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def wait_healthy(address: str, log: Path) -> None:
    """Until the body of /_stcore/health is "ok"."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=2) as answer:
                if answer.read() == b"ok":
                    return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            pass
        time.sleep(0.1)
    raise TimeoutError(f"the viewer was not healthy in {READY_S:.0f} s:\n{log.read_text()[-2000:]}")


def settle(page: Page, title: str, *, chart: bool = True) -> None:
    """Until the page's title and, where there is one, a drawn chart are there and the script has ended."""
    page.get_by_role("heading", name=title, level=1, exact=True).wait_for()
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
    if chart:
        page.wait_for_selector(".js-plotly-plot .main-svg .scatterlayer .trace")
    page.wait_for_function("document.querySelectorAll('[data-testid=stSkeleton]').length === 0")
