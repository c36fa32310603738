"""Real vLLM on this CPU: one smoke sweep and one server, each started once for all tests that look at them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from backend.engines import VllmEngine
from backend.engines.base import Ready, Server
from backend.spec import SweepSpec
from backend.spec_file import load

from .proposers import INSIDE, ONE_PROCESS

ROOT = Path(__file__).parents[2]
SPECS = ROOT / "data" / "specs"
PORT = 18943


@dataclass(frozen=True)
class SmokeSweep:
    """The finished smoke sweep, run through the command line as a user would."""

    data_dir: Path
    exit_code: int
    output: str

    @property
    def snapshot(self) -> Path:
        return self.data_dir / "results.duckdb"


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> SmokeSweep:
    data_dir = tmp_path_factory.mktemp("smoke")
    command = [sys.executable, "-m", "backend", "sweep", str(SPECS / "smoke.toml"), "--data", str(data_dir)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as sweep:
        try:
            output, _ = sweep.communicate(timeout=800)
        except subprocess.TimeoutExpired:
            sweep.terminate()  # not kill: it must end its server
            output, _ = sweep.communicate(timeout=100)
    return SmokeSweep(data_dir, sweep.returncode, output)


@dataclass(frozen=True)
class Running:
    """A ready K=3 server of the smoke sweep's pair."""

    spec: SweepSpec
    server: Server
    ready: Ready
    port: int


def spec_on(port: int, **changes: object) -> SweepSpec:
    """The smoke spec on another port, with changes to its fields (workload and server fields by their own name)."""
    raw = load(SPECS / "smoke.toml").model_dump()
    raw["server"]["port"] = port
    for name, value in changes.items():
        part = next((part for part in ("workload", "server") if name in raw[part]), None)
        (raw[part] if part else raw)[name] = value
    return SweepSpec.model_validate(raw)


def braking(port: int) -> SweepSpec:
    """The smoke spec with the braking probe (inside/spinning_probe.py), everything in one process.

    On one thread: of two the second falls asleep during the brake, and all that comes after waits for it to wake.
    """
    server = load(SPECS / "smoke.toml").server
    one_process, inside = ONE_PROCESS[1], {"VLLM_CPU_OMP_THREADS_BIND": "0", "PYTHONPATH": str(INSIDE)}
    extension = ("--worker-extension-cls", "spinning_probe.SpinningProbe")
    return spec_on(
        port,
        argv=(*server.argv, "--distributed-executor-backend", "uni", *extension),
        env={**server.env, **one_process, **inside},
    )


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("server")
    spec = spec_on(PORT)
    server = VllmEngine(spec).launch(3, folder / "server.log", folder / "server.json")
    try:
        yield Running(spec, server, server.wait_ready(), PORT)
    finally:
        server.stop()
