"""How records map to tables: names, keys and column types, all derived from `backend/records.py`.

Pure: no file and no database is touched here. `tests/store/test_schema.py` checks that the migrations agree.
"""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import pyarrow as pa

from backend import records

RECORD_CLASSES: tuple[type[records.Record], ...] = typing.get_args(records.Record)
BY_NAME: Mapping[str, type[records.Record]] = {cls.__name__: cls for cls in RECORD_CLASSES}

# What makes a row one and the same: the "Key:" of each record's docstring, and the primary key of its table.
KEYS: Mapping[str, tuple[str, ...]] = {
    "sweep": ("sweep",),
    "cell": ("cell_id",),
    "run": ("run_id",),
    "request": ("request_id",),
    "step": ("request_id", "step_index"),
    "counter": ("run_id", "cell_id", "phase", "span", "name", "labels"),
    "stage_time": ("run_id", "cell_id", "rank", "request_index", "step_index", "stage", "position"),
    "power_sample": ("run_id", "node", "scope", "source", "t_unix_s"),
    "canary": ("run_id", "node", "moment", "kind"),
    "environment": ("run_id", "node", "name"),
    "failure": ("run_id", "kind"),
    "finding": ("sweep", "run_id", "cell_id", "code"),
    "reported_value": ("run_id", "cell_id", "quantity"),
}


def table_of(cls: type[object]) -> str:
    """Table of a record class: its name in snake_case (`ReportedValue` -> `reported_value`)."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


def plain_type(annotation: Any) -> tuple[Any, bool]:
    """A field's type without its None, and whether None was allowed."""
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        rest = [part for part in typing.get_args(annotation) if part is not type(None)]
        if len(rest) == 1:
            return rest[0], True
    return annotation, False


def field_types(cls: type[object]) -> dict[str, tuple[Any, bool]]:
    """Field name -> (type without None, may be None), in the order of the class."""
    hints = typing.get_type_hints(cls)
    return {field.name: plain_type(hints[field.name]) for field in fields(typing.cast(Any, cls))}


def arrow_type(plain: Any) -> pa.DataType:
    """Arrow type of a field; a dict is kept as JSON text, a tuple of integers as a list."""
    origin = typing.get_origin(plain)
    if origin is tuple:
        return pa.list_(pa.int32())
    if origin in (dict, typing.Literal):
        return pa.string()
    by_type = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
    return by_type[plain]


def arrow_schema(cls: type[object]) -> pa.Schema:
    """Columns of a record class, in the order of its fields."""
    return pa.schema([(name, arrow_type(plain)) for name, (plain, _) in field_types(cls).items()])


def arrow_table(cls: type[object], rows: Iterable[object]) -> pa.Table:
    """Records of one class as columns; of rows with the same key the last one stays.

    Raises pyarrow.ArrowException where a value does not fit its column (an integer beyond 64 bits).
    """
    schema, key = arrow_schema(cls), KEYS[table_of(cls)]
    latest: dict[tuple[object, ...], object] = {tuple(getattr(row, part) for part in key): row for row in rows}
    columns: list[pa.Array] = []
    for column in schema:
        values: Sequence[Any] = [getattr(row, column.name) for row in latest.values()]
        if any(isinstance(value, dict) for value in values):
            values = [None if value is None else json.dumps(value, ensure_ascii=False) for value in values]
        columns.append(pa.array(values, type=column.type))
    return pa.Table.from_arrays(columns, schema=schema)
