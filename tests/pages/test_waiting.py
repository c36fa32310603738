"""What is the same for every reader is made once: for the first one before the server takes readers."""

from __future__ import annotations

import runpy

import pytest
import streamlit as st

from pages.parts import show
from pages.parts.menu import MENU, Page
from tests.pages.test_pages import APP, PAGES, Environments, figures, visit


def nothing_more_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a chart or table that is made, not found, is an exception on the page."""

    def made_again(*_: object) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr(show, "Chart", made_again)
    monkeypatch.setattr(show, "Table", made_again)


@pytest.mark.parametrize("page", MENU, ids=PAGES)
def test_a_second_reader_waits_for_nothing_to_be_made(
    page: Page, environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = dict.fromkeys(page.more, "open")
    visit(monkeypatch, environments["full"], page.stem, **opened)
    nothing_more_is_made(monkeypatch)
    assert not visit(monkeypatch, environments["full"], page.stem, **opened).exception


def test_the_first_reader_of_a_server_waits_for_nothing_to_be_made(
    environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    st.cache_resource.clear()
    monkeypatch.delenv("SOUNDING_DB", raising=False)
    for name, value in environments["full"].items():
        monkeypatch.setenv(name, value)
    runpy.run_path(str(APP.with_name("app.py")))
    nothing_more_is_made(monkeypatch)
    app = visit(monkeypatch, environments["full"], "overview")
    assert not app.exception
    assert figures(app)
