"""Processes we start: a session of their own, a log, a lease on disk, and an end that is verified.

The lease (pid, its start time, port) lets a later sweep end what a killed one left behind, without ever
signalling a process that merely reuses the pid.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from backend.errors import RunFailed

LOG_TAIL_LINES = 40
POLL_S = 0.05
MARK = "SOUNDING_LEASE"  # in a server's environment: names the sweep's lease even if we died before writing it


@dataclass(frozen=True, slots=True)
class Lease:
    """A session leader we started. `start_ticks` (/proc/<pid>/stat, field 22) tells it from a later user of its pid."""

    pid: int
    start_ticks: int
    host: str
    port: int


def _stat(pid: int) -> tuple[int, int, str] | None:
    """(session id, start ticks, state) of a process, or None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name before it may hold spaces and brackets
    return int(fields[3]), int(fields[19]), fields[0]


def session_members(session_id: int) -> list[int]:
    """Live (not zombie) processes of a session: every rank and helper that a server forked."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            stat = _stat(int(entry.name))
            if stat and stat[0] == session_id and stat[2] != "Z":
                members.append(int(entry.name))
    return members


def port_in_use(host: str, port: int) -> bool:
    """Whether something listens there. Binding is the test: it also sees a listener that does not answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def tail(path: Path, lines: int = LOG_TAIL_LINES, limit_bytes: int = 65536) -> str:
    """The last lines of a log; an empty string when there is none yet."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - limit_bytes))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""


class ManagedProcess:
    """A command run in a session of its own with its output in a log file."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], log_path: Path, lease_path: Path, *, host: str, port: int
    ) -> None:
        if port_in_use(host, port):
            raise RunFailed(
                f"port {port} on {host} is in use before the launch",
                kind="launch",
                where=f"port {port}",
                fix="end what listens there or give server.port another value",
            )
        self.log_path, self.lease_path, self.host, self.port = log_path, lease_path, host, port
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("wb") as log:
            try:
                self._process = subprocess.Popen(
                    argv,
                    env={**os.environ, **env, MARK: str(lease_path)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise RunFailed(
                    f"cannot start {argv[0]}: {error.strerror}",
                    kind="launch",
                    where=argv[0],
                    fix="check server.python / server.argv of the spec",
                ) from None
        stat = _stat(self._process.pid)
        self.lease = Lease(self._process.pid, stat[1] if stat else 0, host, port)
        lease_path.write_text(json.dumps(asdict(self.lease)))

    def alive(self) -> bool:
        """Whether the main process runs."""
        return self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """Exit status of the main process, None while it runs."""
        return self._process.poll()

    def log_tail(self) -> str:
        """Last lines of its log."""
        return tail(self.log_path)

    def stop(self, stop_timeout_s: float, release_timeout_s: float) -> float:
        """SIGTERM, then SIGKILL to the whole session; verify it and the port are gone. Seconds taken."""
        began = time.monotonic()
        try:
            end_session(self.lease, stop_timeout_s, release_timeout_s, reap=self._process)
        except RunFailed as failure:
            raise RunFailed(failure.what, kind=failure.kind, fix=failure.fix, log_tail=self.log_tail()) from None
        self.lease_path.unlink(missing_ok=True)
        return time.monotonic() - began


def end_session(
    lease: Lease, stop_timeout_s: float, release_timeout_s: float, reap: subprocess.Popen[bytes] | None = None
) -> None:
    """End a session we started; verify its processes and port are gone. Raises RunFailed(kind='wont_stop')."""
    for signal_number, patience_s in ((signal.SIGTERM, stop_timeout_s), (signal.SIGKILL, release_timeout_s)):
        members = session_members(lease.pid)
        if not members:
            break
        # SIGTERM goes to the leader, which ends its ranks in order; SIGKILL to all that is left
        for pid in [lease.pid] if signal_number == signal.SIGTERM and lease.pid in members else members:
            try:
                os.kill(pid, signal_number)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and session_members(lease.pid):
            if reap:
                reap.poll()
            time.sleep(POLL_S)
    if reap:
        reap.poll()
    deadline = time.monotonic() + release_timeout_s
    while (left := session_members(lease.pid)) or (lease.port and port_in_use(lease.host, lease.port)):
        if time.monotonic() > deadline:
            what = f"processes {left} live on" if left else f"port {lease.port} stays in use"
            raise RunFailed(
                f"after stop, {what}", kind="wont_stop", fix="end them by hand, then run the sweep again with --resume"
            )
        time.sleep(POLL_S)


def end_leftover(lease_path: Path, stop_timeout_s: float, release_timeout_s: float) -> list[int]:
    """End the servers that a killed sweep left behind; returns the session leaders' pids.

    The leader may be dead and its ranks alive (kill -9 of an API server), so the session decides, not the
    leader; a leader pid whose start time differs is somebody else's process and is left alone. A server
    launched in the instant before its lease was written is found by the mark in its environment.
    """
    leases: dict[int, Lease] = {}
    try:
        lease = Lease(**json.loads(lease_path.read_text()))
        stat = _stat(lease.pid)
        if stat is None or stat[1] == lease.start_ticks:
            leases[lease.pid] = lease
    except (FileNotFoundError, json.JSONDecodeError, TypeError):
        lease = None
    for pid in marked_processes(lease_path):
        if stat := _stat(pid):
            leases.setdefault(
                stat[0], Lease(stat[0], 0, lease.host if lease else "127.0.0.1", lease.port if lease else 0)
            )
    ended = [lease for session_id, lease in leases.items() if session_members(session_id)]
    for lease in ended:
        end_session(lease, stop_timeout_s, release_timeout_s)
    lease_path.unlink(missing_ok=True)
    return [lease.pid for lease in ended]


def marked_processes(lease_path: Path) -> list[int]:
    """Processes started for this lease, by the mark in their environment (session leaders keep it readable)."""
    mark = f"{MARK}={lease_path}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue  # gone, or another user's
    return found
