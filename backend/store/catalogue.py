"""The results as they lie there: which tables and views, what their columns mean, whole tables, and files of them."""

from __future__ import annotations

import pandas as pd

from backend.errors import Refused
from backend.store.connection import NAME, Connection, arrow, frame
from backend.store.files import FORMATS, encode
from backend.store.settled import LISTED

__all__ = ["FORMATS", "columns", "export", "snapshot_info", "table", "tables"]


def snapshot_info(con: Connection) -> dict[str, object]:
    """id, published_unix_s, schema_version, code_version of the snapshot; empty for one that was never published."""
    rows = frame(con, "SELECT * FROM snapshot ORDER BY published_unix_s DESC LIMIT 1")
    return {} if rows.empty else {str(name): value for name, value in rows.iloc[0].items()}


def tables(con: Connection) -> pd.DataFrame:
    """A row a table or view, views first: name, kind (table | view), rows, comment.

    What a snapshot keeps of a view is called a view, too (see `settled`).
    """
    known = frame(
        con,
        """
        SELECT view_name AS name, 'view' AS kind, comment FROM duckdb_views() WHERE database_name = $db AND NOT internal
        UNION ALL
        SELECT table_name, 'table', comment FROM duckdb_tables() WHERE database_name = $db AND NOT internal""",
        {"db": NAME},
    )
    if LISTED in set(known["name"]):
        settled = set(frame(con, f"SELECT name FROM {LISTED}")["name"])
        known["kind"] = known["kind"].mask(known["name"].isin(settled), "view")
    known = known.sort_values(["kind", "name"], ascending=[False, True], ignore_index=True)
    counts = [int(frame(con, f"SELECT count(*) AS n FROM {_quoted(name)}")["n"].iloc[0]) for name in known["name"]]
    known.insert(2, "rows", counts)
    return known


def columns(con: Connection, name: str) -> pd.DataFrame:
    """A row a column of a table or view, in order: name, type, comment. Raises Refused for an unknown table."""
    return frame(
        con,
        """SELECT column_name AS name, data_type AS type, comment FROM duckdb_columns()
        WHERE database_name = $db AND table_name = $name AND NOT internal ORDER BY column_index""",
        {"db": NAME, "name": _known(con, name)},
    )


def table(con: Connection, name: str, limit: int | None = None) -> pd.DataFrame:
    """Rows of a table or view, the first `limit` of them or all. Raises Refused for an unknown table."""
    return frame(con, f"SELECT * FROM {_quoted(_known(con, name))} LIMIT $limit", {"limit": limit})


def export(con: Connection, name: str, fmt: str) -> bytes:
    """A whole table or view as a file. Lists are JSON text in CSV; NULL is empty in CSV and null in JSON.

    Raises Refused for an unknown table or format.
    """
    lists = list(columns(con, name).query("type.str.endswith('[]')")["name"]) if fmt == "csv" else []
    shown = f" REPLACE ({', '.join(f'to_json({_quoted(c)}) AS {_quoted(c)}' for c in lists)})" if lists else ""
    return encode(arrow(con, f"SELECT *{shown} FROM {_quoted(_known(con, name))}"), fmt)


def _known(con: Connection, name: str) -> str:
    found = frame(
        con,
        """SELECT table_name AS name FROM duckdb_tables() WHERE database_name = $db AND NOT internal
        UNION ALL SELECT view_name FROM duckdb_views() WHERE database_name = $db AND NOT internal ORDER BY name""",
        {"db": NAME},
    )["name"]
    if name not in set(found):
        raise Refused(f"unknown table {name!r}", fix=f"there are: {', '.join(found)}")
    return name


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
