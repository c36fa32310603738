"""One run: launch one depth, wait ready, warm up, MEASURE every cell, stop, verify released. All of it as records.

A failure is a Run with its reason and a Failure with the last log lines; it never raises past this module,
except for an interruption and for a journal that cannot be written.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from backend.engines.base import Engine, Ready, Server
from backend.errors import Interrupted, RunFailed
from backend.measure import environment
from backend.measure.cell import Bench, measure, prompt_ids, warm_up
from backend.measure.client import Client
from backend.measure.workload import Prompt
from backend.progress import ProgressFile
from backend.records import Failure, Record, Run
from backend.schedule import PlannedRun
from backend.spec import SweepSpec

DEATH_S = 6.0  # a vLLM whose engine died answers 500 at once and takes up to 4 s to end itself

Append = Callable[[Sequence[Record]], None]


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


def carry_out(
    spec: SweepSpec,
    planned: PlannedRun,
    run: Run,
    engine: Engine,
    prompts: tuple[Prompt, ...],
    append: Append,
    progress: ProgressFile,
    *,
    lease_path: Path,
    before_measuring: Callable[[], None],
) -> tuple[Run, RunFailed | None]:
    """Carry a run out; its final record, appended already, and why it failed if it did.

    `before_measuring` is called once, when the server is ready. Raises Interrupted after marking the run.
    """
    append([run])
    server: Server | None = None
    failure: RunFailed | None = None
    interruption: Interrupted | None = None
    try:
        progress.update(phase="launch")
        server = engine.launch(planned.k, Path(run.log_path or ""), lease_path)
        ready = server.wait_ready()
        run = replace(run, server_start_s=ready.server_start_s, reported_k=ready.reported_k)
        before_measuring()
        _measure_cells(spec, planned, run, server, ready, prompts, append, progress)
    except RunFailed as failed:
        failure = _with_evidence(failed, server)
    except Interrupted as interrupted:
        interruption = interrupted
    stopped_s, stop_failure = _stop(server, progress)
    failure = failure or stop_failure
    run = replace(run, server_stop_s=stopped_s, ended_unix_s=time.time())
    if interruption is not None:
        append([replace(run, status="interrupted", valid=False, reason=interruption.what)])
        raise interruption
    if failure is None:
        run = replace(run, status="done")
        append([run])
        return run, None
    run = replace(run, status="failed", valid=False, reason=str(failure))
    append([Failure(run.run_id, failure.kind, str(failure), failure.log_tail, time.time()), run])
    return run, failure


def _measure_cells(
    spec: SweepSpec,
    planned: PlannedRun,
    run: Run,
    server: Server,
    ready: Ready,
    prompts: tuple[Prompt, ...],
    append: Append,
    progress: ProgressFile,
) -> None:
    streaming = _streams(spec, ready)

    def tick(phase: str, done: int, total: int) -> None:
        changes = {"requests_done": done}
        if (phase, total) != (progress.now.phase, progress.now.requests_total):
            progress.update(phase=phase, requests_total=total, **changes)
        else:
            progress.update(**changes)

    connections = max(cell.concurrency for cell in planned.cells)
    with Client(server.base_url, spec.server.request_timeout_s, connections) as client:
        append(environment.describe(run.run_id, client))
        bench = Bench(
            spec, client, ready.model_name, planned.k, run.run_id, streaming, ready.engine_clock, prompts, append, tick
        )
        for cell in planned.cells:
            ids = prompt_ids(bench, cell)
            warm_up(bench, cell, ids)
            measure(bench, cell, ids, planned.seed)
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
    return RunFailed(
        failure.what,
        kind=kind,
        where=failure.where,
        fix=failure.fix,
        log_tail=failure.log_tail or server.log_tail(),
    )
