"""Rows as a file: CSV, Parquet or JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from backend.errors import Refused

Format = Literal["csv", "parquet", "json"]
FORMATS: tuple[Format, ...] = ("csv", "parquet", "json")


def encode(rows: pa.Table, fmt: str) -> bytes:
    """A table as a file. Lists and structs are JSON text in CSV; NULL is empty in CSV and null in JSON.

    What a format cannot hold (an interval in CSV, a union in Parquet) is text in it. Raises Refused for an unknown
    format.
    """
    if fmt not in FORMATS:
        raise Refused(f"unknown format {fmt!r}", fix=f"valid are {', '.join(FORMATS)}")
    buffer = io.BytesIO()
    if fmt == "csv":
        pa.csv.write_csv(_each(rows, _in_csv), buffer)
    elif fmt == "parquet":
        pa.parquet.write_table(_each(rows, _in_parquet), buffer)
    else:
        said = _each(rows, _in_python).to_pylist()
        buffer.write(json.dumps(said, ensure_ascii=False, default=str).encode())
    return buffer.getvalue()


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Every value as text, whatever its type; bytes that are no text as \\xff, as DuckDB writes them."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        texts = [None if value is None else value.decode("ascii", "backslashreplace") for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        texts = [str(value) if value.is_valid else None for value in column]
        return pa.chunked_array([pa.array(texts, pa.string())])


def _each(rows: pa.Table, change: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> pa.Table:
    return pa.Table.from_arrays([change(column) for column in rows.columns], names=rows.column_names)


def _in_csv(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """CSV has no lists: JSON text."""
    if pa.types.is_nested(column.type) and not pa.types.is_union(column.type):
        texts = (None if value is None else json.dumps(value, default=str) for value in column.to_pylist())
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return as_text(column)
    return _if_written(column, pa.csv.write_csv)


def _in_parquet(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return _if_written(column, pa.parquet.write_table)


def _if_written(column: pa.ChunkedArray, write: Callable[[pa.Table, io.BytesIO], object]) -> pa.ChunkedArray:
    """The column as it is where the format has its type, found out on one missing value; else as text."""
    try:
        write(pa.Table.from_arrays([pa.nulls(1, column.type)], names=["column"]), io.BytesIO())
    except pa.ArrowException:
        return as_text(column)
    return column


def _in_python(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Python's dates end at the year 9999."""
    try:
        column.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError):
        return as_text(column)
    return column
