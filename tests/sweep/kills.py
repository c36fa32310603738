"""kill -9 at random moments, with a reader that polls the snapshot; and what must hold after every kill."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from backend.errors import StoreError
from backend.schedule import plan
from backend.spec_file import load
from backend.store import connection
from backend.store.lock import WriterLock
from tests.sweep.harness import left_over, records, runs, start

OURS = "sweep LIKE 'killed-%' AND status = 'done' AND valid"  # the bundled sweeps are in every snapshot


@dataclass
class Reader:
    """Opens the snapshot over and over, as a viewer would: the number of finished runs must never fall."""

    snapshot: Path
    reads: int = 0
    faults: list[str] = field(default_factory=list)
    finished: int = 0
    _ending: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Reader:
        self._thread = threading.Thread(target=self._read_on, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _read_on(self) -> None:
        while not self._ending.wait(0.05):
            if self.snapshot.exists():
                try:
                    self._read()
                except (StoreError, connection.duckdb.Error) as error:
                    self.faults.append(str(error))

    def _read(self) -> None:
        con = connection.open_snapshot(self.snapshot)
        try:
            counts = f"SELECT count(*) AS n FROM run WHERE {OURS}"
            done = int(connection.frame(con, counts)["n"].iloc[0])
            cells = f"SELECT count(DISTINCT run_id) AS n FROM run_cell WHERE {OURS}"
            measured = int(connection.frame(con, cells)["n"].iloc[0])
        finally:
            con.close()
        self.reads += 1
        if done < self.finished or measured != done:
            self.faults.append(f"{done} runs done after {self.finished}, {measured} of them with requests")
        self.finished = max(self.finished, done)


@dataclass(frozen=True)
class Tally:
    """What was seen: everything but `kills`, `sweeps`, `finished_runs` and `reads` must be 0."""

    kills: int
    sweeps: int
    finished_runs: int
    reads: int
    lost: int  # finished runs that were no longer there later
    repeated: int  # planned runs with more than one valid result
    missing: int  # planned runs without one, at the end
    reader_faults: tuple[str, ...]
    left_processes: int


def kill_and_resume(specs: list[Path], data_dir: Path, kills: int, seed: int, longest_s: float) -> Tally:
    """Run the sweeps one after the other, killed at random moments and resumed, until `kills` were made; then finish.

    A sweep that ends before its kill makes room for the next of `specs`, round and round under new names.
    """
    dice = random.Random(seed)
    made = round_number = lost = 0
    finished: set[str] = set()
    names: list[str] = []
    with Reader(data_dir / "results.duckdb") as reader:
        while made < kills or not names or not _complete(specs[(round_number - 1) % len(specs)], data_dir, names[-1]):
            if not names or _complete(specs[(round_number - 1) % len(specs)], data_dir, names[-1]):
                names.append(f"killed-{round_number}")
                round_number += 1
            spec = specs[(round_number - 1) % len(specs)]
            command = ["sweep", str(spec), "--as", names[-1], "--resume", "--data", str(data_dir)]
            process = start(command, data_dir.parent / "output.txt")
            if made < kills:
                process.join(dice.uniform(0, longest_s))
                made += process.exitcode is None
                process.kill()
            process.join()
            if process.exitcode is not None and process.exitcode > 0:
                raise AssertionError((data_dir.parent / "output.txt").read_text()[-3000:])
            now = {run.run_id for run in runs(data_dir) if run.status == "done" and run.valid}
            lost += len(finished - now)
            finished |= now
        time.sleep(0.2)  # the reader sees the last snapshot
    per_plan: dict[tuple[str, int | None], int] = {}
    for run in runs(data_dir):
        key = (run.sweep, run.order_index)
        per_plan[key] = per_plan.get(key, 0) + (run.status == "done" and run.valid)
    return Tally(
        made,
        len(names),
        len(finished),
        reader.reads,
        lost,
        sum(count > 1 for count in per_plan.values()),
        sum(count == 0 for count in per_plan.values()) + len(finished) - reader.finished,
        tuple(reader.faults),
        len(left_over(data_dir)),
    )


def _complete(spec: Path, data_dir: Path, name: str) -> bool:
    done = {run.order_index for run in runs(data_dir, name) if run.status == "done" and run.valid}
    return done == {planned.order_index for planned in plan(load(spec))}


def warm_ups_are_whole(data_dir: Path) -> bool:
    """Whether every finished run has its own warm-up before its MEASURE: nothing was taken over from a killed one."""
    for run in runs(data_dir):
        if run.status == "done":
            phases = [r.phase for r in records(data_dir) if getattr(r, "request_id", "").startswith(f"{run.run_id}:")]  # type: ignore[union-attr]
            if not phases or phases[0] != "warmup" or phases != sorted(phases, reverse=True):
                return False
    return True


def lock_is_free(data_dir: Path) -> bool:
    """Whether no writer holds the data directory."""
    WriterLock(data_dir).release()
    return True
