"""A writer to be killed: journals, takes in and publishes run after run, and says which run is acknowledged."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path

from tests.store.store_samples import SWEEP, cell, drafted, fill, open_store, run, sweep


def write(data: Path, start: int, acknowledge: Connection) -> None:
    """Write runs `start`, `start + 1`, ... until killed; a run's number is sent once its journal is on disk."""
    with open_store(data) as store:
        fill(store, sweep(), cell())
        for number in range(start, start + 10**6):
            name = f"n{number}"
            with store.run_journal(SWEEP, f"{SWEEP}:{name}") as journal:
                journal.append(run(name, 3), drafted(name, 0, 3, [3, 1, 0]))
            acknowledge.send(number)
            store.ingest()
            store.publish()
