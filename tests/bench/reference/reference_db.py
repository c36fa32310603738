"""The reference app's reads: a fresh in-memory connection that attaches the snapshot, queries cached by its key."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pandas as pd
import streamlit as st

DB = Path(os.environ["RESULTS_DB"])
SWEEP = os.environ["RESULTS_SWEEP"]


def rows(sql: str, *parameters: object) -> pd.DataFrame:
    """The rows of a query on the snapshot as it is now."""
    stat = DB.stat()
    return _rows((stat.st_ino, stat.st_mtime_ns), sql, parameters)


@st.cache_resource(max_entries=2)
def _connection(_key: tuple[int, int]) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(config={"threads": "2", "memory_limit": "1GB"})
    con.execute(f"ATTACH '{DB}' AS results (READ_ONLY)")
    con.execute("USE results")
    return con


@st.cache_data(max_entries=64, ttl=600, show_spinner=False)
def _rows(key: tuple[int, int], sql: str, parameters: tuple[object, ...]) -> pd.DataFrame:
    cursor = _connection(key).cursor()
    cursor.execute("USE results")
    return cursor.execute(sql, list(parameters)).df()
