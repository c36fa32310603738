"""Small records to build stores from; every field that a test does not name is plain and valid."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backend import records
from backend.store.database import Store
from backend.store.schema import KEYS, field_types

SWEEP = "s"
CELL = "s:1xtext:w"


def blank(cls: type[Any], **given: Any) -> Any:
    """A record with None wherever it may be, and an empty or zero value elsewhere."""
    plain = {int: 0, float: 0.0, str: "", bool: True}
    values = {
        name: None if optional else plain.get(kind, {} if kind == dict[str, int] else None)
        for name, (kind, optional) in field_types(cls).items()
    }
    return cls(**{**values, **given})


def sweep(**given: Any) -> records.Sweep:
    return blank(records.Sweep, **{"sweep": SWEEP, "source": "measured", **given})


def cell(**given: Any) -> records.Cell:
    return blank(records.Cell, **{"cell_id": CELL, "sweep": SWEEP, "concurrency": 1, "workload": "w", **given})


def run(name: str, k: int, **given: Any) -> records.Run:
    values = {"run_id": f"{SWEEP}:{name}", "sweep": SWEEP, "k": k, "role": "arm", "status": "done", "attempt": 1}
    return blank(records.Run, **{**values, **given})


def request(run_id: str, index: int, **given: Any) -> records.Request:
    """A MEASURE request of run `s:<run_id>`."""
    values = {
        "request_id": f"{SWEEP}:{run_id}:1xtext:w:measure:{index}",
        "run_id": f"{SWEEP}:{run_id}",
        "cell_id": CELL,
        "phase": "measure",
        "request_index": index,
        "prompt_id": f"p{index}",
    }
    return blank(records.Request, **{**values, **given})


def drafted(run_id: str, index: int, k: int, accepted: Sequence[int], **given: Any) -> records.Request:
    """A request whose every step drafted k tokens; no overshoot unless `output_tokens` is given; 0.1 s a step."""
    tokens = 1 + sum(accepted) + len(accepted)
    values = {
        "output_tokens": tokens,
        "decode_s": 0.1 * len(accepted),
        "steps": len(accepted),
        "drafted_steps": len(accepted),
        "drafted_tokens": k * len(accepted),
        "accepted_tokens": sum(accepted),
        "step_drafted": (k,) * len(accepted),
        "step_accepted": tuple(accepted),
        "token_ids": tuple(range(tokens)),
    }
    return request(run_id, index, **{**values, **given})


def reported(run_id: str, quantity: str, value: float) -> records.ReportedValue:
    return blank(
        records.ReportedValue, run_id=f"{SWEEP}:{run_id}", cell_id=CELL, quantity=quantity, value=value, unit="1"
    )


def open_store(data: Path, **given: Any) -> Store:
    """A store without the bundled sweeps."""
    return Store(data, **{"bundled": {}, **given})


def fill(store: Store, *rows: records.Record) -> None:
    """Write records to the journals they belong in, and take them in."""
    head = [row for row in rows if isinstance(row, records.Sweep | records.Cell)]
    with store.sweep_journal(SWEEP) as journal:
        journal.append(*head)
    by_run: dict[str, list[records.Record]] = {}
    for row in rows:
        if not isinstance(row, records.Sweep | records.Cell):
            by_run.setdefault(row.run_id, []).append(row)
    for run_id, kept in by_run.items():
        with store.run_journal(SWEEP, run_id) as journal:
            journal.append(*kept)
    store.ingest()


EVERY_ROW: list[records.Record] = [
    sweep(),
    cell(),
    run("a", 3, status="running"),
    drafted("a", 0, 3, [3, 0, 2]),
    drafted("a", 1, 3, [1]),
    run("a", 3, server_start_s=2.5),
    run("b", 0, status="failed", reason="died"),
    records.Failure("s:b", "died", "exit code 1", "last words", 5.0),
]


def dump(store: Store) -> dict[str, list[tuple[object, ...]]]:
    """Every record table, and the estimates, as sorted rows."""
    with store.reading() as con:
        return {
            table: sorted(con.execute(f'SELECT * FROM "{table}"').fetchall(), key=repr) for table in [*KEYS, "estimate"]
        }


def rows(store: Store, view: str) -> list[dict[str, Any]]:
    """The rows of a view, missing as None."""
    with store.reading() as con:
        cursor = con.execute(f"SELECT * FROM {view} ORDER BY ALL")
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def only(store: Store, view: str = "run_cell") -> dict[str, Any]:
    (row,) = rows(store, view)
    return row
