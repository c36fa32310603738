"""Journals into tables: idempotent, rebuildable, never pooled, and estimates that follow their data."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from backend.errors import StoreError
from backend.records import StageTimes
from backend.store import queries
from backend.store.database import EstimateRow, Store, rebuild
from backend.store.lines import to_line
from tests.store.store_samples import CELL, EVERY_ROW, SWEEP, drafted, dump, fill, open_store, request, run, sweep


def estimate(quantity: str, value: float | None, **given: object) -> EstimateRow:
    none = dict.fromkeys(("k", "window_k", "low", "high", "level"))
    values = {"cell_id": CELL, **none, "method": "m", "n": 1, "unit": "ms", "reason": "one run", **given}
    return EstimateRow(quantity=quantity, value=value, **values)  # type: ignore[arg-type]


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


def test_a_journal_that_was_replaced_by_a_shorter_one_is_taken_in_afresh(tmp_path: Path) -> None:
    """A restored backup, for instance: what the longer one held beyond it is gone."""
    with open_store(tmp_path) as store:
        fill(store, *EVERY_ROW)
        (tmp_path / "journal" / SWEEP / "a.jsonl").write_bytes(to_line(run("a", 3)))
        assert store.ingest().dropped_sweeps == (SWEEP,)
        assert dump(store)["request"] == dump(store)["step"] == []
        assert len(dump(store)["run"]) == 2


def test_bundled_sweeps_are_always_there_and_an_own_one_of_that_name_goes_first(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    for name in (SWEEP, "other"):
        (bundle / name).mkdir(parents=True)
        (bundle / name / "sweep.jsonl").write_bytes(to_line(sweep(sweep=name, description="bundled")))
    (bundle / SWEEP / "bundled.jsonl").write_bytes(to_line(run("bundled", 1)))
    with open_store(tmp_path / "data", bundled={"demo": bundle, "published": tmp_path / "none"}) as store:
        store.ingest()
        assert [(row[0], row[3]) for row in dump(store)["sweep"]] == [("other", "bundled"), (SWEEP, "bundled")]
        assert [row[0] for row in dump(store)["run"]] == ["s:bundled"]
        fill(store, sweep(description="own"), run("a", 1))
        assert [row[0] for row in dump(store)["run"]] == ["s:a"]  # never pooled with the bundled runs
        assert [(row[0], row[3]) for row in dump(store)["sweep"]] == [("other", "bundled"), (SWEEP, "own")]


def test_the_bundled_study_is_in_every_data_directory(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.ingest()
        store.publish()
    sweeps = queries.sweeps(queries.connect(tmp_path / "results.duckdb"))
    assert "published-glm52-gb10" in list(sweeps["sweep"])


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


def test_stages_taken_in_again_replace_what_was_there(tmp_path: Path) -> None:
    """Table stage_time has no primary key: a request's stages go before they come again, rank by rank."""
    times = StageTimes(
        "s:a",
        CELL,
        "s:a:q",
        0,
        0,
        "perf_counter",
        False,
        0,
        ("verify_forward",),
        (-1,),
        ((1000.0,), (None,), (3000.0,)),
    )
    other = replace(times, rank=1)
    with open_store(tmp_path) as store:
        fill(store, *EVERY_ROW, times, other)
        assert len(dump(store)["stage_time"]) == 4
        with store.run_journal(SWEEP, "s:a") as journal:
            journal.append(replace(times, durations_us=((500.0,),)), other)
        store.ingest()
        again = dump(store)["stage_time"]
    assert sorted((row[3], row[5], row[8]) for row in again) == [(0, 0, 0.0005), (1, 0, 0.001), (1, 2, 0.003)]
