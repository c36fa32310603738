"""What the node agent knows of its node: facts for the record, answers for the pre-flight and for the release check.

Part of the agent (agent.py): standard library only. Unknown is None; sizes are bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from backend.measure.agent_sensors import SYS, Nvml, attempt, meminfo, text

SIOCGIFADDR = 0x8915
BIG_FILE_BYTES, EDGE_BYTES = 64 << 20, 1 << 20


def programs(mark: str | None = None) -> Iterator[tuple[int, str]]:
    """(pid, name) of every process that can be seen; with `mark` ("NAME=value"), of those with it in their environment.

    The environment is read before the name: a new process carries its parent's name until its program has started,
    and the environment it was given only from then on.
    """
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (mark is None or carries(entry.name, mark)) and (name := text(entry / "comm")):
            yield int(entry.name), name


def carries(pid: int | str, mark: str) -> bool:
    """Whether a process was given this "NAME=value"; False for one that is gone or another user's."""
    return mark.encode() in (attempt(Path(f"/proc/{pid}/environ").read_bytes)[0] or b"").split(b"\0")


def interfaces() -> list[dict[str, Any]]:
    """Network interfaces: name, state, IPv4 address, MTU, speed (Mb/s)."""
    import fcntl

    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for path in sorted(SYS.glob("class/net/*")):
            request = struct.pack("256s", path.name.encode()[:15])
            packed, _ = attempt(partial(fcntl.ioctl, asking, SIOCGIFADDR, request))
            found.append(
                {
                    "name": path.name,
                    "state": text(path / "operstate"),
                    "address": socket.inet_ntoa(packed[20:24]) if packed else None,
                    "mtu": text(path / "mtu"),
                    "speed_mbit_s": text(path / "speed"),
                }
            )
    return found


def hcas() -> list[dict[str, Any]]:
    """RDMA adapters: name, state of port 1 ("4: ACTIVE"), link layer."""
    return [
        {"name": path.name, "state": text(path / "ports/1/state"), "link": text(path / "ports/1/link_layer")}
        for path in sorted(SYS.glob("class/infiniband/*"))
    ]


def killers() -> dict[str, str | None]:
    """What could end a loading server behind our back: earlyoom, systemd-oomd, Ray's memory monitor."""
    seen = list(programs())
    ray = [pid for pid, name in seen if name == "raylet"]
    watched = [pid for pid in ray if not carries(pid, "RAY_memory_monitor_refresh_ms=0")]
    oom = sorted({name for _, name in seen if name in ("earlyoom", "systemd-oomd")})
    return {
        "earlyoom": ", ".join(oom) or "not running",
        "ray_memory_monitor": "no Ray here" if not ray else "on" if watched else "off",
    }


def facts(nvml: Nvml) -> dict[str, str | None]:
    """Named facts about machine, GPU, firmware and what runs beside us; an unreadable one is None."""
    uptime = text("/proc/uptime")
    seen: dict[str, str | None] = {
        "hostname": socket.gethostname(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cpu_model": cpu_model(),
        "cpu_count": str(os.cpu_count()),
        "memory_total_kb": kilobytes("MemTotal"),
        "memory_available_kb": kilobytes("MemAvailable"),
        "load_1min": f"{os.getloadavg()[0]:.2f}",
        "cpu_governor": text(SYS / "devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "uptime_s": uptime.split()[0] if uptime else None,
        "boot_id": text("/proc/sys/kernel/random/boot_id"),
        "product": text(SYS / "class/dmi/id/product_name"),
        "firmware": text(SYS / "class/dmi/id/bios_version"),
        "rdma": ", ".join(f"{hca['name']} {hca['state']} {hca['link']}" for hca in hcas()) or "none",
        **killers(),
        **nvml.facts(),
    }
    return seen


def kilobytes(key: str) -> str | None:
    """A line of /proc/meminfo in kB, as text."""
    size = meminfo(key)
    return None if size is None else str(size // 1024)


def cpu_model() -> str | None:
    """The first processor's name; ARM kernels give none."""
    lines = (text("/proc/cpuinfo") or "").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def model(folder: str, whole_bytes: int) -> dict[str, Any]:
    """A model folder: bytes of its weights, config.json, revision, and a digest of all files.

    Up to `whole_bytes` in all every byte goes into the digest; above, of files over 64 MiB only size, first and last
    MiB do, and `whole` is False. Files are taken by their relative names, so that equal folders have equal digests.
    """
    root = Path(folder).expanduser()
    files = sorted(path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts)
    if not root.is_dir() or not files:
        return {"exists": False}
    sizes = {path: path.stat().st_size for path in files}
    whole, digest = sum(sizes.values()) <= whole_bytes, hashlib.sha256()
    for path, size in sizes.items():
        digest.update(f"{path.relative_to(root)}\0{size}\0".encode())
        with path.open("rb") as file:
            if whole or size <= BIG_FILE_BYTES:
                while block := file.read(EDGE_BYTES):
                    digest.update(block)
            else:
                digest.update(file.read(EDGE_BYTES))
                file.seek(size - EDGE_BYTES)
                digest.update(file.read(EDGE_BYTES))
    real = root.resolve()
    return {
        "exists": True,
        "weights_bytes": sum(n for path, n in sizes.items() if path.suffix in (".safetensors", ".bin", ".pt", ".gguf")),
        "files": len(files),
        "digest": digest.hexdigest(),
        "whole": whole,
        "config": attempt(lambda: json.loads((root / "config.json").read_text()))[0],
        "revision": real.name if real.parent.name == "snapshots" else None,  # as the Hugging Face cache lays it out
    }


def disk(folder: str) -> dict[str, Any]:
    """Free bytes where a folder is, or would be made."""
    path = Path(folder).expanduser()
    while not path.exists() and path != path.parent:
        path = path.parent
    return {"folder": str(path), "free_bytes": shutil.disk_usage(path).free, "writable": os.access(path, os.W_OK)}


def version(python: str, package: str) -> dict[str, Any]:
    """The version of a package in another interpreter of this node, without importing it."""
    program = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
    try:
        done = subprocess.run([python, "-c", program, package], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"version": None, "reason": f"{python}: {getattr(error, 'strerror', None) or 'no answer in 60 s'}"}
    if done.returncode:
        return {"version": None, "reason": (done.stderr.strip().splitlines() or ["it said nothing"])[-1]}
    return {"version": done.stdout.strip(), "reason": None}


def listening(port: int) -> bool:
    """Whether a TCP socket listens on a port, on any address."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (text(table) or "").splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            if state == "0A" and int(local.rpartition(":")[2], 16) == port:
                return True
    return False


def released(port: int, mark: str, nvml: Nvml) -> dict[str, Any]:
    """What is left of a server: a listener, processes with `mark` in their environment, compute processes, memory."""
    own = os.getpid()
    left = [{"pid": pid, "program": name} for pid, name in programs(mark) if pid != own] if mark else []
    return {
        "listening": listening(port),
        "processes": left,
        "gpu_processes": nvml.processes(),
        "memory_available_bytes": meminfo("MemAvailable"),
    }


def alive(pid: int, start_ticks: int | None) -> bool:
    """Whether a process runs and is the one that was started (field 22 of /proc/<pid>/stat); zombies do not."""
    stat = text(f"/proc/{pid}/stat")
    if stat is None:
        return False
    fields = stat[stat.rindex(")") + 2 :].split()
    return fields[0] not in "ZX" and (start_ticks is None or int(fields[19]) == start_ticks)
