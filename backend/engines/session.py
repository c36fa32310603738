"""Sessions of processes: who is in one, whether it is ours, and an end that is verified. Linux, by /proc.

A server is launched as the leader of a session of its own. Everything it forks stays in that session unless it leaves
on purpose; what left still carries the mark in its environment. A session's number is not given to anybody else while
one process is in it, so the number is safe to use exactly as long as we know the session to be ours.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from backend.errors import RunFailed

POLL_S = 0.05
MARK = "SOUNDING_LEASE"  # in a server's environment: names the sweep's lease, even if that was not written yet
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Lease:
    """The session leader we launched. Boot and start time (/proc/<pid>/stat, field 22) tell it from a later process
    of the same number; `log` is the file its session writes to.
    """

    pid: int
    start_ticks: int
    boot_id: str
    host: str
    port: int
    log: str


@dataclass(frozen=True, slots=True)
class Stat:
    """What /proc/<pid>/stat says of a process."""

    state: str  # "Z": ended, not yet reaped
    session: int
    start_ticks: int


def stat_of(pid: int) -> Stat | None:
    """The process's state, or None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name before it may hold spaces and brackets
    return Stat(fields[0], int(fields[3]), int(fields[19]))


def boot_id() -> str:
    """Identifies this boot of the machine; process numbers and start times mean nothing across boots."""
    return BOOT_ID.read_text().strip()


def processes() -> list[int]:
    """Numbers of all processes that we can see."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def members(session: int) -> list[int]:
    """Live (not zombie) processes of a session: every rank and helper that a server forked."""
    found = ((pid, stat_of(pid)) for pid in processes())
    return [pid for pid, stat in found if stat is not None and stat.session == session and stat.state not in "ZX"]


def marked(lease_path: Path) -> list[int]:
    """Processes that carry the mark of this lease. A program that sets its title may have overwritten its own."""
    mark = f"{MARK}={lease_path}".encode()
    found = []
    for pid in processes():
        try:
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
        except OSError:
            continue  # gone, or another user's
    return found


def writes_to(pid: int, log: str) -> bool:
    """Whether a process has this file as its standard output or error: what our sessions have and a stranger's not."""
    for number in (1, 2):
        try:
            if str(Path(f"/proc/{pid}/fd/{number}").readlink()).removesuffix(" (deleted)") == log:
                return True
        except OSError:
            continue
    return False


def is_ours(lease: Lease) -> bool:
    """Whether the lease's session number still means the session that we launched.

    The leader may be dead and its ranks alive (kill -9 of an API server). Then its number could by now be a stranger's
    session, so that a member must be seen to write to our log.
    """
    if lease.boot_id != boot_id():
        return False
    leader = stat_of(lease.pid)
    if leader is not None:
        return leader.start_ticks == lease.start_ticks
    return any(writes_to(pid, lease.log) for pid in members(lease.pid))


def sessions_of(lease_path: Path, lease: Lease | None) -> list[int]:
    """Sessions that the server of this lease has processes in, its own first; never the one we are in ourselves."""
    found = [lease.pid] if lease is not None and is_ours(lease) else []
    found += [stat.session for pid in marked(lease_path) if (stat := stat_of(pid)) is not None]
    own = os.getsid(0)
    return [session for session in dict.fromkeys(found) if session != own]


def port_in_use(host: str, port: int) -> bool:
    """Whether something listens there. Binding is the test: it also sees a listener that does not answer.

    A connection that waits out its TIME_WAIT does not count, and an address that is not of this machine is not in use.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def write_lease(path: Path, lease: Lease) -> None:
    """Put a lease in place, whole or not at all. Raises OSError."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(asdict(lease)))
    temporary.replace(path)


def read_lease(path: Path) -> Lease | None:
    """The lease that lies there; None without one, and for one that another version wrote."""
    try:
        return Lease(**json.loads(path.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def end_server(
    lease_path: Path,
    lease: Lease | None,
    stop_timeout_s: float,
    release_timeout_s: float,
    *,
    reap: subprocess.Popen[bytes] | None = None,
) -> list[int]:
    """End every session of a server, verify that processes and port are gone, remove the lease.

    SIGTERM goes to the leader, which ends its ranks in order, and to those that outlive it; SIGKILL to all that is left
    after `stop_timeout_s`. `reap`: the server's process where it is our own child. Returns the sessions ended.
    Raises RunFailed(kind="wont_stop").
    """
    sessions = sessions_of(lease_path, lease)
    if reap is not None and lease is not None and lease.pid not in sessions:
        sessions.insert(0, lease.pid)  # our own child: known to be ours without further evidence
    deadline = time.monotonic() + stop_timeout_s
    for number, until in ((signal.SIGTERM, deadline), (signal.SIGKILL, deadline + release_timeout_s)):
        for session in sessions:
            _signal_until_gone(session, number, until, reap)
    ended = [session for session in sessions if not members(session)]
    _verify_released(lease_path, lease, sessions, release_timeout_s)
    lease_path.unlink(missing_ok=True)
    return ended


def _signal_until_gone(session: int, number: int, until: float, reap: subprocess.Popen[bytes] | None) -> None:
    told: set[int] = set()
    while True:
        if reap is not None:
            reap.poll()  # a zombie of ours would keep its process number
        left = members(session)
        if not left:
            return
        for pid in [session] if number == signal.SIGTERM and session in left else left:
            if number == signal.SIGKILL or pid not in told:  # SIGKILL again and again: it may be forking
                _send(pid, session, number)
                told.add(pid)
        if time.monotonic() > until:
            return
        time.sleep(POLL_S)


def _send(pid: int, session: int, number: int) -> None:
    """Signal a process of this session. The handle pins the process, so that a reused number is never signalled."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        stat = stat_of(pid)
        if stat is not None and stat.session == session:
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def _verify_released(lease_path: Path, lease: Lease | None, sessions: list[int], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        left = [pid for session in sessions for pid in members(session)]
        port_held = lease is not None and lease.port > 0 and port_in_use(lease.host, lease.port)
        if not left and not port_held:
            return
        if time.monotonic() > deadline:
            port = lease.port if lease is not None else 0
            what = f"processes {', '.join(map(str, left))} live on" if left else f"something listens on port {port}"
            raise RunFailed(
                f"after SIGTERM and SIGKILL {what}",
                kind="wont_stop",
                where=str(lease_path),
                fix="end it by hand (ss -ltnp shows who listens), then go on with --resume",
            )
        time.sleep(POLL_S)
