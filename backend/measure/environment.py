"""What machine and engine a run ran on, as named facts. Runs on different machines are never silently pooled."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

from backend.measure.client import Client
from backend.records import Environment
from backend.spec import SweepSpec


def home(spec: SweepSpec) -> str:
    """What this machine is called in the records: its name in the spec where it has one, else its host name."""
    return next((node.name for node in spec.node if node.local), platform.node())


def describe(run_id: str, client: Client, node: str) -> list[Environment]:
    """Facts about this machine (called `node`) and the server. An unreadable fact is None, never left out."""
    facts = dict(_machine())
    facts["engine_version"] = client.version()
    return [Environment(run_id, node, name, value) for name, value in facts.items()]


def code_version(root: Path) -> str:
    """Version of this code: the package version and, in a checkout, the commit."""
    from backend import __version__

    try:
        commit = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{__version__}+{commit}"


def _machine() -> Iterator[tuple[str, str | None]]:
    yield "kernel", platform.release()
    yield "machine", platform.machine()
    yield "python", platform.python_version()
    yield "cpu_model", _first_value("/proc/cpuinfo", "model name")
    yield "cpu_count", str(os.cpu_count())
    yield "memory_total_kb", _first_value("/proc/meminfo", "MemTotal")
    yield "memory_available_kb", _first_value("/proc/meminfo", "MemAvailable")
    yield "load_1min", f"{os.getloadavg()[0]:.2f}"
    yield "cpu_governor", _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def _first_value(path: str, key: str) -> str | None:
    text = _read(path)
    line = next((line for line in (text or "").splitlines() if line.startswith(key)), None)
    return line.partition(":")[2].strip().removesuffix(" kB") if line else None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
