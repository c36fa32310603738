"""Queries of strangers, for the SQL page: run by the store's guard, the answer kept for as long as the snapshot."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from backend.store import sql_guard
from backend.store.files import encode
from backend.store.sql_guard import Answer
from pages.parts.reader import Key, Snapshot

FILE_ROWS, FILE_BYTES, FILE_DEADLINE_S = 100_000, 60_000_000, 20.0


def answer(snapshot: Snapshot, sql: str) -> Answer:
    """What the page shows of a query. Raises Refused."""
    return _answer(snapshot.key, sql)


def file_of(snapshot: Snapshot, sql: str, fmt: str) -> bytes:
    """The same query's rows as a file, up to FILE_ROWS. Runs on a click, in a thread without a session."""
    found = sql_guard.ask(snapshot.path, sql, rows=FILE_ROWS, most_bytes=FILE_BYTES, deadline_s=FILE_DEADLINE_S)
    return encode(found.table, fmt)


@st.cache_resource(max_entries=32, ttl=3600, show_spinner="Running the query")
def _answer(key: Key, sql: str) -> Answer:
    return sql_guard.ask(Path(key[0]), sql)
