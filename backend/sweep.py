"""The one loop that runs a sweep: plan, run by run, journal, and a snapshot after every run.

Storing a run happens on a thread of its own while the next server starts, and never while anything is measured.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from backend import publish
from backend.analysis.checks import exclusions
from backend.engines import engine_for
from backend.engines.leftover import end_on_nodes
from backend.engines.process import end_leftover
from backend.errors import Interrupted, Refused, RunFailed, StoreError
from backend.interrupt import Signals
from backend.measure.workload import read_prompts
from backend.preflight import check, check_port
from backend.progress import Progress, ProgressFile
from backend.records import Finding, Record, Run
from backend.resume import History, read_history, write_head
from backend.run import Means, begun, carry_out
from backend.schedule import PlannedRun
from backend.spec import SweepSpec
from backend.stopping import beyond, decide_once, planned_now
from backend.store import queries_nodes
from backend.store.database import Store

LEASE_FILE = "server.json"
FINAL_KINDS = frozenset({"wrong_depth", "wont_stop"})  # asking again will not change these

Listener = Callable[[Progress], None]


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


def run_sweep(
    spec: SweepSpec,
    spec_toml: str,
    store: Store,
    *,
    resume: bool,
    listener: Listener,
    say: Callable[[str], None] = lambda _note: None,
) -> Outcome:
    """Run what is left of a sweep in its stored order. `store` is held by us: one data directory, one writer.

    `say` is told at once what was found and put right (torn lines, a server left behind); the outcome has it too.
    Raises Refused before anything is written (existing name, other spec, busy port, a leftover server that cannot be
    ended), Interrupted after the run under way was marked, StoreError when the journal cannot be written.
    """
    check(spec)
    history = read_history(spec, spec_toml, store, resume=resume)
    runs, undecided = planned_now(spec, store)
    lease_path = (store.data_dir / LEASE_FILE).resolve()  # it is a mark in the server's environment: never relative
    notes = [*map(str, store.torn), *_end_leftover(spec, lease_path)]
    for note in notes:
        say(note)
    check_port(spec)
    write_head(spec, store, history)
    left = [planned for planned in runs if not history.finished(planned)]
    progress = ProgressFile(
        store.data_dir, listener, Progress("running", spec.name, len(runs), runs_done=len(runs) - len(left))
    )
    with Signals() as signals:
        loop = _Loop(spec, store, history, progress, signals, lease_path)
        try:
            with loop.storing:
                missing = loop.run(left)
                if undecided and not loop.stopped_early:
                    decision, runs_in_all = decide_once(spec, store)
                    notes.append(decision.words)
                    say(decision.words)
                    rest = beyond(runs_in_all, runs)
                    progress.update(runs_total=len(runs_in_all), message=decision.words)
                    left, missing = [*left, *rest], [*missing, *loop.run(rest)]
        except Interrupted as interrupted:
            progress.update(state="interrupted", phase=None, message=interrupted.what, eta_s=None)
            raise
        except StoreError as error:
            progress.update(state="failed", phase=None, message=str(error), eta_s=None)
            raise
    if loop.stopped_early:
        notes.append(loop.stopped_early)
        say(loop.stopped_early)
    state = "failed" if missing and len(missing) == len(left) else "done"
    progress.update(state=state, phase=None, run_id=None, k=None, block=None, eta_s=None, message=loop.stopped_early)
    return Outcome(progress.now.runs_done, progress.now.runs_failed, tuple(missing), tuple(notes))


def _end_leftover(spec: SweepSpec, lease_path: Path) -> list[str]:
    """End what a killed sweep left running. Raises Refused where that cannot be done."""
    try:
        said = end_on_nodes(lease_path, spec.server.stop_timeout_s, spec.server.release_timeout_s)
        ended = end_leftover(lease_path, spec.server.stop_timeout_s, spec.server.release_timeout_s)
    except RunFailed as failed:
        raise Refused(
            f"a killed sweep left its server behind, and it cannot be ended: {failed.what}", fix=failed.fix
        ) from None
    return said + [f"ended the server (process {pid}) that a killed sweep left behind" for pid in ended]


class _Loop:
    """The state of one pass over the planned runs."""

    def __init__(
        self,
        spec: SweepSpec,
        store: Store,
        history: History,
        progress: ProgressFile,
        signals: Signals,
        lease_path: Path,
    ) -> None:
        self.spec, self.store, self.history, self.progress, self.signals = spec, store, history, progress, signals
        self.storing = ThreadPoolExecutor(1, thread_name_prefix="store")
        self.stopped_early = ""  # why the runs that were left were not tried
        self._kept: list[Record] = []  # of the run under way
        self._means = Means(
            spec,
            engine_for(spec),
            read_prompts(spec.workload.prompts),
            progress,
            signals,
            lease_path,
            before_measuring=self._wait_stored,
            judge=self._judge,
        )
        self._stored: Future[None] | None = None
        self._unpublished = True  # an earlier, killed sweep may have left something
        self._durations_s: list[float] = []

    def run(self, left: Sequence[PlannedRun]) -> list[str]:
        """Carry the planned runs out, each with its retries; returns the ids of those that stay without a result."""
        missing = []
        try:
            for position, planned in enumerate(left):
                self.progress.update(eta_s=self._eta_s(len(left) - position), phase=None)
                if position:
                    self._settle()
                self.signals.check()
                run, failure = self._with_retries(planned)
                if run.status == "done" and run.valid:
                    self.progress.update(runs_done=self.progress.now.runs_done + 1, phase=None)
                    continue
                missing.append(run.run_id)
                if failure is not None and failure.kind == "wont_stop":
                    # what lives on would be measured along: nothing honest can be had before it is gone
                    missing += [
                        planned.run_id(self.spec.name, self.history.attempts(planned) + 1)
                        for planned in left[position + 1 :]
                    ]
                    self.stopped_early = str(failure)
                    break
        except StoreError:
            with suppress(StoreError):  # the first one says it
                self._publish_rest()
            raise
        except Interrupted:
            self._publish_rest()
            raise
        self._publish_rest()
        return missing

    def _settle(self) -> None:
        if self.spec.server.settle_s:
            with self.signals.interruptible():
                time.sleep(self.spec.server.settle_s)

    def _with_retries(self, planned: PlannedRun) -> tuple[Run, RunFailed | None]:
        attempt = self.history.attempts(planned)
        for remaining in range(self.spec.server.retries, -1, -1):
            attempt += 1
            began = time.monotonic()
            run, failure = self._once(planned, attempt)
            if run.status == "done" and run.valid:
                self._durations_s = [*self._durations_s[-99:], time.monotonic() - began]
                return run, None
            self.progress.update(runs_failed=self.progress.now.runs_failed + 1, message=run.reason or "")
            if not remaining or (failure is not None and failure.kind in FINAL_KINDS):
                return run, failure
            self._settle()
            self.signals.check()
        raise AssertionError("the loop returns")  # range is never empty

    def _once(self, planned: PlannedRun, attempt: int) -> tuple[Run, RunFailed | None]:
        run_id = planned.run_id(self.spec.name, attempt)
        log_path = self.store.data_dir / "logs" / self.spec.name / f"{run_id.split(':', 1)[1]}.log"
        means = self._means
        if planned.role == "diagnostic":
            means = replace(means, engine=engine_for(self.spec, eager=True))
        run = begun(self.spec, planned, attempt, means.engine, log_path)
        self.progress.update(
            run_id=run_id, k=planned.k, block=planned.block, requests_done=0, requests_total=0, phase="launch"
        )
        self._kept, self._unpublished = [], True
        lock = threading.Lock()  # several clients write at concurrency above 1
        with self.store.run_journal(self.spec.name, run_id) as run_journal:

            def append(records: Sequence[Record]) -> None:
                with lock:
                    run_journal.append(*records)
                    self._kept.extend(records)

            run, failure = carry_out(means, planned, run, append)
        self._wait_stored()
        self._stored = self.storing.submit(self._store)
        return run, failure

    def _judge(self, run: Run) -> tuple[list[Finding], Run]:
        """What the checks find in a finished run; K-blind evidence takes it out of fits, and it is repeated."""
        with self.store.reading() as con:
            history = queries_nodes.canary_history(con)
        found = publish.findings_of_run(run, self._kept, history)
        seen = [record for record in self._kept if isinstance(record, Finding)]  # of server and nodes, kept already
        reason = exclusions([*found, *seen]).get(run.run_id)
        if reason is not None:
            run = replace(run, valid=False, exclusion_reason=reason)
        return found, run

    def _store(self) -> None:
        self._unpublished = False
        publish.publish(self.store)

    def _wait_stored(self) -> None:
        """Wait for the storing thread: nothing is stored while anything is measured. Raises what storing raised."""
        if self._stored is not None:
            self._stored.result()
            self._stored = None

    def _publish_rest(self) -> None:
        self.progress.update(phase="store")
        self._wait_stored()
        if self._unpublished:
            self._store()

    def _eta_s(self, runs_left: int) -> float | None:
        if not self._durations_s:
            return None
        return runs_left * sum(self._durations_s) / len(self._durations_s)
