"""Sweeps of the stand-in without exclusions, but for the tests that are about them."""

from __future__ import annotations

import pytest

from backend import sweep


@pytest.fixture(autouse=True)
def _no_exclusions(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy test machine the client is starved, and its runs would rightly be repeated."""
    monkeypatch.setattr(sweep, "exclusions", lambda _found: {})
