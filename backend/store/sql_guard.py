"""SQL from strangers, run on a snapshot: each query in a throwaway process (`sql_child`), at most two at once.

`ask` gives the rows or says why not within the deadline. Nothing is read but the snapshot and nothing is written;
DuckDB's own switches are not enough for that (some calls abort the process, an interrupt is no timeout), so a limit
here is one of the operating system's.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from backend.errors import Refused

CHILD = Path(__file__).with_name("sql_child.py")
AT_ONCE = 2
DEADLINE_S = 5.0
SHOWN_ROWS, SHOWN_BYTES = 1_000, 5_000_000
MOST_CHARACTERS = 10_000
MEMORY_MB = 2048
_slots = threading.BoundedSemaphore(AT_ONCE)


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a query. truncated: "rows" or "bytes" where the cap of that kind cut them off, else ""."""

    table: pa.Table
    truncated: str
    wall_s: float


def ask(
    path: Path,
    sql: str,
    *,
    rows: int = SHOWN_ROWS,
    most_bytes: int = SHOWN_BYTES,
    deadline_s: float = DEADLINE_S,
) -> Answer:
    """Run one SELECT (or EXPLAIN of one) on a snapshot.

    Raises Refused, in one line, where the statement is not allowed, fails, needs too much, is not done at the deadline,
    or finds both places taken until then.
    """
    if not sql.strip():
        raise Refused("there is no query", fix="write a SELECT")
    if len(sql) > MOST_CHARACTERS:
        raise Refused(f"the query has {len(sql)} characters", fix=f"at most {MOST_CHARACTERS} are taken")
    if not _slots.acquire(timeout=deadline_s):
        raise Refused(f"{AT_ONCE} queries of others are running", fix="try again in a few seconds")
    try:
        began = time.monotonic()
        head, body = _in_child(path, sql, rows, most_bytes, deadline_s)
        wall_s = time.monotonic() - began
    finally:
        _slots.release()
    if "error" in head:
        raise Refused(one_line(str(head["error"])))
    try:
        table = pa.ipc.open_stream(body).read_all()
        table.validate()
    except pa.ArrowException as error:
        raise Refused("the query's process died while it answered", fix="ask for fewer rows or columns") from error
    return Answer(plain(table), str(head["truncated"]), wall_s)


def _in_child(path: Path, sql: str, rows: int, most_bytes: int, deadline_s: float) -> tuple[dict[str, object], bytes]:
    """(first line, rest) of what the child wrote until it ended; it is killed at the deadline or past the byte cap."""
    limits = (rows, most_bytes, MEMORY_MB, int(deadline_s) + 2)
    child = subprocess.Popen(
        [sys.executable, "-I", str(CHILD), str(path.resolve()), *map(str, limits)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "ARROW_DEFAULT_MEMORY_POOL": "system", "TZ": "UTC"},
        start_new_session=True,
        cwd="/",
    )
    deadline = time.monotonic() + deadline_s
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(sql.encode())  # less than a pipe holds
        child.stdin.close()
        written = _read(child.stdout.fileno(), deadline, 2 * most_bytes + 1_000_000)
    except (BrokenPipeError, TimeoutError) as error:
        late = isinstance(error, TimeoutError)
        return {"error": f"the query was ended after {deadline_s:g} s" if late else "the query's process died"}, b""
    finally:
        _kill(child)
    line, _, body = written.partition(b"\n")
    try:
        return json.loads(line), body
    except ValueError:
        return {"error": "the query's process died: it asked for more than it may use, or made DuckDB crash"}, b""


def _read(pipe: int, deadline: float, most_bytes: int) -> bytes:
    """All of a pipe. Raises TimeoutError at the deadline."""
    parts: list[bytes] = []
    size = 0
    with selectors.DefaultSelector() as waiting:
        waiting.register(pipe, selectors.EVENT_READ)
        while size <= most_bytes:
            if not waiting.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            part = os.read(pipe, 1 << 20)
            if not part:
                break
            parts.append(part)
            size += len(part)
    return b"".join(parts)


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End the child and all that it started, and reap it."""
    if child.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for stream in (child.stdin, child.stdout):
        if stream is not None and not stream.closed:
            with suppress(BrokenPipeError):
                stream.close()


def one_line(text: str) -> str:
    """DuckDB's message without the copy of the query and its caret."""
    return " ".join(text.partition("\nLINE ")[0].split())


def plain(table: pa.Table) -> pa.Table:
    """The same rows under distinct names; decimals, as sums of whole numbers are, as int64, else float64."""
    names: list[str] = []
    for name in table.column_names:
        fresh, number = name, 1
        while fresh in names:
            fresh, number = f"{name}_{number}", number + 1
        names.append(fresh)
    columns = []
    for column in table.columns:
        if pa.types.is_decimal(column.type) and column.type.scale == 0:
            try:
                column = column.cast(pa.int64())
            except pa.ArrowInvalid:
                column = column.cast(pa.float64())
        elif pa.types.is_decimal(column.type):
            column = column.cast(pa.float64())
        columns.append(column)
    return pa.Table.from_arrays(columns, names=names)
