"""A command that we launch: in a session of its own, with its output in a log and its lease on disk.

The lease lets a later sweep end what a killed one left behind, without ever signalling a process that merely reuses
its number. Between the launch and the lease a server is found by the mark in its environment.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from backend.engines.session import MARK, Lease, boot_id, end_server, port_in_use, read_lease, stat_of, write_lease
from backend.errors import RunFailed, StoreError

__all__ = ["ManagedProcess", "end_leftover", "port_in_use", "tail"]
LOG_TAIL_LINES = 40


def tail(path: Path, lines: int = LOG_TAIL_LINES, limit_bytes: int = 65536) -> str:
    """The last lines of a log; an empty string when there is none yet."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - limit_bytes))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""


def ending(status: int) -> str:
    """An exit status of subprocess in words: negative is the signal that ended it."""
    return f"ended by signal {-status}" if status < 0 else f"exit status {status}"


class ManagedProcess:
    """A command run in a session of its own with its output in a log file.

    Raises RunFailed (kind `launch`: port in use, command cannot be started) and StoreError where log or lease cannot be
    written; then nothing runs.
    """

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
        self.log_path, self.lease_path = log_path.resolve(), lease_path.resolve()
        self._process = self._start(argv, env)
        stat = stat_of(self._process.pid)  # there even if it has ended: only we can reap it
        ticks = stat.start_ticks if stat else 0
        self.lease = Lease(self._process.pid, ticks, boot_id(), host, port, str(self.log_path))
        try:
            write_lease(self.lease_path, self.lease)
        except OSError as error:
            self.stop(0, 30)
            raise StoreError(f"cannot be written: {error.strerror}", where=str(self.lease_path)) from error

    def _start(self, argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        try:
            self.log_path.parent.mkdir(parents=True, exist_ok=True)
            log = self.log_path.open("wb")
        except OSError as error:
            raise StoreError(f"cannot be written: {error.strerror}", where=str(self.log_path)) from error
        with log:
            try:
                return subprocess.Popen(
                    argv,
                    env={**os.environ, **env, MARK: str(self.lease_path)},
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

    def alive(self) -> bool:
        """Whether the main process runs."""
        return self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """Exit status of the main process, None while it runs."""
        return self._process.poll()

    def trouble(self) -> str | None:
        """How it ended, None while it runs."""
        status = self._process.poll()
        return None if status is None else ending(status)

    def log_bytes(self) -> int:
        """Size of its log."""
        return self.log_path.stat().st_size

    def log_tail(self) -> str:
        """Last lines of its log."""
        return tail(self.log_path)

    def stop(self, stop_timeout_s: float, release_timeout_s: float) -> float:
        """End its sessions, verify that processes and port are gone. Seconds taken. Raises RunFailed("wont_stop")."""
        began = time.monotonic()
        try:
            end_server(self.lease_path, self.lease, stop_timeout_s, release_timeout_s, reap=self._process)
        except RunFailed as failure:
            raise RunFailed(
                failure.what, kind=failure.kind, where=failure.where, fix=failure.fix, log_tail=self.log_tail()
            ) from None
        return time.monotonic() - began


def end_leftover(lease_path: Path, stop_timeout_s: float, release_timeout_s: float) -> list[int]:
    """End the server that a killed sweep left behind, if there is one; returns its sessions. Raises RunFailed.

    Only the holder of the data directory's writer lock may: the server of a living sweep looks the same.
    """
    lease_path = lease_path.resolve()
    return end_server(lease_path, read_lease(lease_path), stop_timeout_s, release_timeout_s)
