"""Tables agree with the records, and everything a SQL user sees is explained."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.derived import StageTime, Step
from backend.records import StageTimes
from backend.store import connection, ingest
from backend.store.connection import Connection, frame
from backend.store.schema import KEYS, RECORD_CLASSES, arrow_schema, arrow_table, field_types, table_of
from tests.store.store_strategies import rows_of

TABLES = (*(cls for cls in RECORD_CLASSES if cls is not StageTimes), Step, StageTime)


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    path: Path = tmp_path_factory.mktemp("schema") / "live.duckdb"
    con = connection.memory()
    connection.attach(con, path, read_only=False)
    connection.migrate(con, path)
    yield con
    con.close()


def _columns(con: Connection, table: str) -> list[tuple[str, str, bool]]:
    rows = con.execute(f'DESCRIBE "{table}"').fetchall()
    return [(name, kind, null == "YES") for name, kind, null, *_ in rows]


@pytest.mark.parametrize("cls", TABLES, ids=lambda cls: cls.__name__)
def test_a_table_is_its_record(con: Connection, cls: type) -> None:
    """Names, order, types and nullability."""
    by_arrow = {"int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN", "string": "VARCHAR"}
    expected = []
    for column in arrow_schema(cls):
        kind, optional = field_types(cls)[column.name]
        sql = "JSON" if "dict" in str(kind) else by_arrow.get(str(column.type), "INTEGER[]")
        expected.append((column.name, sql, optional))
    assert _columns(con, table_of(cls)) == expected


@pytest.mark.parametrize("cls", TABLES, ids=lambda cls: cls.__name__)
def test_the_primary_key_is_the_key_of_the_docstring(con: Connection, cls: type) -> None:
    if cls is StageTime:
        return  # by migration 0006: see test_stages_taken_in_again_replace_what_was_there
    keys = con.execute(
        "SELECT constraint_column_names FROM duckdb_constraints() WHERE table_name = ?"
        " AND constraint_type = 'PRIMARY KEY'",
        [table_of(cls)],
    ).fetchall()
    assert [tuple(names) for (names,) in keys] == [KEYS[table_of(cls)]]
    documented = (cls.__doc__ or "").replace("\n", " ").split("Key: ")[1].split(".")[0].split(" ('' ")[0]
    assert documented.replace("`", "").split(", ") == list(KEYS[table_of(cls)])


def test_everything_is_commented(con: Connection) -> None:
    for kind in ("tables", "views"):
        bare = con.execute(
            f"SELECT * FROM duckdb_{kind}() WHERE NOT internal AND coalesce(comment, '') = ''"
            " AND database_name = 'sounding'"
        )
        assert bare.fetchall() == []
    bare = con.execute(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal"
        " AND database_name = 'sounding' AND coalesce(comment, '') = ''"
    )
    assert bare.fetchall() == []


def test_every_view_says_its_source(con: Connection) -> None:
    """Measured, imported, published and simulated figures are never pooled."""
    for view in ("run_cell", "k_summary", "acceptance_by_position", "cycle_fit"):
        assert "source" in [name for name, *_ in _columns(con, view)]


@pytest.mark.parametrize("cls", [cls for cls in TABLES if cls is not StageTime], ids=lambda cls: cls.__name__)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_rows_come_back_as_they_went_in(con: Connection, cls: type[Any], data: st.DataObject) -> None:
    """Any text, any 64-bit number, any list; the last of two rows with one key stays; twice is as once."""
    table, rows = table_of(cls), data.draw(st.lists(rows_of(cls), max_size=4))
    latest = {tuple(getattr(row, part) for part in KEYS[table]): row for row in [*rows, *rows[:1]]}
    con.execute(f'DELETE FROM "{table}"')
    for _ in range(2):
        ingest.insert(con, table, arrow_table(cls, [*rows, *rows[:1]]))
    found = frame(con, f'SELECT * FROM "{table}"').shape[0]
    assert found == len(latest)
    for row in con.execute(f'SELECT * FROM "{table}"').fetchall():
        expected = [row_value(latest, KEYS[table], cls, row, name) for name in field_types(cls)]
        assert list(map(comparable, row)) == list(map(comparable, expected))


def row_value(latest: dict[Any, Any], key: tuple[str, ...], cls: type, row: tuple[Any, ...], name: str) -> Any:
    """The field of the record that has this row's key."""
    names = list(field_types(cls))
    return getattr(latest[tuple(row[names.index(part)] for part in key)], name)


def comparable(value: Any) -> Any:
    """JSON text against its dict, a list against its tuple, -0.0 against 0.0."""
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and math.isfinite(value):
        return value + 0.0
    return tuple(value) if isinstance(value, list) else value
