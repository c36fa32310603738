"""Rows as a file: CSV, Parquet or JSON."""

from __future__ import annotations

import io
import json
from typing import Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from backend.errors import Refused

Format = Literal["csv", "parquet", "json"]
FORMATS: tuple[Format, ...] = ("csv", "parquet", "json")


def encode(rows: pa.Table, fmt: str) -> bytes:
    """A table as a file. Lists and structs are JSON text in CSV; NULL is empty in CSV and null in JSON.

    Raises Refused for an unknown format.
    """
    if fmt not in FORMATS:
        raise Refused(f"unknown format {fmt!r}", fix=f"valid are {', '.join(FORMATS)}")
    buffer = io.BytesIO()
    if fmt == "csv":
        pa.csv.write_csv(_flat(rows), buffer)
    elif fmt == "parquet":
        pa.parquet.write_table(rows, buffer)
    else:
        buffer.write(json.dumps(rows.to_pylist(), ensure_ascii=False, default=str).encode())
    return buffer.getvalue()


def _flat(rows: pa.Table) -> pa.Table:
    """The same columns, nested ones as JSON text: CSV has no lists."""
    columns = []
    for column in rows.columns:
        if pa.types.is_nested(column.type):
            texts = (None if value is None else json.dumps(value, default=str) for value in column.to_pylist())
            column = pa.array(texts, pa.string())
        columns.append(column)
    return pa.Table.from_arrays(columns, names=rows.column_names)
