"""A store with one sweep and one cell, and the rows of its views."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.store.database import Store
from tests.store.store_samples import cell, fill, open_store, sweep


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path) as store:
        fill(store, sweep(), cell())
        yield store
