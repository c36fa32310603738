"""kill -9 at random moments: nothing acknowledged is lost, snapshots are whole, the lock is free, readers go on."""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backend.records import Run
from backend.store import journal, queries
from tests.store.crash_writer import write
from tests.store.store_samples import SWEEP, open_store

ROUNDS = 12


def killed_writer(data: Path, start: int, after_s: float) -> list[int]:
    """Start a writer, kill it `after_s` seconds after its first acknowledgement; the runs it acknowledged."""
    context = multiprocessing.get_context("forkserver")  # imports once, forks fresh writers from there
    context.set_forkserver_preload(["tests.store.crash_writer"])
    ours, theirs = context.Pipe(duplex=False)
    writer = context.Process(target=write, args=(data, start, theirs))
    writer.start()
    theirs.close()
    acknowledged = [ours.recv()]
    time.sleep(after_s)
    writer.kill()
    writer.join()
    try:
        while True:
            acknowledged.append(ours.recv())
    except EOFError:
        return acknowledged


@contextmanager
def polling(snapshot: Path) -> Iterator[tuple[list[int], list[Exception]]]:
    """A reader that opens the snapshot and asks a view, again and again: what it saw, and its errors."""
    seen: list[int] = []
    errors: list[Exception] = []
    done = threading.Event()

    def poll() -> None:
        while not done.wait(0.05):
            if snapshot.exists():
                try:
                    con = queries.connect(snapshot)
                    seen.append(len(queries.run_cells(con, SWEEP)))
                    con.close()
                except Exception as error:  # noqa: BLE001 - whatever a reader sees is what is tested
                    errors.append(error)

    reader = threading.Thread(target=poll)
    reader.start()
    try:
        yield seen, errors
    finally:
        done.set()
        reader.join()


def test_kill_9_loses_no_acknowledged_record_and_no_snapshot(tmp_path: Path) -> None:
    picked = random.Random(20260701)
    acknowledged: list[int] = []
    with polling(tmp_path / "results.duckdb") as (seen, errors):
        for _ in range(ROUNDS):
            start = acknowledged[-1] + 1 if acknowledged else 0
            acknowledged += killed_writer(tmp_path, start, picked.uniform(0, 0.2))
            kept = {
                row.run_id
                for path in (tmp_path / "journal" / SWEEP).glob("*.jsonl")
                for row in journal.read(path).records
                if isinstance(row, Run)
            }
            assert {f"{SWEEP}:n{number}" for number in acknowledged} <= kept
    assert errors == []
    assert seen == sorted(seen)

    with open_store(tmp_path) as store:  # the lock is free, the live database opens
        store.ingest()
        store.publish()
    assert {path.name for path in tmp_path.iterdir()} == {"journal", "live.duckdb", "results.duckdb", "writer.lock"}
    con = queries.connect(tmp_path / "results.duckdb")
    found = queries.run_cells(con, SWEEP)
    assert set(found["run_id"]) == kept
    assert set(found["accepted_tokens"]) == {4}
    assert len(queries.steps(con, SWEEP)) == 3 * len(kept)
