"""The read side: everything that pages, command line and analysis ask of the results.

`connect(resolve(...))` opens a snapshot read-only; cache the connection on `snapshot_key`, and open anew when the key
changes. Every function takes a connection (or what `Store.reading` yields), may be called from several threads, and
returns a DataFrame with the units in its column names. NULL is NaN among floats and texts, NA among whole numbers and
booleans, None among lists: test with pandas.isna, never for truth. Parameters are bound, never formatted into SQL.
Raises StoreError where the file cannot be read.
"""

from __future__ import annotations

import pandas as pd

from backend.errors import Refused
from backend.store.catalogue import FORMATS, columns, export, snapshot_info, table, tables
from backend.store.connection import Connection, frame
from backend.store.connection import open_snapshot as connect
from backend.store.paths import resolve, snapshot_key

__all__ = [
    "FORMATS",
    "Connection",
    "canaries",
    "cells",
    "columns",
    "connect",
    "counters",
    "cycle_fit",
    "environment",
    "estimates",
    "export",
    "failures",
    "findings",
    "k_summary",
    "positions",
    "power_samples",
    "reported_values",
    "requests",
    "require_sweep",
    "resolve",
    "run_cells",
    "runs",
    "snapshot_info",
    "snapshot_key",
    "stage_times",
    "steps",
    "sweeps",
    "table",
    "tables",
]


def sweeps(con: Connection) -> pd.DataFrame:
    """A row a sweep, newest first: its fields, runs_done, runs_failed (interrupted too), depths (list of K), cells."""
    return frame(
        con,
        """
        SELECT s.*, coalesce(r.runs_done, 0) AS runs_done, coalesce(r.runs_failed, 0) AS runs_failed, r.depths,
          (SELECT count(*) FROM cell c WHERE c.sweep = s.sweep) AS cells
        FROM sweep s LEFT JOIN (
          SELECT sweep, count(*) FILTER (status = 'done') AS runs_done,
            count(*) FILTER (status IN ('failed', 'interrupted')) AS runs_failed,
            list_sort(list_distinct(list(k))) AS depths
          FROM run GROUP BY sweep) r USING (sweep)
        ORDER BY s.created_unix_s DESC NULLS LAST, s.sweep""",
    )


def require_sweep(con: Connection, sweep: str) -> pd.Series:
    """The row of `sweeps` for one sweep. Raises Refused, naming those there are."""
    known = sweeps(con)
    found = known[known["sweep"] == sweep]
    if found.empty:
        raise Refused(f"unknown sweep {sweep!r}", fix=f"there are: {', '.join(known['sweep']) or 'none'}")
    return found.iloc[0]


def cells(con: Connection, sweep: str) -> pd.DataFrame:
    """A row a cell of a sweep."""
    return frame(con, "SELECT * FROM cell WHERE sweep = $sweep ORDER BY cell_id", {"sweep": sweep})


def runs(con: Connection, sweep: str) -> pd.DataFrame:
    """A row a run in run order, whatever its end."""
    return frame(
        con, "SELECT * FROM run WHERE sweep = $sweep ORDER BY order_index NULLS LAST, attempt, k", {"sweep": sweep}
    )


def run_cells(con: Connection, sweep: str, cell_id: str | None = None) -> pd.DataFrame:
    """View `run_cell`: a row a run and cell, failed, excluded and anchor runs too (role, status, valid say which)."""
    return frame(
        con,
        """SELECT * FROM run_cell WHERE sweep = $sweep AND ($cell::VARCHAR IS NULL OR cell_id = $cell)
        ORDER BY cell_id, order_index NULLS LAST, k, run_id""",
        {"sweep": sweep, "cell": cell_id},
    )


def requests(
    con: Connection,
    sweep: str,
    *,
    cell_id: str | None = None,
    run_id: str | None = None,
    phase: str | None = "measure",
) -> pd.DataFrame:
    """A row a request with its run's k, block, order_index, role, status and valid. phase None: every phase."""
    return frame(
        con,
        """
        SELECT r.sweep, r.k, r.block, r.order_index, r.role, r.status, r.valid, q.*
        FROM request q JOIN run r USING (run_id)
        WHERE r.sweep = $sweep AND ($cell::VARCHAR IS NULL OR q.cell_id = $cell)
          AND ($run::VARCHAR IS NULL OR q.run_id = $run) AND ($phase::VARCHAR IS NULL OR q.phase = $phase)
        ORDER BY r.order_index NULLS LAST, q.run_id, q.cell_id, q.phase, q.request_index""",
        {"sweep": sweep, "cell": cell_id, "run": run_id, "phase": phase},
    )


