"""Journals into tables: idempotent by key, columnar, unchanged files skipped.

A sweep's journals lie in one root (the data directory's own before the bundled ones), never mixed from two.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from backend.derived import Step, stage_columns, steps_of
from backend.errors import StoreError
from backend.records import Cell, Finding, Record, Request, Run, StageTimes, Sweep
from backend.store import journal
from backend.store.connection import Connection, transaction
from backend.store.schema import KEYS, arrow_table, table_of


@dataclass(frozen=True, slots=True)
class Ingested:
    """What a call took in: journal files read, records in them, sweeps dropped (gone, or taken in afresh)."""

    files: int
    records: int
    dropped_sweeps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _File:
    """A journal file at hand; `key` is its row in the ledger."""

    key: str
    sweep: str
    path: Path
    size_bytes: int
    mtime_ns: int


def take_in(con: Connection, roots: Mapping[str, Path]) -> Ingested:
    """Bring the tables up to the journals under `roots` (name -> directory of sweep directories, the first wins).

    One transaction a sweep; a sweep that changed loses its estimates. Raises StoreError for a corrupt or misplaced
    journal (after the other sweeps are in), duckdb.Error and pyarrow.ArrowException for what the database refuses.
    """
    files = _files(roots)
    ledger = {
        key: (sweep, size, mtime)
        for key, sweep, size, mtime in con.execute("SELECT journal, sweep, size_bytes, mtime_ns FROM ledger").fetchall()
    }
    stale = sorted(
        {sweep for key, (sweep, size, _) in ledger.items() if key not in files or files[key].size_bytes < size}
    )
    for sweep in stale:  # journals only ever grow: these were replaced or removed, so start over
        _drop(con, sweep)
    changed = [
        file
        for key, file in files.items()
        if file.sweep in stale or ledger.get(key) != (file.sweep, file.size_bytes, file.mtime_ns)
    ]
    records, faults = 0, []
    for sweep in sorted({file.sweep for file in changed}):
        try:
            records += _take_in_sweep(con, sweep, [file for file in changed if file.sweep == sweep])
        except StoreError as error:  # told below: one broken journal must not keep the other sweeps out
            faults.append(error)
    if faults:
        raise faults[0]
    return Ingested(len(changed), records, tuple(stale))


def _files(roots: Mapping[str, Path]) -> dict[str, _File]:
    """Ledger key -> file, in the order in which files are read: sorted by name, sweep.jsonl last."""
    found: dict[str, _File] = {}
    taken: set[str] = set()
    for name, root in roots.items():
        paths = sorted(root.glob("*/*.jsonl"), key=lambda path: (path.parent, path.name == journal.SWEEP_FILE, path))
        for path in paths:
            if path.parent.name not in taken:
                key, stat = f"{name}/{path.parent.name}/{path.name}", path.stat()
                found[key] = _File(key, path.parent.name, path, stat.st_size, stat.st_mtime_ns)
        taken |= {path.parent.name for path in paths}
    return found


def _take_in_sweep(con: Connection, sweep: str, files: list[_File]) -> int:
    by_class: dict[type[Record], list[Record]] = {}
    counts = []
    for file in files:
        records = journal.read(file.path).records
        for record in records:
            if isinstance(record, Sweep | Cell | Run | Finding) and record.sweep != sweep:
                raise StoreError(
                    f"holds a record of sweep {record.sweep!r}",
                    where=str(file.path),
                    fix="a sweep's journals lie in the directory of its name",
                )
            by_class.setdefault(type(record), []).append(record)
        counts.append((file, len(records)))
    with transaction(con):
        for cls, rows in by_class.items():
            if cls is StageTimes:
                _insert_stage_times(con, rows)
                continue
            table = arrow_table(cls, rows)
            insert(con, table_of(cls), table)
            if cls is Request:
                _insert_steps(con, table, rows)
        con.execute("DELETE FROM estimate WHERE sweep = ?", [sweep])  # no estimate outlives its data
        now = time.time()
        for file, count in counts:
            con.execute(
                "INSERT OR REPLACE INTO ledger VALUES (?, ?, ?, ?, ?, ?)",
                [file.key, file.sweep, file.size_bytes, file.mtime_ns, count, now],
            )
    return sum(count for _, count in counts)


def _insert_steps(con: Connection, requests: pa.Table, rows: list[Record]) -> None:
    """The steps of these requests in place of any they had before."""
    latest = {row.request_id: row for row in rows if isinstance(row, Request)}
    steps: list[Step] = []
    for request in latest.values():
        try:
            steps.extend(steps_of(request))
        except ValueError as error:
            raise StoreError("step_drafted and step_accepted differ in length", where=request.request_id) from error
    con.register("incoming_requests", requests)
    try:
        con.execute("DELETE FROM step WHERE request_id IN (SELECT request_id FROM incoming_requests)")
    finally:
        con.unregister("incoming_requests")
    insert(con, "step", arrow_table(Step, steps))


def _insert_stage_times(con: Connection, rows: list[Record]) -> None:
    """The stages of these requests in place of any they had before (the table has no key of its own: see 0006)."""
    latest = {(row.request_id, row.rank): row for row in rows if isinstance(row, StageTimes)}
    table = pa.table(stage_columns(list(latest.values())))
    con.register("incoming_stages", table)
    try:
        con.execute("DELETE FROM stage_time WHERE request_id IN (SELECT request_id FROM incoming_stages)")
        con.execute("INSERT INTO stage_time BY NAME SELECT * FROM incoming_stages")
    finally:
        con.unregister("incoming_stages")


def insert(con: Connection, table: str, rows: pa.Table) -> None:
    """Insert or replace by primary key, columns matched by name. Raises duckdb.Error."""
    if rows.num_rows == 0:
        return
    con.register("incoming", rows)
    try:
        con.execute(f'INSERT OR REPLACE INTO "{table}" BY NAME SELECT * FROM incoming')
    finally:
        con.unregister("incoming")


def _drop(con: Connection, sweep: str) -> None:
    """Delete everything of a sweep, its estimates and ledger rows too."""
    with transaction(con):
        for table, key in KEYS.items():
            if table in ("sweep", "cell", "run", "finding"):
                con.execute(f'DELETE FROM "{table}" WHERE sweep = ?', [sweep])
            else:  # every other key begins with a run id, and every run id with its sweep's name
                con.execute(f'DELETE FROM "{table}" WHERE starts_with("{key[0]}", ?)', [f"{sweep}:"])
        con.execute("DELETE FROM estimate WHERE sweep = ?", [sweep])
        con.execute("DELETE FROM ledger WHERE sweep = ?", [sweep])
