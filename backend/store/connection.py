"""The one place that opens a DuckDB file: read-write for the holder of the writer lock, read-only for snapshots.

The file is attached to a fresh in-memory database under a fixed name. So a reader never gets the old file after a
rename (duckdb.connect(path) can, while any connection to that path is open), and the writer can close the file for a
copy without ending its connection. Extensions are never looked for on the network.
"""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa

from backend.errors import StoreError
from backend.store.paths import NO_RESULTS

Connection = duckdb.DuckDBPyConnection
NAME = "sounding"  # the attached file's name inside a connection
STORAGE_VERSION = "v1.5.0"  # readable by DuckDB 1.5 and 2.0; what 2.0 writes by default is not
SMALL_BLOCK_BYTES = 16_384  # the least DuckDB takes; by default a table of one row fills 256 kB
MIGRATIONS = Path(__file__).parent / "migrations"
OFFLINE = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}

LEDGER = """
CREATE TABLE migration (version BIGINT PRIMARY KEY, name VARCHAR NOT NULL, applied_unix_s DOUBLE NOT NULL);
COMMENT ON TABLE migration IS 'Schema changes applied to this file, a row each.';
COMMENT ON COLUMN migration.version IS 'Number of the SQL file';
COMMENT ON COLUMN migration.name IS 'Its name';
COMMENT ON COLUMN migration.applied_unix_s IS 'When, seconds since 1970';
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """A numbered SQL file, applied in one transaction with its ledger row."""

    version: int
    name: str
    sql: str


@cache
def migrations(directory: Path = MIGRATIONS) -> tuple[Migration, ...]:
    """All migrations in order. Raises StoreError unless the numbers are 1, 2, 3, ..."""
    found = []
    for path in sorted(directory.glob("*.sql")):
        match = re.fullmatch(r"(\d{4})_(\w+)", path.stem)
        if match is None:
            raise StoreError("is not named <4 digits>_<name>.sql", where=str(path))
        found.append(Migration(int(match[1]), match[2], path.read_text(encoding="utf-8")))
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise StoreError("migrations are not numbered 1, 2, 3, ...", where=str(directory))
    return tuple(found)


def schema_version() -> int:
    """Number of the last migration that this code knows."""
    return len(migrations())


def attach(con: Connection, path: Path, *, read_only: bool) -> None:
    """Attach a file and make it the default. Raises StoreError where it is no DuckDB file or cannot be opened."""
    quoted = str(path).replace("'", "''")
    options = "READ_ONLY" if read_only else f"STORAGE_VERSION '{STORAGE_VERSION}'"
    try:
        con.execute(f"ATTACH '{quoted}' AS {NAME} ({options})")
        con.execute(f"USE {NAME}")
    except duckdb.Error as error:
        first_line = str(error).splitlines()[0]
        raise StoreError(f"cannot be opened as a DuckDB database: {first_line}", where=str(path)) from error


def detach(con: Connection) -> None:
    """Write everything into the file and close it; the connection lives on. Raises duckdb.Error."""
    con.execute(f"CHECKPOINT {NAME}")
    con.execute("USE memory")
    con.execute(f"DETACH {NAME}")


def memory(*, threads: int | None = None) -> Connection:
    """A fresh in-memory database to attach files to."""
    config: dict[str, str | bool | int | float | list[str]] = {**OFFLINE}
    if threads is not None:
        config["threads"] = threads
    return duckdb.connect(":memory:", config=config)


def open_snapshot(path: Path) -> Connection:
    """A read-only connection to a snapshot that reads no other file either.

    Raises StoreError: the file is missing, is no DuckDB file, holds another program's tables, or was written by a newer
    or an older version of Sounding.
    """
    if not path.is_file():
        raise StoreError("no results here", where=str(path), fix=NO_RESULTS)
    con = memory(threads=min(4, os.cpu_count() or 1))
    try:
        attach(con, path, read_only=True)
        con.execute("SET enable_external_access = false")
        check_schema(con, path)
    except StoreError:
        con.close()
        raise
    return con


# DuckDB 2.0 advises con.sql() here; with parameters that is 15 times as slow on 1.5 (it plans the rows as literals).
warnings.filterwarnings("ignore", message="Arrow output on a DB-API result", category=UserWarning)


@contextmanager
def cursor(con: Connection) -> Iterator[Connection]:
    """A cursor of its own, so that threads can share a connection. Raises StoreError where the block's query fails."""
    try:
        own = con.cursor()
        try:
            own.execute(f"USE {NAME}")
            yield own
        finally:
            own.close()
    except duckdb.Error as error:
        raise StoreError(f"query failed: {str(error).splitlines()[0]}") from error