def steps(
    con: Connection,
    sweep: str,
    *,
    cell_id: str | None = None,
    phase: str | None = "measure",
) -> pd.DataFrame:
    """A row a drafted step of a request without error, with its run's k, block, role, status, valid and its prompt."""
    return frame(
        con,
        """
        SELECT r.sweep, r.run_id, q.cell_id, q.phase, r.k, r.block, r.role, r.status, r.valid, q.prompt_id, q.category,
          s.*
        FROM step s JOIN request q USING (request_id) JOIN run r USING (run_id)
        WHERE r.sweep = $sweep AND q.error IS NULL AND ($cell::VARCHAR IS NULL OR q.cell_id = $cell)
          AND ($phase::VARCHAR IS NULL OR q.phase = $phase)
        ORDER BY s.request_id, s.step_index""",
        {"sweep": sweep, "cell": cell_id, "phase": phase},
    )


def k_summary(con: Connection, sweep: str | None = None, cell_id: str | None = None) -> pd.DataFrame:
    """View `k_summary`: a row per sweep, cell and K over valid arm runs."""
    return frame(
        con,
        """SELECT * FROM k_summary WHERE ($sweep::VARCHAR IS NULL OR sweep = $sweep)
        AND ($cell::VARCHAR IS NULL OR cell_id = $cell) ORDER BY sweep, cell_id, k""",
        {"sweep": sweep, "cell": cell_id},
    )


def positions(con: Connection, sweep: str, cell_id: str | None = None) -> pd.DataFrame:
    """View `acceptance_by_position`: a row per cell, K and draft position."""
    return frame(
        con,
        """SELECT * FROM acceptance_by_position WHERE sweep = $sweep
        AND ($cell::VARCHAR IS NULL OR cell_id = $cell) ORDER BY cell_id, k, position""",
        {"sweep": sweep, "cell": cell_id},
    )


def estimates(con: Connection, sweep: str, cell_id: str | None = None) -> pd.DataFrame:
    """Table `estimate`: fits and headline numbers in the order they were computed."""
    return frame(
        con,
        """SELECT e.*, w.source FROM estimate e JOIN sweep w USING (sweep) WHERE e.sweep = $sweep
        AND ($cell::VARCHAR IS NULL OR e.cell_id = $cell) ORDER BY e.ordinal""",
        {"sweep": sweep, "cell": cell_id},
    )


def cycle_fit(con: Connection, sweep: str, cell_id: str | None = None) -> pd.DataFrame:
    """View `cycle_fit`: a row a window of depths, shortest first."""
    return frame(
        con,
        """SELECT * FROM cycle_fit WHERE sweep = $sweep
        AND ($cell::VARCHAR IS NULL OR cell_id = $cell) ORDER BY cell_id, len(window_k), window_k, method""",
        {"sweep": sweep, "cell": cell_id},
    )


def findings(con: Connection, sweep: str) -> pd.DataFrame:
    """What the checks had to say, worst first."""
    return frame(
        con,
        """SELECT * FROM finding WHERE sweep = $sweep
        ORDER BY list_position(['error', 'warning', 'info'], severity), code, run_id, cell_id""",
        {"sweep": sweep},
    )


def failures(con: Connection, sweep: str) -> pd.DataFrame:
    """Why runs failed, with their k, block and order_index."""
    return _of_runs(con, "failure", sweep, "unix_s")


def environment(con: Connection, sweep: str) -> pd.DataFrame:
    """Facts about machine and engine, a row a run, node and name."""
    return _of_runs(con, "environment", sweep, "node, name")


def counters(con: Connection, sweep: str) -> pd.DataFrame:
    """Raw /metrics samples before and after each span."""
    return _of_runs(con, "counter", sweep, "cell_id, phase, span, name, labels")


def power_samples(con: Connection, sweep: str) -> pd.DataFrame:
    """Sensor readings; scopes are never added or compared."""
    return _of_runs(con, "power_sample", sweep, "node, scope, source, t_unix_s")


def canaries(con: Connection, sweep: str) -> pd.DataFrame:
    """The fixed small computations around each run."""
    return _of_runs(con, "canary", sweep, "node, kind, moment DESC")


def stage_times(con: Connection, sweep: str) -> pd.DataFrame:
    """Timed stages of engine steps (INSTRUMENT only)."""
    return _of_runs(con, "stage_time", sweep, "cell_id, rank, request_index, step_index, stage, position")


def reported_values(con: Connection, sweep: str) -> pd.DataFrame:
    """Figures that another tool or a publication reports."""
    return _of_runs(con, "reported_value", sweep, "cell_id, quantity")


def _of_runs(con: Connection, table: str, sweep: str, order: str) -> pd.DataFrame:
    """Rows of a table keyed by run_id, with the run's k, block and order_index. `table`, `order`: from this module."""
    return frame(
        con,
        f"""SELECT r.k, r.block, r.order_index, t.* FROM "{table}" t JOIN run r USING (run_id)
        WHERE r.sweep = $sweep ORDER BY r.order_index NULLS LAST, r.k, r.run_id, {order}""",
        {"sweep": sweep},
    )
