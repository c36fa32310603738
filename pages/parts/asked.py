"""Queries of strangers, for the SQL page: run by the store's guard, the answer kept for as long as the snapshot."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import streamlit as st

from backend.store import sql_guard
from backend.store.files import as_text
from backend.store.sql_guard import Answer
from pages.parts.reader import Key, Snapshot

FILE_ROWS, FILE_BYTES, FILE_DEADLINE_S = 100_000, 60_000_000, 20.0


def answer(snapshot: Snapshot, sql: str) -> Answer:
    """What the page shows of a query. Raises Refused."""
    return _answer(snapshot.key, sql)


def rows_of(found: Answer) -> pd.DataFrame:
    """The rows to show; a column that pandas has no type for (a union, a date beyond its calendar) as text."""
    return pd.DataFrame({name: _column(found.table[name]) for name in found.table.column_names})


def _column(values: pa.ChunkedArray) -> pd.Series:
    try:
        if pa.types.is_temporal(values.type):
            values.to_pylist()  # pandas takes moments that Python cannot write
        return values.to_pandas()
    except (pa.ArrowException, ValueError, OverflowError):
        return as_text(values).to_pandas()


def whole(snapshot: Snapshot, sql: str) -> Answer:
    """The same query's rows for a file, up to FILE_ROWS and FILE_BYTES. Raises Refused."""
    return _whole(snapshot.key, sql)


@st.cache_resource(max_entries=32, ttl=3600, show_spinner="Running the query")
def _answer(key: Key, sql: str) -> Answer:
    return sql_guard.ask(Path(key[0]), sql)


@st.cache_resource(max_entries=2, ttl=600, show_spinner="Running the query for the files")
def _whole(key: Key, sql: str) -> Answer:
    return sql_guard.ask(Path(key[0]), sql, rows=FILE_ROWS, most_bytes=FILE_BYTES, deadline_s=FILE_DEADLINE_S)
