"""What the depth effect on acceptance and the page Acceptance ask of the results: steps grouped, never row by row.

Of the runs that count: role arm, status done, valid; requests without an error. Connections and NULLs as in `queries`.
"""

from __future__ import annotations

import pandas as pd

from backend.store.connection import Connection, frame

# One row a start. Of a forced request only the first step is one: the second would start where the depths differ.
_COUNTED = """
    FROM step s JOIN request q USING (request_id) JOIN run r USING (run_id)
    WHERE r.sweep = $sweep AND r.role = 'arm' AND r.status = 'done' AND r.valid AND q.error IS NULL
      AND q.phase = $phase AND ($phase <> 'forced' OR s.step_index = 0)
      AND ($cell::VARCHAR IS NULL OR q.cell_id = $cell)"""


def starts(
    con: Connection, sweep: str, *, phase: str = "measure", cell_id: str | None = None, depths: list[int] | None = None
) -> pd.DataFrame:
    """A row per cell, K, prompt, start (prefix_hash, NULL where unknown), drafted_tokens and accepted_tokens; `steps`:
    how often. `depths` None: all."""
    return frame(
        con,
        f"""SELECT q.cell_id, r.k, q.prompt_id, s.prefix_hash, s.drafted_tokens, s.accepted_tokens, count(*) AS steps
        {_COUNTED} AND ($depths::BIGINT[] IS NULL OR list_contains($depths::BIGINT[], r.k))
        GROUP BY ALL ORDER BY ALL""",
        {"sweep": sweep, "phase": phase, "cell": cell_id, "depths": depths},
    )


def accepted_lengths(
    con: Connection, sweep: str, *, phase: str = "measure", cell_id: str | None = None
) -> pd.DataFrame:
    """A row per cell, K, prompt, drafted_tokens and accepted_tokens of a step; `steps`: how many."""
    return frame(
        con,
        f"""SELECT q.cell_id, r.k, q.prompt_id, s.drafted_tokens, s.accepted_tokens, count(*) AS steps
        {_COUNTED} GROUP BY ALL ORDER BY ALL""",
        {"sweep": sweep, "phase": phase, "cell": cell_id},
    )


def outputs(con: Connection, sweep: str, *, cell_id: str | None = None) -> pd.DataFrame:
    """A row per cell, K, prompt and output_hash of MEASURE (NULL where tokens were not told); `requests`: how many."""
    return frame(
        con,
        """SELECT q.cell_id, r.k, q.prompt_id, q.output_hash, count(*) AS requests
        FROM request q JOIN run r USING (run_id)
        WHERE r.sweep = $sweep AND r.role = 'arm' AND r.status = 'done' AND r.valid AND q.error IS NULL
          AND q.phase = 'measure' AND ($cell::VARCHAR IS NULL OR q.cell_id = $cell)
        GROUP BY ALL ORDER BY ALL""",
        {"sweep": sweep, "cell": cell_id},
    )
