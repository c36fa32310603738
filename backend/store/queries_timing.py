"""What the probe and INSTRUMENT left, summed as far as analysis needs it: hundreds of thousands of rows stay in DuckDB.

Valid, finished runs only; `role` "diagnostic" gives the eager runs that are only timed. Times in seconds, over the
decode steps of a request (step_index >= 1).
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from backend.records import STEP_TOTALS, Role
from backend.store.connection import Connection, frame

_ARMS = "r.sweep = $sweep AND r.role = $role AND r.status = 'done' AND r.valid"


def timed_requests(con: Connection, sweep: str, role: Role = "arm") -> pd.DataFrame:
    """A row an INSTRUMENT request: k, block, run_id, cell_id, request_id, prompt_id, probe_on (NULL: in every other
    step), decode_s, steps.
    """
    return frame(
        con,
        f"""SELECT r.k, r.block, r.order_index, q.run_id, q.cell_id, q.request_id, q.request_index, q.prompt_id,
          q.probe_on, q.decode_s, q.steps
        FROM request q JOIN run r USING (run_id)
        WHERE {_ARMS} AND q.phase = 'instrument' AND q.error IS NULL
        ORDER BY r.order_index, q.cell_id, q.request_index""",
        {"sweep": sweep, "role": role},
    )


def stage_totals(con: Connection, sweep: str, role: Role = "arm") -> pd.DataFrame:
    """A row a request, rank, stage and position: total_s over its decode steps, in how many steps it ran, and for
    whole steps (STEP_TOTALS) each one's time in steps_s.
    """
    return frame(
        con,
        f"""SELECT r.k, r.block, q.run_id, q.cell_id, q.request_id, t.rank, t.stage, t.position, t.source,
          sum(t.duration_s) AS total_s, count(DISTINCT t.step_index) AS ran_steps,
          list(t.duration_s) FILTER (list_contains($totals, t.stage)) AS steps_s
        FROM stage_time t JOIN request q USING (request_id) JOIN run r ON r.run_id = q.run_id
        WHERE {_ARMS} AND t.step_index >= 1
        GROUP BY ALL ORDER BY r.k, q.request_id, t.rank, t.stage, t.position""",
        {"sweep": sweep, "role": role, "totals": list(STEP_TOTALS)},
    )


def step_quantiles(con: Connection, sweep: str, cell_id: str, groups: dict[str, Sequence[str]]) -> pd.DataFrame:
    """Spread over single steps of the lowest rank: k, part, p05_s, p25_s, p50_s, p75_s, p95_s, steps.

    `groups`: part -> its stages.
    """
    parts = [(part, stage) for part, stages in groups.items() for stage in stages]
    return frame(
        con,
        f"""WITH part AS (SELECT unnest($parts) AS part, unnest($stages) AS stage),
        step AS (
          SELECT r.k, part.part, t.request_id, t.step_index, sum(t.duration_s) AS total_s
          FROM stage_time t JOIN part USING (stage) JOIN run r USING (run_id)
          WHERE {_ARMS} AND t.step_index >= 1 AND t.cell_id = $cell
            AND t.rank = (SELECT min(rank) FROM stage_time WHERE cell_id = $cell)
          GROUP BY ALL)
        SELECT k, part, quantile_cont(total_s, .05) AS p05_s, quantile_cont(total_s, .25) AS p25_s,
          quantile_cont(total_s, .5) AS p50_s, quantile_cont(total_s, .75) AS p75_s,
          quantile_cont(total_s, .95) AS p95_s, count(*) AS steps
        FROM step GROUP BY k, part ORDER BY k, part""",
        {
            "sweep": sweep,
            "role": "arm",
            "cell": cell_id,
            "parts": [part for part, _ in parts],
            "stages": [stage for _, stage in parts],
        },
    )


def rank_waits(con: Connection, sweep: str, role: Role = "arm") -> pd.DataFrame:
    """A row a run, cell and rank of sweeps with several ranks: collective_s and wait_s a decode step.

    A collective ends for all ranks at once, so what a rank spends there above the rank that spends least is waiting.
    """
    return frame(
        con,
        f"""WITH step AS (
          SELECT t.run_id, t.cell_id, t.request_id, t.step_index, t.rank,
            coalesce(sum(t.duration_s) FILTER (ends_with(t.stage, 'collective')), 0) AS collective_s
          FROM stage_time t JOIN run r USING (run_id)
          WHERE {_ARMS} AND t.step_index >= 1 AND NOT list_contains($totals, t.stage) GROUP BY ALL),
        over_ranks AS (
          SELECT *, collective_s - min(collective_s) OVER (PARTITION BY request_id, step_index) AS wait_s,
            count(*) OVER (PARTITION BY request_id, step_index) AS ranks
          FROM step)
        SELECT r.k, r.block, s.run_id, s.cell_id, s.rank, avg(s.collective_s) AS collective_s, avg(s.wait_s) AS wait_s,
          count(*) AS steps
        FROM over_ranks s JOIN run r USING (run_id)
        WHERE s.ranks > 1 GROUP BY ALL ORDER BY r.k, s.run_id, s.rank""",
        {"sweep": sweep, "role": role, "totals": list(STEP_TOTALS)},
    )
