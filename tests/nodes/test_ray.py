"""Ray: only the head is ours; workers on other nodes are watched by their titles and never signalled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from backend.records import Environment
from tests.nodes.events import SLOWLY, kill, nothing_is_left, once_measuring
from tests.nodes.rig import Host, Rig
from tests.sweep.harness import failures, records, runs, sweep, wait_for

Write = Callable[..., Path]


@contextmanager
def actor_on(host: Host) -> Iterator[int]:
    """A worker that Ray would start there for us, by its title; its number as the host counts."""
    script = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    argv = ["bash", "-c", f"exec -a ray::RayWorkerProc {sys.executable} -c '{script}'"]
    with subprocess.Popen(host.inside(argv), stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            for pid in host.named("ray::RayWorkerProc"):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def launched(hosts: Rig, event: Callable[[], object]) -> Iterator[None]:
    """Inside, `event` is called once a head runs."""

    def wait_and_act() -> None:
        wait_for(lambda: hosts.head.named("scripted_vllm"))
        event()

    actor = threading.Thread(target=wait_and_act)
    actor.start()
    try:
        yield
    finally:
        actor.join()


def ray_spec(scripted_spec: Write, **changes: Any) -> Path:
    return scripted_spec(depths=(1,), server_launcher="ray", server_retries=0, **changes)


def test_ray_launches_the_head_alone(scripted_spec: Write, hosts: Rig, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert sweep(ray_spec(scripted_spec), data).exit_code == 0
    (run,) = runs(data)
    assert "--distributed-executor-backend ray" in (run.command or "")
    assert "--nnodes" not in (run.command or "")
    commands = {f.node: f.value for f in records(data) if isinstance(f, Environment) and f.name == "command"}
    assert commands == {"spark-a": run.command, "spark-b": None}
    nothing_is_left(hosts, data)


@pytest.mark.parametrize("ends", [True, False])
def test_a_ray_worker_that_ends_or_stays(scripted_spec: Write, hosts: Rig, tmp_path: Path, ends: bool) -> None:
    """Watched while it measures; one that stays after the stop is told, and never signalled: it is not ours."""
    data = tmp_path / "data"
    spec = ray_spec(scripted_spec, server_release_timeout_s=1, **SLOWLY)
    if ends:
        with (
            ExitStack() as cluster,
            launched(hosts, lambda: cluster.enter_context(actor_on(hosts.worker))),
            once_measuring(data, lambda: kill(hosts.worker, "ray::RayWorkerProc")),
        ):
            sweep(spec, data)
        (failure,) = failures(data)
        assert failure.kind == "died"
        assert "ray::RayWorkerProc" in failure.reason
        return
    with ExitStack() as cluster, launched(hosts, lambda: cluster.enter_context(actor_on(hosts.worker))):
        sweep(spec, data)
        assert len(hosts.worker.named("ray::RayWorkerProc")) == 1
    (failure,) = failures(data)
    assert failure.kind == "wont_stop"
    assert "lives on" in failure.reason
