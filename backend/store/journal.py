"""The truth: append-only JSONL, one file a run plus one a sweep, every append fsynced.

Of lines with the same key the last one counts. An append is acknowledged when `append` returns: then it is on disk. A
crash can leave a torn last line (no newline at its end), which was never acknowledged: readers leave it out, the next
writer cuts it off and says so. Reading needs no lock.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from backend.errors import StoreError
from backend.records import Record
from backend.store.lines import from_line, to_line

SWEEP_FILE = "sweep.jsonl"  # the Sweep and Cell records, and findings about the sweep as a whole


@dataclass(frozen=True, slots=True)
class Torn:
    """A last line that a crash cut short: never acknowledged, so dropped."""

    path: Path
    dropped: str

    def __str__(self) -> str:
        shown = self.dropped if len(self.dropped) <= 80 else f"{self.dropped[:80]}..."
        return f"{self.path}: torn last line dropped ({len(self.dropped)} characters, never acknowledged): {shown}"


@dataclass(frozen=True, slots=True)
class Contents:
    """What a journal holds: its records in order, and the torn last line that was left out, if any."""

    records: list[Record]
    torn: Torn | None


def directory_name(sweep: str) -> str:
    """A sweep's name as a directory name. Raises StoreError where it cannot be one."""
    if not sweep or sweep.startswith(".") or any(sign in sweep for sign in "/\\:\0"):
        raise StoreError(f"sweep name {sweep!r} cannot be a directory name", fix="use letters, digits, '-' and '_'")
    return sweep


def run_file(sweep: str, run_id: str) -> str:
    """File name of a run inside its sweep's directory: "<sweep>:r0b0k3a1" -> "r0b0k3a1.jsonl".

    Raises StoreError for a run of another sweep and for names that are no plain file name.
    """
    head, _, name = run_id.partition(":")
    if head != sweep or not name or name.startswith(".") or any(sign in name for sign in "/\\\0"):
        raise StoreError(f"run id {run_id!r} cannot be a file of sweep {sweep!r}", fix="<sweep>:<plain name>")
    if f"{name}.jsonl" == SWEEP_FILE:
        raise StoreError(f"run id {run_id!r} would write over {SWEEP_FILE}")
    return f"{name}.jsonl"


def read(path: Path) -> Contents:
    """All records of a journal, the torn last line left out. Needs no lock and changes nothing.

    Raises StoreError for a file that cannot be read and for a corrupt line, with its number.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror}", where=str(path)) from error
    whole, newline, tail = content.rpartition(b"\n")
    torn = Torn(path, tail.decode("utf-8", errors="replace")) if tail else None
    return Contents(list(_parse(path, whole.split(b"\n") if newline else ())), torn)


def _parse(path: Path, lines: Sequence[bytes]) -> Iterator[Record]:
    for index, line in enumerate(lines, start=1):
        try:
            yield from_line(line)
        except ValueError as error:  # what json and UTF-8 decoding raise are ValueErrors too
            fix = "restore the file, or move it away and measure that run again"
            raise StoreError(f"line {index} is corrupt: {error}", where=str(path), fix=fix) from error


def recover(path: Path) -> Torn | None:
    """Cut a torn last line off a journal; what was dropped, or None. Only the holder of the writer lock may.

    Raises StoreError where the file cannot be read or cut.
    """
    try:
        with path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            if size == 0 or file.read(1) == b"\n":
                return None
            file.seek(0)
            content = file.read()
            keep = content.rfind(b"\n") + 1
            file.truncate(keep)
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"cannot be repaired: {error.strerror}", where=str(path)) from error
    return Torn(path, content[keep:].decode("utf-8", errors="replace"))


def sync_directory(path: Path) -> None:
    """Make a created or renamed entry of a directory survive a power cut. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Journal:
    """The writer of one journal file; only the holder of the data directory's writer lock may have one.

    `torn` is what was cut off when the file was opened. Raises StoreError where the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = -1
        try:
            new_directory = not path.parent.exists()
            path.parent.mkdir(parents=True, exist_ok=True)
            self.torn = recover(path) if path.exists() else None
            self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            self._size = os.fstat(self._handle).st_size
            sync_directory(path.parent)
            if new_directory:
                sync_directory(path.parent.parent)
        except OSError as error:
            self.close()
            raise StoreError(f"cannot be opened: {error.strerror}", where=str(path)) from error

    def append(self, *records: Record) -> None:
        """Write records, one line each, and wait until they are on disk (one fsync for all of them).

        Raises StoreError, and then none of them counts: for a value that cannot be stored nothing is written, after a
        full disk or another fault of the file the part that was written is cut off again.
        """
        if self._handle < 0:
            raise StoreError("is closed", where=str(self.path))
        content = memoryview(b"".join(map(to_line, records)))
        if not content:
            return
        try:
            written = 0
            while written < len(content):  # a nearly full disk takes a part and fails at the next call
                written += os.write(self._handle, content[written:])
            os.fsync(self._handle)
        except OSError as error:
            self._undo()
            raise StoreError(
                f"cannot be written: {error.strerror}",
                where=str(self.path),
                fix="make room on the disk, then go on with --resume",
            ) from error
        self._size += len(content)

    def _undo(self) -> None:
        """Cut back to the last acknowledged line; where that fails too, close: nothing may follow half a line."""
        try:
            os.ftruncate(self._handle, self._size)
        except OSError:
            self.close()

    def close(self) -> None:
        """Close the file; everything acknowledged is on disk already."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            with contextlib.suppress(OSError):  # nothing is left to write that close could lose
                os.close(handle)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
