"""One run: launch one depth, wait ready, warm up, MEASURE and time every cell, stop, verify released: all as records.

A failure is a Run with its reason and a Failure with the last log lines; it never raises past this module, except for
an interruption and for a journal that cannot be written. However a run ends, no server of it is left.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from backend.engines.base import Engine, Ready, Server
from backend.errors import Interrupted, RunFailed, StoreError
from backend.interrupt import Signals
from backend.measure import environment, nccl
from backend.measure.cell import Bench, measure, prompt_ids, warm_up
from backend.measure.client import Client
from backend.measure.forced import force_starts
from backend.measure.instrument import instrument
from backend.measure.watch import Watch
from backend.measure.workload import Prompt
from backend.progress import ProgressFile
from backend.records import Failure, Finding, Record, Run
from backend.schedule import PlannedRun
from backend.spec import SweepSpec

DEATH_S = 6.0  # a vLLM whose engine died answers 500 at once and takes up to 4 s to end itself
CLOCK_STEP_S = 0.2  # wall against monotonic clock over a run; slewing by NTP stays below 500 ppm
CLOCK_SLEW = 6e-4

Append = Callable[[Sequence[Record]], None]


@dataclass(frozen=True, slots=True)
class Means:
    """What a sweep carries its runs out with. `judge` returns findings and the run, excluded where they say so;
    `before_measuring` is called once, when the server is ready.
    """

    spec: SweepSpec
    engine: Engine
    prompts: tuple[Prompt, ...]
    progress: ProgressFile
    signals: Signals
    lease_path: Path
    before_measuring: Callable[[], None]
    judge: Callable[[Run], tuple[list[Finding], Run]]


def begun(spec: SweepSpec, planned: PlannedRun, attempt: int, engine: Engine, log_path: Path) -> Run:
    """The record of a run at its start: status "running" until its end is written."""
    argv, env = engine.command(planned.k)
    return Run(
        run_id=planned.run_id(spec.name, attempt),
        sweep=spec.name,
        k=planned.k,
        block=planned.block,
        order_index=planned.order_index,
        attempt=attempt,
        role=planned.role,
        status="running",
        reason=None,
        valid=True,
        exclusion_reason=None,
        started_unix_s=time.time(),
        ended_unix_s=None,
        server_start_s=None,
        server_stop_s=None,
        reported_k=None,
        command=shlex.join(argv) if argv else None,
        env=env,
        log_path=str(log_path),
    )


def carry_out(means: Means, planned: PlannedRun, run: Run, append: Append) -> tuple[Run, RunFailed | None]:
    """Carry a run out; its final record, appended already, and why it failed if it did.

    Raises Interrupted after marking the run, StoreError when the journal cannot be written (the run is marked if there
    is room for that). The last append is one: a run is never "done" on disk without what its checks found.
    """
    append([run])
    clocks = time.time(), time.monotonic()
    server: Server | None = None
    failure: RunFailed | None = None
    interruption: Interrupted | None = None
    broken: StoreError | None = None

    def whole(records: Sequence[Record]) -> None:
        with means.signals.held():  # never half a line
            append(records)

    watch = Watch(means.spec, run.run_id, whole)
    try:
        means.progress.update(phase="launch")
        server = means.engine.launch(planned.k, Path(run.log_path or ""), means.lease_path)
        with means.signals.interruptible():
            ready = server.wait_ready()
            run = replace(run, server_start_s=ready.server_start_s, reported_k=ready.reported_k)
            if means.spec.nodes.roce:
                nccl.check_logs({"the server": Path(run.log_path or "")})
            means.before_measuring()
            means.progress.update(phase="warmup")
            with watch:
                _measure_cells(means, planned, run, server, ready, append)
    except RunFailed as failed:
        failure = _with_evidence(failed, server)
    except Interrupted as interrupted:
        interruption = interrupted
    except StoreError as error:
        broken = error
    finally:
        stopped_s, stop_failure = _stop(server, means.progress)
    found = [finding for finding in (_clock_step(run, *clocks), _forced_stop(run, stopped_s, means.spec)) if finding]
    found += watch.findings(run.sweep)
    run = replace(run, server_stop_s=stopped_s, ended_unix_s=time.time())
    if broken is not None:
        failure = RunFailed(broken.what, kind="disk", where=broken.where, log_tail=server.log_tail() if server else "")
        with suppress(StoreError):  # no room for that either: resuming marks the run
            append(_failed(run, failure))
        raise broken
    if interruption is not None:
        append([replace(run, status="interrupted", valid=False, reason=interruption.what)])
        raise interruption
    seen = server.records(run) if server is not None else []
    failure = _both(failure, stop_failure)
    if failure is not None:
        records = _failed(run, failure)
        append([*found, *seen, *records])
        return records[-1], failure
    append(seen)  # before the judgement, which looks at what was kept
    judged, run = means.judge(replace(run, status="done"))
    append([*found, *judged, run])
    return run, None


def _failed(run: Run, failure: RunFailed) -> tuple[Failure, Run]:
    """The rows of a failed run."""
    reason = str(failure)
    return (
        Failure(run.run_id, failure.kind, reason, failure.log_tail, time.time()),
        replace(run, status="failed", valid=False, reason=reason),
    )


def _clock_step(run: Run, wall_unix_s: float, monotonic_s: float) -> Finding | None:
    """A finding when the wall clock moved against the monotonic one during the run.

    Nothing measured depends on it (windows are the engine's, spans are monotonic), so the run is kept.
    """
    elapsed_s = time.monotonic() - monotonic_s
    step_s = time.time() - wall_unix_s - elapsed_s
    if abs(step_s) <= CLOCK_STEP_S + CLOCK_SLEW * elapsed_s:
        return None
    return Finding(
        run.sweep,
        run.run_id,
        "",
        "clock-step",
        "warning",
        step_s,
        "s",
        f"the wall clock moved by {step_s:+.1f} s against the monotonic one during the run; no window uses it",
        "set the clock before a sweep and keep the machine from sleeping; times of day in this run are off by the step",
    )


def _forced_stop(run: Run, stopped_s: float | None, spec: SweepSpec) -> Finding | None:
    """A finding when SIGTERM was not enough: everything was measured before, so the run is kept.

    A server over nodes stops one rank after the other and tells itself which it had to kill.
    """
    over_nodes = spec.server.launcher in ("nnodes", "ray")
    if over_nodes or stopped_s is None or stopped_s <= spec.server.stop_timeout_s:
        return None
    return Finding(
        run.sweep,
        run.run_id,
        "",
        "stop-forced",
        "warning",
        stopped_s,
        "s",
        f"the server did not end within {spec.server.stop_timeout_s:g} s of SIGTERM and was killed",
        "raise server.stop_timeout_s if it needs longer here; a killed server can leave memory of the GPU in use",
    )


def _measure_cells(means: Means, planned: PlannedRun, run: Run, server: Server, ready: Ready, append: Append) -> None:
    spec, progress = means.spec, means.progress
    streaming = _streams(spec, ready)

    def tick(phase: str, done: int, total: int) -> None:
        with means.signals.held():
            if (phase, total) != (progress.now.phase, progress.now.requests_total):
                progress.update(phase=phase, requests_total=total, requests_done=done)
            else:
                progress.update(requests_done=done)

    def sink(records: Sequence[Record]) -> None:
        with means.signals.held():  # never half a line
            append(records)

    connections = max(cell.concurrency for cell in planned.cells)
    with Client(server.base_url, spec.server.request_timeout_s, connections) as client:
        sink(environment.describe(run.run_id, client, environment.home(spec)))
        bench = Bench(
            spec,
            client,
            ready.model_name,
            planned.k,
            run.run_id,
            streaming,
            ready.engine_clock,
            means.prompts,
            sink,
            tick,
        )
        for cell in planned.cells:
            ids = prompt_ids(bench, cell)
            warm_up(bench, cell, ids)
            timed_alone = spec.timing.alone or planned.role == "diagnostic"
            answers = [] if timed_alone else measure(bench, cell, ids, planned.seed)
            if planned.role == "arm":
                force_starts(bench, cell, ids, answers)
            if planned.role != "anchor":
                instrument(bench, cell, ids, planned.seed)
    if not server.alive():
        raise RunFailed("the server ended while it was measured", kind="died")


def _streams(spec: SweepSpec, ready: Ready) -> bool:
    """Whether to stream: only where the engine's own clock is missing, or where the spec asks for it."""
    if spec.server.transport == "engine" and not ready.engine_clock:
        raise RunFailed(
            "the server reports no per-request times",
            kind="http",
            fix="start it with --enable-per-request-metrics, or set server.transport = 'auto'",
        )
    return spec.server.transport == "stream" or not ready.engine_clock


def _stop(server: Server | None, progress: ProgressFile) -> tuple[float | None, RunFailed | None]:
    if server is None:
        return None, None
    progress.update(phase="stop")
    try:
        return server.stop(), None
    except RunFailed as failed:
        return None, failed


def _both(failure: RunFailed | None, stop_failure: RunFailed | None) -> RunFailed | None:
    """What a run failed of. A server that lives on outweighs the rest: nothing more may be launched beside it."""
    if failure is None or stop_failure is None:
        return failure or stop_failure
    return RunFailed(
        f"{failure}; and then {stop_failure.what}",
        kind=stop_failure.kind,
        where=stop_failure.where,
        fix=stop_failure.fix,
        log_tail=failure.log_tail,
    )


def _with_evidence(failure: RunFailed, server: Server | None) -> RunFailed:
    """The failure with the server's last log lines; a refused request of a dead server is the server's death."""
    if server is None:
        return failure
    kind = failure.kind
    if kind == "http":
        deadline = time.monotonic() + DEATH_S
        while server.alive() and time.monotonic() < deadline:
            time.sleep(0.1)
        kind = kind if server.alive() else "died"
    trouble = server.trouble()
    return RunFailed(
        failure.what if trouble is None or trouble in failure.what else f"{failure.what}: {trouble}",
        kind=kind,
        where=failure.where,
        fix=failure.fix,
        log_tail=failure.log_tail or server.log_tail(),
    )
