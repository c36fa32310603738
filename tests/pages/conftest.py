"""One of each kind of database, made once."""

from __future__ import annotations

import pytest

from tests.pages.page_databases import databases


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Environment variables of a viewer, by kind of database."""
    return databases(tmp_path_factory.mktemp("databases"))
