"""One writer a data directory, and what it repairs when it opens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backend.errors import Refused, StoreError
from tests.store.store_samples import EVERY_ROW, SWEEP, dump, fill, open_store


def test_a_second_writer_is_refused_by_name_of_the_first(tmp_path: Path) -> None:
    with open_store(tmp_path):
        with pytest.raises(Refused, match=rf"another writer \(process {os.getpid()}\)"):
            open_store(tmp_path)
        program = "import sys; from pathlib import Path; from backend.store.database import Store\n"
        done = subprocess.run(
            [sys.executable, "-c", f"{program}Store(Path({str(tmp_path)!r}))"], capture_output=True, text=True
        )
        assert f"Refused: {tmp_path}: another writer (process {os.getpid()})" in done.stderr
    open_store(tmp_path).close()


def test_a_failed_opening_lets_the_next_writer_in(tmp_path: Path) -> None:
    (tmp_path / "live.duckdb").write_text("no database " * 1000)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"live.duckdb: cannot be opened as a DuckDB database"):
            open_store(tmp_path)
    with open_store(tmp_path, fresh=True) as store:
        fill(store, *EVERY_ROW)
        assert len(dump(store)["run"]) == 2


def test_a_program_that_the_writer_started_does_not_keep_the_lock(tmp_path: Path) -> None:
    """The killed sweep's server lives on; it must not lock the sweep out of its own directory."""
    store = open_store(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(1, flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline()
        store.close()
        open_store(tmp_path).close()
    finally:
        child.communicate(b"")


def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="File exists"):
        open_store(tmp_path / "file")


def test_opening_repairs_torn_lines_and_says_so(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, *EVERY_ROW)
    path = tmp_path / "journal" / SWEEP / "a.jsonl"
    with path.open("ab") as file:
        file.write(b'{"record": "Requ')
    with open_store(tmp_path) as store:
        assert [torn.path for torn in store.torn] == [path]
        store.ingest()
        assert len(dump(store)["request"]) == 2
    with open_store(tmp_path) as store:
        assert store.torn == []
