"""One viewer and one Chromium for all browser tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.viewer_server import launch, viewer
from tests.pages.page_databases import build, full


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with three blocks of K=0..7 and a second sweep of two cells."""
    return build(tmp_path_factory.mktemp("viewer") / "data", full(), {})


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the viewer prints."""
    return tmp_path_factory.mktemp("log") / "viewer.log"


@pytest.fixture(scope="session")
def address(data: Path, log: Path) -> Iterator[str]:
    """A viewer on it."""
    with viewer({"SOUNDING_DATA": str(data)}, log) as url:
        yield url


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    with sync_playwright() as playwright:
        chromium = launch(playwright)
        yield chromium
        chromium.close()
