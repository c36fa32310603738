"""The throwaway process that runs one untrusted SELECT. Run by `sql_guard` as a script, never imported by the app.

It answers on standard output: a line of JSON, `{"error": ...}` or `{"truncated": ...}`, and after the latter the rows
as an Arrow IPC stream. What keeps the query in: the process has no environment and no terminal, may write no file and
use bounded memory and CPU time; DuckDB has the snapshot read-only, no other file, no network, no extension, no Python
variable, and a locked configuration; the statement is exactly one that reads, and names no function that would tell
of the machine. The parent kills it at the deadline.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import re
import resource
import signal
import sys
from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

DATABASE = "sounding"
BATCH_ROWS = 2048
CONFIG: Mapping[str, Any] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": "512MB",
    "threads": "1",
    "temp_directory": "",
    "max_temp_directory_size": "0KB",
}
READS = frozenset(
    ["SELECT", "FROM", "WITH", "VALUES", "TABLE", "DESCRIBE", "DESC", "SUMMARIZE", "SHOW", "UNPIVOT", "("]
)
ONE = "only one statement that reads is run here: SELECT, FROM, WITH, VALUES, DESCRIBE, SUMMARIZE, SHOW or EXPLAIN"
# Functions that act on files or on the process, run SQL from text, or tell paths and settings. The configuration
# stops those that act as well; the list also keeps them from crashing the process, and from telling where it runs.
REFUSED = re.compile(
    r"read_\w+|parquet_\w+|glob|sniff_csv|getenv|query|query_table|json_execute_serialized_sql|from_substrait\w*|"
    r"pragma_\w+|(enable|disable)_\w+|set_log\w*|truncate_\w+|(force_)?checkpoint|(write|parse)_log\w*|current_setting|"
    r"pg_settings|pg_database|which_secret|\w+_scan|summary_from_file|copy_database|sql_auto_complete|"
    r"duckdb_(?!tables$|views$|columns$|functions$|types$|keywords$|schemas$|constraints$|indexes$)\w+",
    re.IGNORECASE,
)
NAME = re.compile(r'"((?:[^"]|"")*)"|\w+')


class NotAllowed(Exception):
    """A statement that is not run, and why."""


def tokens(sql: str) -> list[tuple[int, str, str]]:
    """(byte offset, kind, text) of every token but comments, as DuckDB's own lexer sees them."""
    raw = sql.encode()
    found = [(offset, str(kind).rpartition(".")[2]) for offset, kind in duckdb.tokenize(sql)]
    ends = [offset for offset, _ in found[1:]] + [len(raw)]
    return [
        (offset, kind, raw[offset:end].decode(errors="replace"))
        for (offset, kind), end in zip(found, ends, strict=True)
        if kind != "comment"
    ]


def reading_part(sql: str) -> str:
    """The statement that reads: the whole text, or what an EXPLAIN explains. Raises NotAllowed."""
    found = tokens(sql)
    for (_, kind, text), (_, _, after) in zip(found, [*found[1:], (0, "", "")], strict=True):
        name = NAME.match(text) if kind == "identifier" or after.startswith("(") else None  # GLOB is an operator too
        if name and REFUSED.fullmatch(name[1] or name[0]):
            raise NotAllowed(f"{name[0]} is not available here")
    words = [(offset, text.split()[0].upper() if text.split() else "") for offset, _, text in found]
    start = 0
    if words and words[0][1].startswith("EXPLAIN"):
        start = 2 if len(words) > 1 and words[1][1].startswith("ANALYZE") else 1
    if len(words) <= start or not (words[start][1] in READS or words[start][1].startswith("(")):
        raise NotAllowed(ONE)
    return sql.encode()[words[start][0] :].decode()


def statement(con: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """The one statement to run. Raises NotAllowed, or DuckDB's parser error."""
    inner = con.extract_statements(reading_part(sql))
    whole = con.extract_statements(sql)
    kinds = duckdb.StatementType
    if len(whole) != 1 or len(inner) != 1 or inner[0].type != kinds.SELECT:
        raise NotAllowed(ONE)
    if whole[0].type not in (kinds.SELECT, kinds.EXPLAIN):
        raise NotAllowed(ONE)
    return whole[0]


def limit(memory_mb: int, cpu_s: int) -> None:
    """No core dump, no file, bounded CPU; dies with the viewer. The address space follows once libraries are loaded."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_AS, memory_mb << 20),
    ):
        resource.setrlimit(what, (most, most))


def answer(head: dict[str, object], body: bytes = b"") -> None:
    """Write the answer and end at once, whatever threads there are."""
    rest = memoryview(json.dumps(head).encode() + b"\n" + body)
    while rest:
        rest = rest[os.write(1, rest) :]
    os._exit(0)


def told(error: Exception) -> str:
    """DuckDB's words without its stack traces, which tell paths."""
    return str(error).partition("Stack Trace")[0].strip()[:800]


def main(path: str, rows: int, most_bytes: int, memory_mb: int, cpu_s: int) -> None:
    """Run the SQL on standard input against the snapshot at `path`."""
    sql = sys.stdin.read()
    limit(memory_mb, cpu_s)
    try:
        con = duckdb.connect(":memory:", config=dict(CONFIG))
        con.execute(f"ATTACH '{path.replace(chr(39), chr(39) * 2)}' AS {DATABASE} (READ_ONLY)")
        con.execute(f"USE {DATABASE}")
        con.execute("SET enable_external_access = false")
        con.execute("SET lock_configuration = true")
    except duckdb.Error:
        return answer({"error": "the results cannot be opened"})
    try:
        ran = con.execute(statement(con, sql))
        reader = (ran.to_arrow_reader if hasattr(ran, "to_arrow_reader") else ran.fetch_record_batch)(BATCH_ROWS)
        batches, seen, size = [], 0, 0
        for batch in reader:
            batches.append(batch[: rows - seen])
            seen += batch.num_rows
            size += batches[-1].nbytes
            if seen > rows or size > most_bytes:
                break
    except NotAllowed as error:
        return answer({"error": str(error)})
    except (MemoryError, duckdb.OutOfMemoryException, pa.ArrowMemoryError):
        return answer({"error": "the query needs more memory than it may use"})
    except (duckdb.Error, RuntimeError, ValueError, pa.ArrowException) as error:
        return answer({"error": told(error)})
    truncated = "rows" if seen > rows else ""
    if size > most_bytes:  # whole rows, as many as fit
        table = pa.Table.from_batches(batches, reader.schema)
        fits = int(table.num_rows * most_bytes / size * 0.9)
        if not fits or table[:fits].nbytes > most_bytes:
            return answer({"error": "a single row of the result is too large"})
        batches, truncated = table[:fits].combine_chunks().to_batches(), "bytes"
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, reader.schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return answer({"truncated": truncated}, buffer.getvalue())


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:6]))
