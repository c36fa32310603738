"""Queries to start from: on the explorer's SQL page, and in what its Data page says about other clients."""

from __future__ import annotations


def literal(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def requests_of(run_id: str) -> str:
    """SQL: every request of a run."""
    return f"SELECT * FROM request WHERE run_id = {literal(run_id)} ORDER BY phase, request_index"


def examples(sweep: str) -> dict[str, str]:
    """Title -> SQL, about one sweep."""
    mine = literal(sweep)
    return {
        "Throughput by depth": f"""SELECT k, value AS decode_tok_s, low, high, n AS runs, cell_id, reason
FROM estimate
WHERE sweep = {mine} AND quantity = 'decode_tok_s'
ORDER BY cell_id, k""",
        "Every run in order": f"""SELECT order_index, k, block, status, valid, decode_tok_s, run_id
FROM run_cell
WHERE sweep = {mine}
ORDER BY order_index""",
        "Estimates with their intervals": f"""SELECT k, quantity, value, low, high, n, unit, method, reason
FROM estimate
WHERE sweep = {mine} AND k IS NOT NULL
ORDER BY quantity, k""",
        "Draft cost by window": f"""SELECT len(window_k) AS depths, t_draft_ms, t_draft_low_ms, t_draft_high_ms,
  t_marginal_ms, reason
FROM cycle_fit
WHERE sweep = {mine}
ORDER BY cell_id, depths""",
        "Survival by position": f"""SELECT position, k, survival, conditional, drafted_steps
FROM acceptance_by_position
WHERE sweep = {mine}
ORDER BY position, k""",
        "Accepted drafts per step": f"""SELECT step.accepted_tokens, count(*) AS steps
FROM step JOIN request USING (request_id) JOIN run USING (run_id)
WHERE sweep = {mine} AND phase = 'measure'
GROUP BY step.accepted_tokens
ORDER BY step.accepted_tokens""",
        "Findings": f"""SELECT severity, code, message, action, run_id
FROM finding
WHERE sweep = {mine}
ORDER BY severity, code""",
        "What the columns mean": """SELECT table_name, column_name, data_type, comment
FROM duckdb_columns()
WHERE NOT internal
ORDER BY table_name, column_index""",
    }


def by_depth(sweep: str) -> str:
    """The shortest useful query, for other clients; of one sweep, or of all for ""."""
    only = "WHERE quantity = 'decode_tok_s' " + (f"AND sweep = {literal(sweep)} " if sweep else "")
    return (
        f"SELECT sweep, cell_id, k, value AS decode_tok_s, low, high, n FROM estimate {only}ORDER BY sweep, cell_id, k"
    )
