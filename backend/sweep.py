"""The one loop that runs a sweep: plan, run by run, journal, and a snapshot after every run.

Storing a run happens on a thread of its own while the next server starts, and never while anything is measured.
"""

from __future__ import annotations

import signal
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from backend import publish
from backend.analysis.checks import exclusions
from backend.engines import engine_for
from backend.engines.base import Engine
from backend.engines.process import end_leftover
from backend.errors import Interrupted, Refused, RunFailed, StoreError
from backend.measure.environment import code_version
from backend.measure.workload import read_prompts
from backend.preflight import check, check_port
from backend.progress import Progress, ProgressFile
from backend.records import Record, Run, Sweep
from backend.run import begun, carry_out
from backend.schedule import PlannedRun, plan
from backend.spec import SweepSpec
from backend.store import journal
from backend.store.database import Store

LEASE_FILE, PROGRESS_FILE = "server.json", "progress.json"
FINAL_KINDS = frozenset({"wrong_depth", "wont_stop"})  # asking again will not change these

Listener = Callable[[Progress], None]

# What may differ between a sweep and its resumption: names and patience, nothing that changes what is measured.
FREE_KEYS = frozenset({"name", "description", "data_dir", "expect", "reference_depths"})
FREE_SERVER_KEYS = frozenset(
    {
        "port",
        "ready_timeout_s",
        "stall_timeout_s",
        "request_timeout_s",
        "stop_timeout_s",
        "release_timeout_s",
        "retries",
    }
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a sweep ended. `missing`: planned runs without a valid measurement, after all retries."""

    done: int
    failed_attempts: int
    missing: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 done, 3 finished with failed runs."""
        return 3 if self.missing else 0


def run_sweep(spec: SweepSpec, spec_toml: str, store: Store, *, resume: bool, listener: Listener) -> Outcome:
    """Run what is left of a sweep in its stored order. `store` is held by us: one data directory, one writer.

    Raises Refused before anything is written (existing name, other spec, busy port), Interrupted after the run
    under way was marked, StoreError when the journal cannot be written.
    """
    check(spec)
    lease_path = store.data_dir / LEASE_FILE
    notes = [str(torn) for torn in store.torn]
    notes += [
        f"ended the server (pid {pid}) that a killed sweep left behind"
        for pid in end_leftover(lease_path, spec.server.stop_timeout_s, spec.server.release_timeout_s)
    ]
    earlier = _earlier_runs(spec, spec_toml, store, resume)
    check_port(spec)
    engine, runs = engine_for(spec), plan(spec)
    if earlier is None:
        with store.sweep_journal(spec.name) as sweep_journal:
            sweep_journal.append(_sweep_record(spec, spec_toml), *spec.cells())
        earlier = {}
    left = [planned for planned in runs if not _finished(planned, earlier)]
    progress = ProgressFile(
        store.data_dir / PROGRESS_FILE,
        listener,
        Progress("running", spec.name, len(runs), runs_done=len(runs) - len(left)),
    )
    loop = _Loop(spec, store, engine, progress, lease_path, earlier)
    try:
        with _signals(), loop.storing:
            missing = loop.run(left)
    except Interrupted as interrupted:
        progress.update(state="interrupted", phase=None, message=interrupted.what, eta_s=None)
        raise
    except StoreError as error:
        progress.update(state="failed", phase=None, message=str(error), eta_s=None)
        raise
    state = "failed" if missing and len(missing) == len(left) else "done"
    progress.update(state=state, phase=None, run_id=None, k=None, block=None, eta_s=None, message="")
    return Outcome(progress.now.runs_done, progress.now.runs_failed, tuple(missing), tuple(notes))


class _Loop:
    """The state of one pass over the planned runs."""

    def __init__(
        self,
        spec: SweepSpec,
        store: Store,
        engine: Engine,
        progress: ProgressFile,
        lease_path: Path,
        earlier: dict[int, list[Run]],
    ) -> None:
        self.spec, self.store, self.engine, self.progress = spec, store, engine, progress
        self.lease_path, self.earlier = lease_path, earlier
        self.prompts = read_prompts(spec.workload.prompts)
        self.storing = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._stored: Future[None] | None = None
        self._durations_s: list[float] = []

    def run(self, left: Sequence[PlannedRun]) -> list[str]:
        """Carry the planned runs out, each with its retries; returns the ids of those that stay without a result."""
        missing = []
        try:
            for position, planned in enumerate(left):
                self.progress.update(eta_s=self._eta_s(len(left) - position), phase=None)
                run = self._with_retries(planned)
                if run.status == "done" and run.valid:
                    self.progress.update(runs_done=self.progress.now.runs_done + 1)
                else:
                    missing.append(run.run_id)
        finally:
            self.wait_stored()
            self.progress.update(phase="store")
            self._store()
            self.wait_stored()
        return missing

    def _with_retries(self, planned: PlannedRun) -> Run:
        attempt = max((run.attempt for run in self.earlier.get(planned.order_index, ())), default=0)
        for remaining in range(self.spec.server.retries, -1, -1):
            attempt += 1
            began = time.monotonic()
            run, failure = self._once(planned, attempt)
            if run.status == "done" and run.valid:
                self._durations_s.append(time.monotonic() - began)
                return run
            self.progress.update(runs_failed=self.progress.now.runs_failed + 1, message=run.reason or "")
            if not remaining or (failure is not None and failure.kind in FINAL_KINDS):
                return run
        raise AssertionError("the loop returns")  # range is never empty

    def _once(self, planned: PlannedRun, attempt: int) -> tuple[Run, RunFailed | None]:
        run_id = planned.run_id(self.spec.name, attempt)
        log_path = self.store.data_dir / "logs" / self.spec.name / f"{run_id.split(':', 1)[1]}.log"
        run = begun(self.spec, planned, attempt, self.engine, log_path)
        self.progress.update(
            run_id=run_id, k=planned.k, block=planned.block, requests_done=0, requests_total=0, phase="launch"
        )
        kept: list[Record] = []
        with self.store.run_journal(self.spec.name, run_id) as run_journal:

            def append(records: Sequence[Record]) -> None:
                run_journal.append(*records)
                kept.extend(records)

            run, failure = carry_out(
                self.spec,
                planned,
                run,
                self.engine,
                self.prompts,
                append,
                self.progress,
                lease_path=self.lease_path,
                before_measuring=self.wait_stored,
            )
            run = self._judge(run, kept, append)
        self.wait_stored()
        self._stored = self.storing.submit(self._store)
        if self.spec.server.settle_s:
            time.sleep(self.spec.server.settle_s)
        return run, failure

    def _judge(self, run: Run, kept: Sequence[Record], append: Callable[[Sequence[Record]], None]) -> Run:
        """Store what the checks find in a finished run; K-blind evidence takes it out of fits, and it is repeated."""
        if run.status != "done":
            return run
        found = publish.findings_of_run(run, kept)
        reason = exclusions(found).get(run.run_id)
        if reason is not None:
            run = replace(run, valid=False, exclusion_reason=reason)
        if found:
            append([*found, run])
        return run

    def _store(self) -> None:
        publish.publish(self.store, [self.spec.name])

    def wait_stored(self) -> None:
        """Wait for the storing thread: nothing is stored while anything is measured. Raises what storing raised."""
        if self._stored is not None:
            self._stored.result()
            self._stored = None

    def _eta_s(self, runs_left: int) -> float | None:
        if not self._durations_s:
            return None
        return runs_left * sum(self._durations_s) / len(self._durations_s)


def _earlier_runs(spec: SweepSpec, spec_toml: str, store: Store, resume: bool) -> dict[int, list[Run]] | None:
    """Runs of this sweep so far, by order index; None for a new sweep. Raises Refused where it is not ours to go on."""
    if any((root / spec.name).is_dir() for name, root in store.roots.items() if name != "own"):
        raise Refused(
            f"'{spec.name}' is a bundled sweep", fix="give yours another name: --as NAME, or change name in the spec"
        )
    files = sorted((store.roots["own"] / spec.name).glob("*.jsonl"))
    records = [record for path in files for record in journal.read(path).records]
    stored = next((record for record in records if isinstance(record, Sweep)), None)
    if stored is None:
        return None
    if not resume:
        raise Refused(
            f"a sweep named '{spec.name}' exists in {store.data_dir}",
            fix="go on with it by --resume, or give this one another name by --as NAME",
        )
    changed = _changed_keys(stored.spec_toml or "", spec_toml)
    if changed:
        raise Refused(
            f"'{spec.name}' was started with another spec: {', '.join(changed)} differ",
            fix="restore the spec, or start a sweep of another name by --as NAME",
        )
    latest = {record.run_id: record for record in records if isinstance(record, Run)}
    runs: dict[int, list[Run]] = {}
    for run in latest.values():
        if run.order_index is not None:
            runs.setdefault(run.order_index, []).append(run)
    return runs


def _changed_keys(old_toml: str, new_toml: str) -> list[str]:
    """Keys whose change would make another experiment of it."""
    old, new = tomllib.loads(old_toml), tomllib.loads(new_toml)
    changed = [key for key in sorted({*old, *new} - FREE_KEYS - {"server"}) if old.get(key) != new.get(key)]
    old_server, new_server = old.get("server", {}), new.get("server", {})
    keys = sorted({*old_server, *new_server} - FREE_SERVER_KEYS)
    return changed + [f"server.{key}" for key in keys if old_server.get(key) != new_server.get(key)]


def _finished(planned: PlannedRun, earlier: dict[int, list[Run]]) -> bool:
    return any(run.status == "done" and run.valid for run in earlier.get(planned.order_index, ()))


def _sweep_record(spec: SweepSpec, spec_toml: str) -> Sweep:
    speculator = spec.speculator
    return Sweep(
        sweep=spec.name,
        source="measured",
        created_unix_s=time.time(),
        description=spec.description,
        target_model=spec.target.model,
        target_revision=spec.target.revision,
        speculator_method=speculator.method,
        speculator_model=speculator.model,
        speculator_revision=speculator.revision,
        max_depth=speculator.max_depth,
        seed=spec.seed,
        blocks=spec.blocks,
        reference_depths=dict(spec.reference_depths),
        spec_toml=spec_toml,
        code_version=code_version(Path(__file__).parent),
    )


@contextmanager
def _signals() -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into Interrupted; while the run is then being marked, more are ignored."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
