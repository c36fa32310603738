"""A simulated snapshot with a given number of step rows, for the viewer bench."""

from __future__ import annotations

from pathlib import Path

from backend.publish import publish
from backend.simulate import simulate
from backend.store.database import Store
from backend.truth import Truth

SWEEP = "simulated-big"
BASE_ROWS, BASE_PROMPTS = 1_000_000, 256  # that many prompts, in 10 blocks of K=0..7, give a million drafted steps


def big_snapshot(directory: Path, rows: int) -> Path:
    """Build the snapshot below a directory, or find it there. `rows`: up to 1e6, or a multiple of it.

    Above 1e6 the requests of every run and their steps are repeated under other names, after its figures were
    estimated: resampling is the publisher's time, not the viewer's. The settled views are repeated in their counts.
    """
    data = directory / f"steps-{rows:.0e}"
    if (data / "results.duckdb").exists():
        return data / "results.duckdb"
    prompts = max(2, round(BASE_PROMPTS * min(rows, BASE_ROWS) / BASE_ROWS))
    simulate(Truth(blocks=10, prompts=prompts, run_sd=0.02, block_sd=0.02), SWEEP).write(data)
    with Store(data, bundled={}, code_version="bench") as store:
        publish(store)
        copies = rows // BASE_ROWS
        if copies > 1:
            with store.reading() as con:
                _repeat(con, copies)
            store.publish()
    return data / "results.duckdb"


def _repeat(con: object, copies: int) -> None:
    """Every request and step `copies` times."""
    for table, keys in (("step", "request_id"), ("request", "request_id")):
        con.execute(  # type: ignore[attr-defined]
            f"""INSERT INTO {table} SELECT t.* REPLACE (t.{keys} || '+' || c.range AS {keys})
            FROM {table} t, range(1, {copies}) c"""
        )
