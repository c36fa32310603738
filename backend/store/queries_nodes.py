"""What pages and checks ask about nodes: canaries over runs, power sensors, one run's power samples. See queries.py."""

from __future__ import annotations

import pandas as pd

from backend.store.connection import Connection, frame

HISTORY = 200  # canary lines a node and kind: a few dozen runs


def canary_history(con: Connection) -> pd.DataFrame:
    """The last canaries of every node and kind, of all sweeps: run_id, node, moment, kind, duration_s."""
    return frame(
        con,
        """
        SELECT c.run_id, c.node, c.moment, c.kind, c.duration_s FROM canary c JOIN run r USING (run_id)
        WHERE c.duration_s IS NOT NULL
        QUALIFY row_number() OVER (PARTITION BY c.node, c.kind ORDER BY r.started_unix_s DESC NULLS LAST, c.run_id)
          <= $history
        ORDER BY c.node, c.kind, c.run_id, c.moment""",
        {"history": HISTORY},
    )


def power_of_run(con: Connection, run_id: str) -> pd.DataFrame:
    """One run's power samples in time order, node by node."""
    return frame(
        con,
        """SELECT node, scope, source, t_unix_s, power_w, energy_j, temp_c, sm_clock_mhz, unsupported_reason
        FROM power_sample WHERE run_id = $run ORDER BY node, scope, source, t_unix_s""",
        {"run": run_id},
    )


def power_sensors(con: Connection, sweep: str) -> pd.DataFrame:
    """A row a node and sensor of a sweep: its readings, mean power_w, range of clocks, and why some are missing."""
    return frame(
        con,
        """
        WITH counted AS (  -- a counter's mean power: what it gained over a run
          SELECT p.node, p.scope, p.source,
            (max(p.energy_j) - min(p.energy_j)) / nullif(max(p.t_unix_s) - min(p.t_unix_s), 0) AS power_w
          FROM power_sample p JOIN run r USING (run_id) WHERE r.sweep = $sweep AND p.energy_j IS NOT NULL
          GROUP BY p.node, p.scope, p.source, p.run_id
        ), gained AS (SELECT node, scope, source, avg(power_w) AS power_w FROM counted GROUP BY ALL)
        SELECT p.node, p.scope, p.source, count(DISTINCT p.run_id) AS runs,
          count(*) FILTER (p.power_w IS NOT NULL OR p.energy_j IS NOT NULL) AS readings, count(*) AS samples,
          coalesce(avg(p.power_w), any_value(g.power_w)) AS power_w, count(p.energy_j) > 0 AS has_counter,
          min(p.sm_clock_mhz) AS sm_clock_min_mhz, max(p.sm_clock_mhz) AS sm_clock_max_mhz,
          max(p.temp_c) AS temp_max_c, any_value(p.unsupported_reason) AS unsupported_reason
        FROM power_sample p JOIN run r USING (run_id) LEFT JOIN gained g USING (node, scope, source)
        WHERE r.sweep = $sweep GROUP BY p.node, p.scope, p.source ORDER BY p.node, p.scope, p.source""",
        {"sweep": sweep},
    )


def measure_spans(con: Connection, run_id: str) -> pd.DataFrame:
    """When a run's cells were measured: cell_id, begin_unix_s, end_unix_s."""
    return frame(
        con,
        """SELECT cell_id, min(started_unix_s) AS begin_unix_s, max(started_unix_s + client_total_s) AS end_unix_s
        FROM request WHERE run_id = $run AND phase = 'measure' GROUP BY cell_id ORDER BY begin_unix_s""",
        {"run": run_id},
    )
