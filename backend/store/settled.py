"""In a snapshot the views are tables of the same names, columns and comments.

A snapshot never changes, so what a view gives is settled when it is published. Computed then, once, it is there for
every page and SQL user; left a view, `run_cell` would be summed from the requests and steps anew by each of them. The
live database keeps the views.
"""

from __future__ import annotations

from pathlib import Path

from backend.store.connection import NAME, Connection, attach, detach, memory, transaction

LISTED = "published_view"
TABLE = f"""
CREATE TABLE {LISTED} (name VARCHAR PRIMARY KEY, rows BIGINT NOT NULL, sql VARCHAR NOT NULL);
COMMENT ON TABLE {LISTED} IS 'Tables of this snapshot that are views in the database it was made from: their rows were settled when it was published.';
COMMENT ON COLUMN {LISTED}.name IS 'Table';
COMMENT ON COLUMN {LISTED}.rows IS 'Its rows';
COMMENT ON COLUMN {LISTED}.sql IS 'The view it was made from: the formulas';
"""  # noqa: E501  a comment is one literal


def settle_views(path: Path) -> None:
    """Replace every view of a database file by a table of its rows. Raises duckdb.Error, StoreError."""
    con = memory()
    try:
        attach(con, path, read_only=False)
        with transaction(con):
            _settle(con)
        detach(con)
    finally:
        con.close()


def _settle(con: Connection) -> None:
    views = con.execute(
        "SELECT view_name, sql, comment FROM duckdb_views() WHERE database_name = ? AND NOT internal", [NAME]
    ).fetchall()
    comments = con.execute(
        "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE database_name = ? AND comment IS NOT NULL",
        [NAME],
    ).fetchall()
    con.execute(TABLE)
    for name, sql, _ in views:  # all of them before the first is dropped: views are made of views
        con.execute(f"CREATE TABLE {_quoted('settled ' + name)} AS FROM {_quoted(name)}")
        con.execute(f"INSERT INTO {LISTED} SELECT ?, count(*), ? FROM {_quoted('settled ' + name)}", [name, sql])
    for name, _, comment in views:
        con.execute(f"DROP VIEW {_quoted(name)}")
        con.execute(f"ALTER TABLE {_quoted('settled ' + name)} RENAME TO {_quoted(name)}")
        if comment is not None:
            con.execute(f"COMMENT ON TABLE {_quoted(name)} IS {_literal(comment)}")
        for table, column, meaning in comments:
            if table == name:
                con.execute(f"COMMENT ON COLUMN {_quoted(name)}.{_quoted(column)} IS {_literal(meaning)}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