NULLABLE: Mapping[pa.DataType, Any] = {
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}


def frame(con: Connection, sql: str, parameters: Mapping[str, object] | None = None) -> pd.DataFrame:
    """The rows of a SELECT with bound parameters. For this package: callers have `queries`. Raises StoreError.

    NULL is NaN among floats and texts, NA among whole numbers and booleans (which so stay what they are), None among
    lists: test with pandas.isna. Through Arrow, which is 5 times as fast as DuckDB's own `df()`.
    """
    rows = arrow(con, sql, parameters)
    found: pd.DataFrame = rows.to_pandas()
    for column in rows.schema:
        if column.type in NULLABLE and rows[column.name].null_count:
            found[column.name] = rows[column.name].to_pandas(types_mapper=NULLABLE.get)
    return found


def arrow(con: Connection, sql: str, parameters: Mapping[str, object] | None = None) -> pa.Table:
    """The rows of a SELECT as Arrow columns, NULL kept apart from NaN. Raises StoreError."""
    with cursor(con) as own:
        return own.execute(sql, dict(parameters or {})).to_arrow_table()


def check_schema(con: Connection, path: Path) -> None:
    """Raises StoreError unless the attached file has exactly the schema that this code knows."""
    version = applied_version(con, path)
    if version is None:
        raise StoreError("is not a Sounding database", where=str(path))
    if version < schema_version():
        raise StoreError(
            f"has the older schema {version} (this code: {schema_version()})",
            where=str(path),
            fix="python -m backend rebuild",
        )


def applied_version(con: Connection, path: Path) -> int | None:
    """Number of the last migration of the attached file; None where there is no ledger of migrations.

    Raises StoreError for a newer schema than this code knows.
    """
    ledger = con.execute(
        "SELECT count(*) FROM duckdb_columns() WHERE database_name = ? AND table_name = 'migration'"
        " AND column_name IN ('version', 'name', 'applied_unix_s')",
        [NAME],
    ).fetchone()
    if ledger is None or ledger[0] != 3:
        return None
    row = con.execute("SELECT max(version) FROM migration").fetchone()
    version = None if row is None else row[0]
    if version is not None and version > schema_version():
        raise StoreError(
            f"has schema {version}, this code knows {schema_version()}", where=str(path), fix="update Sounding"
        )
    return version


@contextmanager
def transaction(con: Connection) -> Iterator[None]:
    """All of the block or nothing."""
    con.execute("BEGIN")
    try:
        yield
        con.execute("COMMIT")
    except BaseException:  # an interrupt in the middle too must not leave a transaction open
        with suppress(duckdb.Error):  # a failed commit has rolled back already
            con.execute("ROLLBACK")
        raise


def migrate(con: Connection, path: Path, steps: Sequence[Migration] | None = None) -> None:
    """Bring the attached file to the last schema, each step in one transaction with its row in table `migration`.

    Raises StoreError for a foreign or newer database, and for a step that fails: then the schema is the one before it.
    """
    steps = migrations() if steps is None else steps
    version = applied_version(con, path)
    if version is None:
        tables = con.execute("SELECT count(*) FROM duckdb_tables() WHERE database_name = ?", [NAME]).fetchone()
        if tables is not None and tables[0]:
            raise StoreError("is not a Sounding database", where=str(path), fix="use another directory with --data")
    for step in steps[version or 0 :]:
        try:
            with transaction(con):
                if step.version == 1:
                    con.execute(LEDGER)
                con.execute(step.sql)
                con.execute("INSERT INTO migration VALUES (?, ?, ?)", [step.version, step.name, time.time()])
        except duckdb.Error as error:
            raise StoreError(
                f"migration {step.version} ({step.name}) failed: {str(error).splitlines()[0]}", where=str(path)
            ) from error


def small_copy(source: Path, target: Path) -> None:
    """Copy a snapshot into a file of small blocks: a tenth of the size where tables are small, as in the bundle.

    Raises StoreError.
    """
    quoted = str(target).replace("'", "''")
    con = memory()
    try:
        attach(con, source, read_only=True)
        con.execute(f"ATTACH '{quoted}' AS small (BLOCK_SIZE {SMALL_BLOCK_BYTES}, STORAGE_VERSION '{STORAGE_VERSION}')")
        con.execute(f"COPY FROM DATABASE {NAME} TO small")
        con.execute("DETACH small")
    except duckdb.Error as error:
        raise StoreError(str(error).splitlines()[0], where=str(target)) from error
    finally:
        con.close()
