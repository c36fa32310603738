"""Keeps one rank of a server on its node: the program that is piped there with session.py and errors.py.

Standard library only, Python 3.10 or later, Linux. It answers JSON lines (see `OPERATIONS`) and ends with its input, or
after `deadman_s` without a request; the rank it launched is in a session of its own and lives on, found again by its
lease. Looking costs well under a millisecond: what must stay alive is held by handles, not searched for.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from backend.engines import session
from backend.errors import RunFailed

FOLDER_HERE = "{folder on this node}"
LOG_CHUNK_BYTES = 1 << 18
TITLES = (b"VLLM::", b"ray::RayWorker")  # process titles of engine cores and workers of vLLM, and of its Ray actors


class Keeper:
    """One rank's process here: launched, looked after, ended. `folder` holds lease and log."""

    def __init__(self, folder: str, lease: str) -> None:
        self.folder = Path(folder).expanduser()
        self.lease_path = (self.folder / lease).resolve()
        self.lease = session.read_lease(self.lease_path)
        self._child: subprocess.Popen[bytes] | None = None
        self._leader: int | None = self._handle_of_leader()  # of a rank that an earlier connection launched
        self._watched: dict[int, str] = {}  # handle -> what it is

    def hello(self) -> dict[str, Any]:
        """What this node is: its name, its Python, and the memory that a release is compared with."""
        return {"hostname": socket.gethostname(), "python": sys.version.split()[0], **memory()}

    def launch(
        self,
        argv: list[str],
        env: Mapping[str, str],
        files: Mapping[str, str],
        log: str,
        address: str,
        ports: list[int],
    ) -> dict[str, Any]:
        """Start the rank in a session of its own; `ports` must be free at `address`, the first is verified at the end.

        `files` (name -> text) are put into `folder` before; FOLDER_HERE in the environment becomes its path.
        Raises RunFailed(kind="launch").
        """
        env = {name: value.replace(FOLDER_HERE, str(self.folder)) for name, value in env.items()}
        for port in ports:
            if session.port_in_use(address, port) or session.port_in_use("0.0.0.0", port):
                raise RunFailed(f"port {port} is in use before the launch", kind="launch", fix="end what listens there")
        log_path = self.folder / log
        try:
            log_path.parent.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name).write_text(text)
            with log_path.open("wb") as output:
                self._child = subprocess.Popen(
                    argv,
                    env={**os.environ, **env, session.MARK: str(self.lease_path)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise RunFailed(f"cannot start {argv[0]}: {error.strerror} ({error.filename})", kind="launch") from None
        pid = self._child.pid
        stat = session.stat_of(pid)
        self.lease = session.Lease(
            pid,
            stat.start_ticks if stat else 0,
            session.boot_id(),
            address,
            ports[0] if ports else 0,
            str(log_path.resolve()),
        )
        self._leader = os.pidfd_open(pid)
        try:
            session.write_lease(self.lease_path, self.lease)
        except OSError as error:
            self.stop(0, 30)
            raise RunFailed(f"cannot write {self.lease_path}: {error.strerror}", kind="launch") from None
        return {"pid": pid, "env": env}

    def watch(self, known: list[int] | None) -> dict[str, Any]:
        """From now on the rank's engine cores and workers must live too: `look` tells which of them ended.

        `known`: for a node where Ray started the workers, those that were there before; else our session is searched.
        """
        for handle in self._watched:
            os.close(handle)
        self._watched = {}
        if known is not None:
            found = [pid for pid in workers() if pid not in known]
        else:
            ours = self.lease is not None and session.is_ours(self.lease)
            found = session.members(self.lease.pid) if self.lease is not None and ours else []
        for pid in found:
            with suppress(OSError):
                title = Path(f"/proc/{pid}/cmdline").read_bytes()
                if title.startswith(TITLES):
                    name = title.replace(b"\0", b" ").decode(errors="replace").strip()
                    self._watched[os.pidfd_open(pid)] = f"{name} (process {pid})"
        return {"watched": sorted(self._watched.values())}

    def look(self, log: str, offset: int, interface: str | None) -> dict[str, Any]:
        """Whether leader and watched processes live, what is new in the log, how often the data link came or went."""
        lost = [name for handle, name in self._watched.items() if ended(handle)]
        text, at = b"", offset
        with suppress(OSError), (self.folder / log).open("rb") as file:
            file.seek(offset)
            text = file.read(LOG_CHUNK_BYTES)
            at += len(text)
        carrier = None
        if interface is not None:
            with suppress(OSError, ValueError):
                carrier = int(Path(f"/sys/class/net/{interface}/carrier_changes").read_text())
        return {
            "leader": self._leader is not None and not ended(self._leader),
            "status": self._child.poll() if self._child is not None else None,
            "lost": lost,
            "text": text.decode(errors="replace"),
            "offset": at,
            "carrier_changes": carrier,
        }

    def stop(self, stop_timeout_s: float, release_timeout_s: float) -> dict[str, Any]:
        """End every session of the rank and verify processes and port. Raises RunFailed(kind="wont_stop")."""
        began = time.monotonic()
        ended_sessions = session.end_server(
            self.lease_path, self.lease, stop_timeout_s, release_timeout_s, reap=self._child
        )
        took_s = time.monotonic() - began
        self.lease, self._child, self._leader = None, None, None
        return {"took_s": took_s, "forced": took_s >= stop_timeout_s > 0, "ended": ended_sessions}

    def released(self, address: str, ports: list[int], known: list[int] | None) -> dict[str, Any]:
        """What is still here of it: listeners, marked processes and, where Ray started them, workers not `known`."""
        held = [port for port in ports if session.port_in_use(address, port)]
        left = session.marked(self.lease_path)
        left += [] if known is None else [pid for pid in workers() if pid not in known]
        return {"ports": held, "processes": left, **memory()}

    def workers(self) -> dict[str, Any]:
        """Processes of vLLM or of its Ray actors on this node, whoever started them."""
        return {"workers": workers()}

    def _handle_of_leader(self) -> int | None:
        if self.lease is None or not session.is_ours(self.lease):
            return None
        with suppress(ProcessLookupError):
            return os.pidfd_open(self.lease.pid)
        return None


def ended(handle: int) -> bool:
    """Whether the process of a pidfd has ended: the handle becomes readable then."""
    return bool(select.select([handle], [], [], 0)[0])


def memory() -> dict[str, int]:
    """MemTotal and MemAvailable in bytes, from /proc/meminfo: on unified memory also what the GPU can have."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    kibibytes = {fields[0].rstrip(":"): int(fields[1]) for fields in lines}
    return {"memory_bytes": kibibytes["MemTotal"] << 10, "memory_available_bytes": kibibytes["MemAvailable"] << 10}


def workers() -> list[int]:
    """Process numbers by title; a title of ours is no proof of whose it is, so nothing is signalled by it."""
    found = []
    for pid in session.processes():
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(TITLES):
                found.append(pid)
    return found


OPERATIONS = ("hello", "launch", "watch", "look", "stop", "released", "workers")


def main() -> None:
    """argv: folder, name of the lease, deadman_s. One JSON object a line in and out; a RunFailed goes out as one."""
    folder, lease, deadman_s = sys.argv[1:4]
    keeper, held = Keeper(folder, lease), b""
    while select.select([0], [], [], float(deadman_s))[0]:
        chunk = os.read(0, 1 << 16)
        if not chunk:
            return
        *lines, held = (held + chunk).split(b"\n")
        for line in lines:
            request = json.loads(line)
            operation = request.pop("op")
            try:
                if operation not in OPERATIONS:
                    raise RunFailed(f"no operation {operation}", kind="launch")
                answer = getattr(keeper, operation)(**request)
            except RunFailed as failure:
                answer = {"failed": {"what": failure.what, "kind": failure.kind, "fix": failure.fix}}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
