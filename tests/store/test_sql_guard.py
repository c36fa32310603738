"""SQL from strangers: what it may do, and that every abuse ends within its deadline with nothing read or written."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from backend.errors import Refused
from backend.store import sql_guard
from backend.store.paths import BUNDLED_SNAPSHOT, REPOSITORY
from backend.store.sql_examples import examples
from backend.store.sql_guard import ask, one_line, plain

GREEDY_DEADLINE_S = 2.0
DEADLINE_S = 15.0  # for what needs none: a busy machine may take seconds to start a process
SLACK_S = 5.0  # to start and to reap it
SLOW_IN_LITTLE_MEMORY = "SELECT bool_or(regexp_matches(repeat('a', 500000 + range), '(a+)+b')) FROM range(100000)"
SECRET = "secret-of-this-test"
FILES = ("secret.csv", "secret.json", "secret.parquet", "secret.txt")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that no query may read, and a place where none may write."""
    root = tmp_path_factory.mktemp("outside")
    (root / "secret.csv").write_text(f"a,b\n{SECRET},2\n")
    (root / "secret.txt").write_text(SECRET)
    (root / "secret.json").write_text(json.dumps([{"a": SECRET}]))
    pa.parquet.write_table(pa.table({"a": [SECRET]}), root / "secret.parquet")
    return root


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of our own, so that it is seen whether anything touches it."""
    return Path(shutil.copy(BUNDLED_SNAPSHOT, tmp_path_factory.mktemp("results") / "results.duckdb"))


def attempt(results: Path, sql: str, **changes: object) -> tuple[str, float]:
    """(all that the query gave, or why it gave nothing; seconds)."""
    began = time.monotonic()
    try:
        found = ask(results, sql, **{"deadline_s": DEADLINE_S, **changes})  # type: ignore[arg-type]
        said = repr(found.table.to_pylist())
    except Refused as refused:
        said = f"refused: {refused}"
        assert "\n" not in said
    return said, time.monotonic() - began


READERS = (
    "SELECT * FROM read_csv('{at}/secret.csv')",
    "SELECT * FROM read_csv_auto('{at}/secret.csv')",
    "SELECT * FROM \"READ_CSV\"('{at}/secret.csv')",
    "SELECT * FROM '{at}/secret.csv'",
    'SELECT * FROM "{at}/secret.csv"',
    "SELECT * FROM read_text('{at}/secret.txt')",
    "SELECT * FROM read_text(['/etc/passwd', '{at}/secret.txt'])",
    "SELECT content FROM read_blob('{at}/secret.txt')",
    "SELECT * FROM read_parquet('{at}/secret.parquet')",
    "SELECT * FROM '{at}/secret.parquet'",
    "SELECT * FROM parquet_metadata('{at}/secret.parquet')",
    "SELECT * FROM parquet_schema('{at}/secret.parquet')",
    "SELECT * FROM read_json('{at}/secret.json')",
    "SELECT * FROM read_json_auto('{at}/secret.json')",
    "SELECT * FROM read_ndjson_objects('{at}/secret.json')",
    "SELECT * FROM glob('{at}/*')",
    "SELECT * FROM sniff_csv('{at}/secret.csv')",
    "SELECT * FROM query('SELECT * FROM read_text(''{at}/secret.txt'')')",
    "SELECT * FROM query_table('{at}/secret.csv')",
    "SELECT * FROM json_execute_serialized_sql('{{}}')",
    "EXPLAIN ANALYZE SELECT * FROM read_csv('{at}/secret.csv')",
    "WITH x AS (SELECT * FROM read_text('{at}/secret.txt')) SELECT * FROM x",
    "SELECT (SELECT content FROM read_text('{at}/secret.txt'))",
    "SUMMARIZE '{at}/secret.csv'",
    "DESCRIBE TABLE '{at}/secret.parquet'",
    "SELECT * FROM read_csv('http://127.0.0.1:9/x.csv')",
    "SELECT * FROM 'https://example.invalid/x.parquet'",
    "SELECT * FROM 's3://bucket/x.parquet'",
    "SELECT getenv('HOME')",
    "SELECT getenv('SOUNDING_SECRET')",
    "SELECT * FROM sql",  # Python variables of the process
    "SELECT * FROM batches",
    "SELECT * FROM pa",
)
WRITERS = (
    "COPY run TO '{at}/out.csv'",
    "COPY (SELECT 1) TO '{at}/out.parquet' (FORMAT parquet)",
    "EXPLAIN ANALYZE COPY run TO '{at}/out.csv'",
    "EXPORT DATABASE '{at}/out'",
    "COPY FROM DATABASE sounding TO memory",
    "COPY run FROM '{at}/secret.csv'",
    "IMPORT DATABASE '{at}'",
    "PRAGMA import_database('{at}')",
    "ATTACH '{at}/out.duckdb'",
    "ATTACH ':memory:' AS other",
    "DETACH sounding",
    "USE memory",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{at}/x.duckdb_extension'",
    "UPDATE EXTENSIONS",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "SET memory_limit = '100GB'",
    "RESET memory_limit",
    "PRAGMA threads = 8",
    "PRAGMA database_list",
    "PRAGMA enable_profiling",
    "PRAGMA enable_logging",
    "INSERT INTO run SELECT * FROM run",
    "UPDATE run SET k = 99",
    "DELETE FROM run",
    "TRUNCATE run",
    "DROP TABLE run",
    "ALTER TABLE run ADD COLUMN x INTEGER",
    "CREATE TABLE x (a INTEGER)",
    "CREATE TEMP TABLE x AS SELECT 1",
    "CREATE OR REPLACE VIEW k_summary AS SELECT 1",
    "CREATE MACRO f(x) AS x",
    "CREATE SECRET s (TYPE s3)",
    "EXPLAIN ANALYZE CREATE TABLE memory.x AS SELECT 1",
    "EXPLAIN ANALYZE INSERT INTO run SELECT * FROM run",
    "EXPLAIN ANALYZE DELETE FROM run",
    "PREPARE p AS SELECT 1",
    "BEGIN TRANSACTION",
    "VACUUM",
    "CHECKPOINT",
    "FORCE CHECKPOINT",
    "EXPLAIN ANALYZE CHECKPOINT",
    "CALL enable_logging(storage = 'file', storage_path = '{at}/log')",
    "CALL enable_profiling()",
    "CALL checkpoint()",
    "SELECT * FROM enable_logging(storage = 'file', storage_path = '{at}/log')",
    "SELECT * FROM enable_logging('QueryLog')",
    'SELECT * FROM "enable_logging"()',
    "SELECT * FROM truncate_duckdb_logs()",
    "SELECT * FROM enable_profiling(save_location = '{at}/profile.json')",
    "SELECT * FROM checkpoint('sounding')",
    "SELECT * FROM force_checkpoint()",
    "SELECT write_log('x')",
    "SELECT 1; SELECT 2",
    "SELECT 1; DROP TABLE run",
    "SELECT 1 /* ; */; COPY run TO '{at}/out.csv'",
    "PIVOT run ON k USING count(*)",
    "",
    "   ",
    ";",
    "-- nothing",
    "not SQL at all",
)
GREEDY = (
    "SELECT max(a.range * b.range) FROM range(100000000) a, range(100000000) b",
    "SELECT count(*) FROM run a, run b, run c, run d, run e, run f",
    "SELECT sum(length(repeat('x', 1000000))) FROM range(1000000)",
    "SELECT repeat('x', 2000000000)",
    "SELECT list(range) FROM range(1000000000)",
    "SELECT range(4000000000)",
    "SELECT DISTINCT range * random() FROM range(1000000000)",
    "SELECT * FROM range(100000000) ORDER BY random()",
    "WITH RECURSIVE t AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t",
    "WITH RECURSIVE t AS (SELECT 'x' AS x UNION ALL SELECT x || x FROM t) SELECT max(length(x)) FROM t",
    "SELECT bool_or(regexp_matches(repeat('a', 5000000 + range), '(a+)+b')) FROM range(1000)",
    "SELECT " + "(" * 4900 + "1" + ")" * 4900,
    "SELECT " + "[" * 4900 + "1" + "]" * 4900,
    "SELECT " + "NOT " * 2400 + "true",
    "SELECT 1" + " + 1" * 2400,
    "SELECT * FROM " + "(SELECT * FROM " * 600 + "run" + ")" * 600,
)


@pytest.mark.parametrize("sql", [*READERS, *WRITERS])
def test_nothing_is_read_or_written(sql: str, folder: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOUNDING_SECRET", SECRET)
    before = (results.stat(), results.read_bytes())
    said, took_s = attempt(results, sql.replace("{at}", str(folder)).replace("{{}}", "{}"))
    assert said.startswith("refused: ")
    assert "ended after" not in said
    assert SECRET not in said
    assert "root:" not in said
    assert took_s < DEADLINE_S + SLACK_S
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert results.read_bytes() == before[1]
    assert results.stat().st_mtime_ns == before[0].st_mtime_ns
    assert not list(results.parent.glob("*.wal*"))


@pytest.mark.parametrize("sql", GREEDY, ids=range(len(GREEDY)))
def test_what_wants_everything_ends_in_time(sql: str, results: Path) -> None:
    said, took_s = attempt(results, sql, deadline_s=GREEDY_DEADLINE_S)
    assert took_s < GREEDY_DEADLINE_S + SLACK_S
    assert len(said) < 20_000


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM duckdb_databases()",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM duckdb_extensions()",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM duckdb_logs()",
        "SELECT * FROM pragma_database_list",
        "SELECT * FROM pragma_database_list()",
        "SELECT * FROM pg_catalog.pg_settings",
        "SELECT current_setting('allowed_paths')",
        "SELECT current_setting('temp_directory')",
        "SHOW DATABASES",
        "SHOW ALL TABLES",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM duckdb_tables()",
        "SELECT * FROM duckdb_views()",
        "SELECT * FROM no_such_table",
        "SELECT no_such_function(1)",
        "SELECT * FROM 'no/such/file.csv'",
        "EXPLAIN ANALYZE SELECT * FROM step",
        "SELECT 'x'::INTEGER",
    ],
)
def test_no_path_of_the_machine_is_told(sql: str, results: Path) -> None:
    said, _ = attempt(results, sql)
    for path in (str(REPOSITORY), str(results.parent), str(Path.home()), sys.prefix):
        assert path not in said


def test_rows_and_types(results: Path) -> None:
    found = ask(results, "SELECT k, sum(n_runs) AS runs, [k] AS l FROM k_summary GROUP BY k ORDER BY k;")
    assert found.table.column("runs").type == pa.int64()  # a sum of whole numbers is a decimal of 38 digits otherwise
    assert found.table.column("k").to_pylist() == list(range(8))
    assert found.table.column("l").to_pylist()[3] == [3]
    assert found.truncated == ""


@pytest.mark.parametrize("sql", examples("demo-vllm-cpu").values(), ids=examples(""))
def test_examples_give_rows(sql: str, results: Path) -> None:
    assert ask(results, sql).table.num_rows > 1


@pytest.mark.parametrize(
    "sql",
    [
        "FROM run",
        "VALUES (1)",
        "TABLE run",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "(SELECT 1)",
        "/* why */ -- so\nSELECT 'é', 1",
        "DESCRIBE run",
        "SUMMARIZE run",
        "SHOW TABLES",
        "EXPLAIN SELECT * FROM run",
        "explain analyze /* x */ select count(*) from run",
        "SELECT 'read_csv', ';'",
        "SELECT k FROM run WHERE log_path GLOB '*.log' OR true",
        "SELECT to_timestamp(started_unix_s) FROM run",
        "SELECT comment FROM duckdb_columns() WHERE comment IS NOT NULL",
    ],
)
def test_what_reads_is_let_through(sql: str, results: Path) -> None:
    assert ask(results, sql).table.num_rows >= 1


def test_row_cap(results: Path) -> None:
    found = ask(results, "SELECT * FROM range(1000000)", rows=10)
    assert (found.table.num_rows, found.truncated) == (10, "rows")
    whole = ask(results, "SELECT * FROM range(10)", rows=10)
    assert (whole.table.num_rows, whole.truncated) == (10, "")


def test_byte_cap(results: Path) -> None:
    found = ask(results, "SELECT repeat('x', 1000) FROM range(1000)", most_bytes=100_000)
    assert found.truncated == "bytes"
    assert 50 < found.table.num_rows < 100
    said, _ = attempt(results, "SELECT repeat('x', 1000000)", most_bytes=100_000)
    assert "single row" in said


def test_deadline_is_kept_and_told(results: Path) -> None:
    said, took_s = attempt(results, SLOW_IN_LITTLE_MEMORY, deadline_s=1.0)
    assert "ended after 1 s" in said
    assert 1.0 <= took_s < 1.0 + SLACK_S


def test_two_at_once_and_no_more(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, most = 0, 0
    lock = threading.Lock()
    real = sql_guard._in_child

    def counted(*arguments: object) -> tuple[dict[str, object], bytes]:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        try:
            return real(*arguments)  # type: ignore[arg-type]
        finally:
            with lock:
                now -= 1

    monkeypatch.setattr(sql_guard, "_in_child", counted)
    said: list[str] = []
    threads = [
        threading.Thread(target=lambda: said.append(attempt(results, GREEDY[0], deadline_s=1.0)[0])) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 2
    assert sum("others are running" in s for s in said) >= 2
    assert ask(results, "SELECT 1").table.num_rows == 1  # the places are given back


def test_a_long_query_is_refused_before_it_starts(results: Path) -> None:
    said, took_s = attempt(results, "SELECT " + "1," * 10_000 + "1")
    assert "characters" in said
    assert took_s < 0.5


def test_names_are_made_distinct() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "a", "a_1"])
    assert plain(table).column_names == ["a", "a_1", "a_1_1"]


def test_one_line() -> None:
    assert one_line("Binder Error: x\nCandidates: y\n\nLINE 1: SELECT\n   ^") == "Binder Error: x Candidates: y"


def test_missing_results(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be opened"):
        ask(tmp_path / "none.duckdb", "SELECT 1")
