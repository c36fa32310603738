"""From journals to a snapshot that answers: take in, check, estimate, publish.

Used by sweeps, `rebuild` and importers.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pandas as pd

from backend.analysis.checks import COMPARES_RUNS, run_checks
from backend.analysis.checks_counters import counter_findings
from backend.analysis.checks_nodes import canary_findings, clock_findings
from backend.analysis.checks_requests import request_findings
from backend.analysis.energy import with_energy
from backend.analysis.stopping import with_pilot
from backend.analysis.summary import headline_estimates
from backend.errors import Refused
from backend.measure import environment
from backend.records import Canary, Counter, Environment, Finding, PowerSample, Record, Request, Run
from backend.store import queries, queries_nodes
from backend.store.connection import small_copy
from backend.store.database import EstimateRow, Store
from backend.store.paths import BUNDLED, BUNDLED_SNAPSHOT, REPOSITORY

ESTIMATE_FIELDS = tuple(field.name for field in fields(EstimateRow))


def code_version() -> str:
    """Version of this code, with the commit where it runs from a checkout."""
    return environment.code_version(Path(__file__).parent)


def publish(store: Store) -> list[str]:
    """Bring the database up to the journals, check and estimate every sweep that changed, replace the snapshot.

    Returns the sweeps that changed. Raises StoreError.
    """
    store.ingest()
    changed = store.stale_sweeps()
    for sweep in changed:
        with store.reading() as con:
            findings, estimates = _findings(con, sweep), _estimates(con, sweep, store.code_version)
        store.replace_findings(sweep, findings, comparing=COMPARES_RUNS)
        store.replace_estimates(sweep, estimates)
    store.publish()
    return changed


def bundle() -> list[str]:
    """Write the bundled snapshot from the bundled journals alone. Returns its sweeps."""
    with tempfile.TemporaryDirectory() as scratch:
        with Store(Path(scratch), code_version=code_version()) as store:
            sweeps = publish(store)
        small = Path(scratch) / "small.duckdb"
        small_copy(store.snapshot, small)
        shutil.copyfile(small, BUNDLED_SNAPSHOT)
    return sweeps


def adopt(journals: Path) -> None:
    """Take a sweep's journals (<data>/journal/<sweep>) into the bundle, its paths made relative to the checkout.

    Raises Refused where there is no such sweep or the bundle holds one of that name.
    """
    target = BUNDLED["demo"] / journals.name
    files = sorted(journals.glob("*.jsonl"))
    if not files:
        raise Refused("no journals of a sweep here", where=str(journals), fix="name <data directory>/journal/<sweep>")
    if target.exists():
        raise Refused(f"the bundle holds {journals.name} already", fix=f"remove {target} first")
    target.mkdir(parents=True)
    data_dir = journals.resolve().parents[1]
    for file in files:
        text = file.read_text(encoding="utf-8")
        for place in (data_dir, REPOSITORY):
            text = text.replace(f"{place}/", "")
        (target / file.name).write_text(text, encoding="utf-8")


def findings_of_run(run: Run, kept: Sequence[Record], canary_history: pd.DataFrame | None = None) -> list[Finding]:
    """What the checks that need one run alone find in its records: counters, clocks, token accounting, its nodes.

    `canary_history`: canaries of earlier runs on these nodes.
    """
    requests, counters = _table(kept, Request), _table(kept, Counter)
    if requests.empty:
        return []
    cells = pd.DataFrame(
        {"sweep": run.sweep, "run_id": run.run_id, "cell_id": requests["cell_id"].unique(), "k": run.k}
    )
    found = request_findings(cells, requests, run.sweep)
    if not counters.empty:
        found += counter_findings(cells, counters, requests, run.sweep)
    canaries, power, environment = _table(kept, Canary), _table(kept, PowerSample), _table(kept, Environment)
    if not canaries.empty:
        found += canary_findings(canaries, run.sweep, canary_history)
    if not power.empty and not environment.empty:
        found += clock_findings(power, environment, requests, run.sweep)
    return found


def _table(kept: Sequence[Record], kind: type[Record]) -> pd.DataFrame:
    """The records of one class as a table; of those with one key the last counts where it matters (facts)."""
    return pd.DataFrame([asdict(record) for record in kept if isinstance(record, kind)])


def _findings(con: queries.Connection, sweep: str) -> list[Finding]:
    """What the checks find in the whole sweep, single runs among it."""
    return run_checks(
        queries.run_cells(con, sweep),
        requests=queries.requests(con, sweep),
        counters=queries.counters(con, sweep),
        canary=queries.canaries(con, sweep),
        positions=queries.positions(con, sweep),
        power=queries.power_samples(con, sweep),
        environment=queries.environment(con, sweep),
        canary_history=queries_nodes.canary_history(con),
    )


def _estimates(con: queries.Connection, sweep: str, version: str) -> list[EstimateRow]:
    requests = queries.requests(con, sweep)
    rows: list[dict[str, Any]] = headline_estimates(
        with_pilot(
            with_energy(queries.run_cells(con, sweep), queries.power_samples(con, sweep), requests),
            queries.require_sweep(con, sweep)["spec_toml"],
        ),
        sweep=sweep,
        code_version=version,
        requests=requests,
        steps=queries.steps(con, sweep),
        positions=queries.positions(con, sweep),
    )
    return [EstimateRow(**{name: row[name] for name in ESTIMATE_FIELDS}) for row in rows]
