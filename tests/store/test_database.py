"""One writer, idempotent ingest, transactional migrations, snapshots that are always whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import pytest
from store_samples import CELL, SWEEP, cell, drafted, fill, open_store, request, run, sweep

from backend.errors import Refused, StoreError
from backend.records import Failure, Record
from backend.store import connection, paths, queries
from backend.store.connection import Migration
from backend.store.database import EstimateRow, Store, rebuild
from backend.store.lines import to_line
from backend.store.schema import KEYS

EVERY_ROW: list[Record] = [
    sweep(),
    cell(),
    run("a", 3, status="running"),
    drafted("a", 0, 3, [3, 0, 2]),
    drafted("a", 1, 3, [1]),
    run("a", 3, server_start_s=2.5),
    run("b", 0, status="failed", reason="died"),
    Failure("s:b", "died", "exit code 1", "last words", 5.0),
]


def dump(store: Store) -> dict[str, list[tuple[object, ...]]]:
    """Every record table, and the estimates, as sorted rows."""
    with store.reading() as con:
        return {
            table: sorted(con.execute(f'SELECT * FROM "{table}"').fetchall(), key=repr) for table in [*KEYS, "estimate"]
        }


def estimate(quantity: str, value: float | None, **given: object) -> EstimateRow:
    none = dict.fromkeys(("k", "window_k", "low", "high", "level"))
    values = {"cell_id": CELL, **none, "method": "m", "n": 1, "unit": "ms", "reason": "one run", **given}
    return EstimateRow(quantity=quantity, value=value, **values)  # type: ignore[arg-type]


# -- one writer -------------------------------------------------------------------------------------------------------
def test_a_second_writer_is_refused_by_name_of_the_first(tmp_path: Path) -> None:
    with open_store(tmp_path):
        with pytest.raises(Refused, match=rf"another writer \(process {os.getpid()}\)"):
            open_store(tmp_path)
        program = "import sys; from pathlib import Path; from backend.store.database import Store\n"
        done = subprocess.run(
            [sys.executable, "-c", f"{program}Store(Path({str(tmp_path)!r}))"], capture_output=True, text=True
        )
        assert f"Refused: {tmp_path}: another writer (process {os.getpid()})" in done.stderr
    open_store(tmp_path).close()


def test_a_failed_opening_lets_the_next_writer_in(tmp_path: Path) -> None:
    (tmp_path / "live.duckdb").write_text("no database " * 1000)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"live.duckdb: cannot be opened as a DuckDB database"):
            open_store(tmp_path)
    with open_store(tmp_path, fresh=True) as store:
        fill(store, *EVERY_ROW)
        assert len(dump(store)["run"]) == 2


def test_a_program_that_the_writer_started_does_not_keep_the_lock(tmp_path: Path) -> None:
    """The killed sweep's server lives on; it must not lock the sweep out of its own directory."""
    store = open_store(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(1, flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline()
        store.close()
        open_store(tmp_path).close()
    finally:
        child.communicate(b"")


def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="File exists"):
        open_store(tmp_path / "file")


# -- ingest -----------------------------------------------------------------------------------------------------------
def test_ingest_is_idempotent_and_the_last_line_of_a_key_wins(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, *EVERY_ROW)
        first = dump(store)
        assert store.ingest().files == 0
        for path in (tmp_path / "journal" / SWEEP).iterdir():
            os.utime(path, ns=(1, 1))  # the ledger no longer matches, the rows do
        assert store.ingest().files == 3
        assert dump(store) == first
    by_id = {row[0]: row for row in first["run"]}
    assert by_id["s:a"][7] == "done"
    assert len(first["step"]) == 4
    assert len(first["failure"]) == 1


def test_a_request_that_is_written_again_replaces_its_steps(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, *EVERY_ROW)
        with store.run_journal(SWEEP, "s:a") as journal:
            journal.append(drafted("a", 0, 3, [1]))
        store.ingest()
        assert [row[:2] for row in dump(store)["step"]] == [
            ("s:a:1xtext:w:measure:0", 0),
            ("s:a:1xtext:w:measure:1", 0),
        ]


@pytest.mark.parametrize("stop", [1, 4, 6])
def test_rebuild_equals_incremental(tmp_path: Path, stop: int) -> None:
    with open_store(tmp_path) as store:
        fill(store, *EVERY_ROW[:stop])
        fill(store, *EVERY_ROW[stop:])
        incremental = dump(store)
        store.publish()
    taken = rebuild(tmp_path, bundled={})
    assert (taken.files, taken.records) == (3, len(EVERY_ROW))
    with open_store(tmp_path) as store:
        assert dump(store) == incremental


def test_a_corrupt_journal_is_refused_and_keeps_no_other_sweep_out(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, *EVERY_ROW)
        for name in ("bad", "z"):
            path = tmp_path / "journal" / name / "sweep.jsonl"
            path.parent.mkdir()
            path.write_bytes(to_line(sweep(sweep=name)) + (b"{\n" if name == "bad" else b""))
        for _ in range(2):  # told every time, until somebody acts
            with pytest.raises(StoreError, match=r"bad/sweep.jsonl: line 2 is corrupt"):
                store.ingest()
        assert [row[0] for row in dump(store)["sweep"]] == ["s", "z"]


def test_a_journal_under_another_sweeps_name_is_refused(tmp_path: Path) -> None:
    """A copied directory would otherwise be pooled with the original."""
    with open_store(tmp_path) as store:
        fill(store, *EVERY_ROW)
        shutil.copytree(tmp_path / "journal" / "s", tmp_path / "journal" / "copy")
        with pytest.raises(StoreError, match=r"copy/.*: holds a record of sweep 's'"):
            store.ingest()


def test_arrays_of_different_length_are_refused(tmp_path: Path) -> None:
    with (
        open_store(tmp_path) as store,
        pytest.raises(StoreError, match="measure:0: step_drafted and step_accepted differ in length"),
    ):
        fill(store, request("a", 0, step_drafted=(1, 1), step_accepted=(1,)))


def test_removed_and_replaced_journals_take_their_rows_along(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, *EVERY_ROW)
        store.replace_estimates(SWEEP, [estimate("t_draft_ms", 1.0)])
        (tmp_path / "journal" / SWEEP / "b.jsonl").unlink()
        assert store.ingest().dropped_sweeps == (SWEEP,)
        left = dump(store)
        assert [row[0] for row in left["run"]] == ["s:a"]
        assert left["failure"] == []
        assert left["estimate"] == []
        assert len(left["step"]) == 4
        shutil.rmtree(tmp_path / "journal" / SWEEP)
        store.ingest()
        assert all(not rows for rows in dump(store).values())


def test_bundled_sweeps_are_always_there_and_an_own_one_of_that_name_goes_first(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    for name in (SWEEP, "other"):
        (bundle / name).mkdir(parents=True)
        (bundle / name / "sweep.jsonl").write_bytes(to_line(sweep(sweep=name, description="bundled")))
    with open_store(tmp_path / "data", bundled={"demo": bundle, "published": tmp_path / "none"}) as store:
        store.ingest()
        assert [(row[0], row[3]) for row in dump(store)["sweep"]] == [("other", "bundled"), (SWEEP, "bundled")]
        fill(store, sweep(description="own"), run("a", 1))
        assert [(row[0], row[3]) for row in dump(store)["sweep"]] == [("other", "bundled"), (SWEEP, "own")]


def test_the_bundled_study_is_in_every_data_directory(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.ingest()
        store.publish()
    sweeps = queries.sweeps(queries.connect(tmp_path / "results.duckdb"))
    assert "published-glm52-gb10" in list(sweeps["sweep"])


def test_opening_repairs_torn_lines_and_says_so(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, *EVERY_ROW)
    path = tmp_path / "journal" / SWEEP / "a.jsonl"
    with path.open("ab") as file:
        file.write(b'{"record": "Requ')
    with open_store(tmp_path) as store:
        assert [torn.path for torn in store.torn] == [path]
        store.ingest()
        assert len(dump(store)["request"]) == 2
    with open_store(tmp_path) as store:
        assert store.torn == []


# -- estimates --------------------------------------------------------------------------------------------------------
def test_estimates_are_replaced_whole_and_never_outlive_their_data(tmp_path: Path) -> None:
    with open_store(tmp_path, code_version="v1") as store:
        fill(store, *EVERY_ROW)
        assert store.stale_sweeps() == [SWEEP]
        store.replace_estimates(SWEEP, [estimate("a", 1.0, window_k=(0, 1, 2)), estimate("a", None)])
        store.replace_estimates(SWEEP, [estimate("b", 2.0, window_k=(0, 1), k=1)])
        assert dump(store)["estimate"] == [
            (SWEEP, 0, CELL, "b", 1, [0, 1], 2.0, None, None, None, "m", 1, "ms", "one run", "v1"),
        ]
        assert store.stale_sweeps() == []
        fill(store, run("c", 2))
        assert store.stale_sweeps() == [SWEEP]
        store.replace_estimates(SWEEP, [estimate("b", 2.0)])
    with open_store(tmp_path, code_version="v2") as store:
        assert store.stale_sweeps() == [SWEEP]


# -- migrations -------------------------------------------------------------------------------------------------------
def _tables(path: Path) -> list[str]:
    with duckdb.connect(str(path), read_only=True) as con:
        return [name for (name,) in con.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()]


def test_a_failing_migration_leaves_the_schema_before_it(tmp_path: Path) -> None:
    path, con = tmp_path / "live.duckdb", connection.memory()
    connection.attach(con, path, read_only=False)
    steps = [
        Migration(1, "one", "CREATE TABLE a (x INTEGER); CREATE TABLE b (x INTEGER);"),
        Migration(2, "two", "CREATE TABLE c (x INTEGER); DROP TABLE a; INSERT INTO nothing VALUES (1);"),
    ]
    for _ in range(2):
        with pytest.raises(StoreError, match=r"migration 2 \(two\) failed: .*nothing"):
            connection.migrate(con, path, steps)
    assert con.execute("SELECT version, name FROM migration").fetchall() == [(1, "one")]
    repaired = [steps[0], Migration(2, "two", "CREATE TABLE c (x INTEGER);")]
    connection.migrate(con, path, repaired)
    connection.migrate(con, path, repaired)
    con.close()
    assert _tables(path) == ["a", "b", "c", "migration"]


def test_migrations_are_numbered_without_gaps(tmp_path: Path) -> None:
    assert [step.version for step in connection.migrations()] == list(range(1, connection.schema_version() + 1))
    (tmp_path / "0002_late.sql").write_text("")
    with pytest.raises(StoreError, match="not numbered 1, 2, 3"):
        connection.migrations(tmp_path)
    (tmp_path / "first.sql").write_text("")
    with pytest.raises(StoreError, match="is not named"):
        connection.migrations(tmp_path)


def test_foreign_and_newer_databases_are_refused(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "live.duckdb")) as con:
        con.execute("CREATE TABLE orders (x INTEGER)")
    with pytest.raises(StoreError, match="is not a Sounding database"):
        open_store(tmp_path)
    (tmp_path / "live.duckdb").unlink()
    open_store(tmp_path).close()
    with duckdb.connect(str(tmp_path / "live.duckdb")) as con:
        con.execute("INSERT INTO migration VALUES (99, 'future', 0)")
    with pytest.raises(StoreError, match=r"has schema 99, this code knows \d+ \(update Sounding\)"):
        open_store(tmp_path)


# -- snapshots --------------------------------------------------------------------------------------------------------
def test_a_snapshot_opens_in_every_duckdb_from_1_5_on(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.publish()
    with duckdb.connect(str(tmp_path / "results.duckdb"), read_only=True) as con:
        tags = con.execute("SELECT tags FROM duckdb_databases() WHERE database_name = 'results'").fetchone()
    assert tags is not None
    assert tags[0]["storage_version"].startswith("v1.5")


def test_publishing_leaves_only_the_snapshot_and_goes_on(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, *EVERY_ROW)
        keys = set()
        for name in ("c", "d"):
            fill(store, run(name, 1))
            path = store.publish()
            keys.add((path.stat().st_ino, str(queries.snapshot_info(queries.connect(path))["id"])))
        assert len(keys) == 2
        assert len(queries.runs(queries.connect(path), SWEEP)) == 4
    assert {path.name for path in tmp_path.iterdir()} == {"journal", "live.duckdb", "results.duckdb", "writer.lock"}


def test_a_failed_publish_keeps_the_old_snapshot_and_the_live_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        target.write_bytes(b"half")
        raise OSError(28, "No space left on device", str(target))

    with open_store(tmp_path) as store:
        fill(store, *EVERY_ROW)
        before = queries.snapshot_key(store.publish())
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "copyfile", full)
            with pytest.raises(StoreError, match="No space left on device"):
                store.publish()
        assert queries.snapshot_key(store.snapshot) == before
        assert list(tmp_path.glob("*tmp*")) == []
        assert len(dump(store)["run"]) == 2
        assert queries.snapshot_key(store.publish()) != before


def test_leftovers_of_a_killed_publish_are_removed_at_start(tmp_path: Path) -> None:
    left = [tmp_path / "results.duckdb.tmp-123", tmp_path / "results.duckdb.tmp-123.wal"]
    for path in left:
        path.write_text("half")
    (tmp_path / "mine.tmp").write_text("kept")
    with open_store(tmp_path) as store:
        assert store.leftovers == left
    assert (tmp_path / "mine.tmp").exists()
    assert not any(path.exists() for path in left)


def test_a_polling_reader_sees_no_error_and_no_step_back(tmp_path: Path) -> None:
    """Publishes under a reader that opens, reads a view and closes as fast as it can."""
    seen: list[int] = []
    done = threading.Event()

    def poll() -> None:
        while not done.is_set():
            con = queries.connect(tmp_path / "results.duckdb")
            seen.append(len(queries.run_cells(con, SWEEP)))
            con.close()

    with open_store(tmp_path) as store:
        fill(store, *EVERY_ROW)
        store.publish()
        reader = threading.Thread(target=poll)
        reader.start()
        for number in range(15):
            fill(store, run(f"p{number}", 1), drafted(f"p{number}", 0, 1, [1, 0]))
            store.publish()
        done.set()
        reader.join()
    assert len(seen) > 5
    assert seen == sorted(seen)


def test_where_results_are_looked_for(tmp_path: Path) -> None:
    none: dict[str, str] = {}
    assert paths.resolve(tmp_path, environment=none) == paths.BUNDLED_SNAPSHOT
    (tmp_path / "results.duckdb").touch()
    assert paths.resolve(tmp_path, environment=none) == tmp_path / "results.duckdb"
    assert paths.resolve(environment={"SOUNDING_DATA": str(tmp_path)}) == tmp_path / "results.duckdb"
    assert paths.resolve(environment={"SOUNDING_DATA": str(tmp_path), "SOUNDING_DB": "/x.db"}) == Path("/x.db")
    assert paths.resolve(tmp_path, environment={"SOUNDING_DB": "/x.db"}) == tmp_path / "results.duckdb"
    assert paths.data_directory(environment=none) == paths.DEFAULT_DATA
