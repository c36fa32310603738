"""What the explorer asks besides `queries`: sums that pages would otherwise make from every request or sample."""

from __future__ import annotations

import pandas as pd

from backend.store.connection import Connection, frame


def category_sums(con: Connection, sweep: str, cell_id: str) -> pd.DataFrame:
    """A row per prompt category and run of a cell: n_requests, tokens_after_first, decode_s, steps over its MEASURE
    requests without error; a sum is NULL as soon as one of them lacks the figure."""
    return frame(
        con,
        """
        SELECT q.category, q.run_id, q.cell_id, count(*) AS n_requests,
          CASE WHEN count(q.output_tokens) = count(*) THEN sum(greatest(q.output_tokens - 1, 0))::DOUBLE END
            AS tokens_after_first,
          CASE WHEN count(q.decode_s) = count(*) THEN sum(q.decode_s) END AS decode_s,
          CASE WHEN count(q.steps) = count(*) THEN sum(q.steps)::DOUBLE END AS steps
        FROM request q JOIN run r USING (run_id)
        WHERE r.sweep = $sweep AND q.cell_id = $cell AND q.phase = 'measure' AND q.error IS NULL
          AND q.category IS NOT NULL
        GROUP BY ALL ORDER BY ALL""",
        {"sweep": sweep, "cell": cell_id},
    )


def clocks(con: Connection, sweep: str) -> pd.DataFrame:
    """A row per run and node whose samples hold a clock or temperature while the run measured: median sm_clock_mhz with
    its 5% and 95% quantiles (clock_low_mhz, clock_high_mhz), highest temp_c, samples; the run's k, block, order_index.
    """
    return frame(
        con,
        """
        WITH span AS (
          SELECT q.run_id, min(q.started_unix_s) AS begin_unix_s, max(q.started_unix_s + q.client_total_s) AS end_unix_s
          FROM request q JOIN run USING (run_id) WHERE sweep = $sweep AND phase = 'measure' GROUP BY q.run_id
        )
        SELECT r.k, r.block, r.order_index, p.run_id, p.node, median(p.sm_clock_mhz) AS sm_clock_mhz,
          quantile_cont(p.sm_clock_mhz, 0.05) AS clock_low_mhz, quantile_cont(p.sm_clock_mhz, 0.95) AS clock_high_mhz,
          max(p.temp_c) AS temp_c, count(*) AS samples
        FROM power_sample p JOIN run r USING (run_id) JOIN span s ON s.run_id = p.run_id
        WHERE p.t_unix_s BETWEEN s.begin_unix_s AND s.end_unix_s
          AND (p.sm_clock_mhz IS NOT NULL OR p.temp_c IS NOT NULL)
        GROUP BY ALL ORDER BY r.order_index NULLS LAST, p.run_id, p.node""",
        {"sweep": sweep},
    )


def request_figures(con: Connection, sweep: str, cell_id: str | None = None) -> pd.DataFrame:
    """`queries.requests` of MEASURE without the per-step and per-token lists, which are most of a large sweep."""
    return frame(
        con,
        """
        SELECT r.sweep, r.k, r.block, r.order_index, r.role, r.status, r.valid,
          q.* EXCLUDE (step_drafted, step_accepted, token_ids, output_hash)
        FROM request q JOIN run r USING (run_id)
        WHERE r.sweep = $sweep AND ($cell::VARCHAR IS NULL OR q.cell_id = $cell) AND q.phase = 'measure'
        ORDER BY r.order_index NULLS LAST, q.run_id, q.cell_id, q.request_index""",
        {"sweep": sweep, "cell": cell_id},
    )
