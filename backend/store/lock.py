"""One data directory, one writer: a kernel lock that ends with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from backend.errors import Refused, StoreError

LOCK_FILE = "writer.lock"


class WriterLock:
    """Held from construction to `release`; kill -9 releases it too, and started programs do not inherit it.

    Raises Refused, naming the process that holds it, and StoreError where the directory cannot be written.
    """

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / LOCK_FILE
        try:
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"cannot be opened: {error.strerror}", where=str(self.path)) from error
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._handle, 32, 0).decode("ascii", errors="replace").strip() or "unknown"
            os.close(self._handle)
            raise Refused(
                f"another writer (process {holder}) is at work in this data directory",
                where=str(data_dir),
                fix="wait for it, end it, or use another directory with --data",
            ) from error
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let the next writer in; a second call does nothing. The file stays: removing it would let two writers in."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
