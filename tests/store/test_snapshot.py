"""Migrations are transactional, snapshots are always whole."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import duckdb
import pytest

from backend.errors import StoreError
from backend.store import connection, paths, queries
from backend.store.connection import Migration
from tests.store.store_samples import EVERY_ROW, SWEEP, drafted, dump, fill, open_store, run


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


def test_publishing_does_not_touch_what_a_reader_has_open(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, run("a", 1), *EVERY_ROW[:2])
        first = queries.snapshot_key(store.publish())
        old = queries.connect(store.snapshot)
        fill(store, run("b", 1))
        assert queries.snapshot_key(store.publish())[0] != first[0]  # another file under the same name
        assert len(queries.runs(old, SWEEP)) == 1
        assert len(queries.runs(queries.connect(store.snapshot), SWEEP)) == 2


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


def test_views_are_settled_in_a_snapshot(tmp_path: Path) -> None:
    """Same names, rows, columns and comments as the live views, as tables; the live database keeps its views."""
    with open_store(tmp_path) as store:
        fill(store, *EVERY_ROW)
        store.publish()
        with store.reading() as live:
            views = {
                name for (name,) in live.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
            }
            asked = {name: live.execute(f"SELECT * FROM {name} ORDER BY ALL").fetchall() for name in views}
            meant = {name: queries.columns(live, name).to_dict("records") for name in views}
    con = queries.connect(tmp_path / "results.duckdb")
    assert views >= {"run_cell", "k_summary", "acceptance_by_position", "cycle_fit"}
    assert con.execute(
        "SELECT count(*) FROM duckdb_views() WHERE database_name = 'sounding' AND NOT internal"
    ).fetchone() == (0,)
    for name in views:
        assert con.execute(f"SELECT * FROM {name} ORDER BY ALL").fetchall() == asked[name]
        assert queries.columns(con, name).to_dict("records") == meant[name]
    known = queries.tables(con).set_index("name")
    assert set(known.index[known["kind"] == "view"]) == views
    assert known.loc["run_cell", "rows"] == len(asked["run_cell"]) > 0
    assert known["comment"].notna().all()
    assert "CREATE VIEW" in con.execute("SELECT sql FROM published_view WHERE name = 'run_cell'").fetchone()[0]
