"""Faults of the machine: a full disk and a clock that steps."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.errors import StoreError
from backend.progress import Progress
from backend.records import Counter, Request
from backend.store import connection, journal
from tests.sweep.harness import failures, findings, left_over, records, runs, sweep

Write = Callable[..., Path]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MB of its own; skipped where mounting is not allowed."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "none", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting needs root")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(folder: Path) -> Path:
    """A file that takes all the room there is."""
    filler = folder / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(b"\0" * 4096):
            pass
    return filler


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_disk_that_fills_up(standin_spec: Write, small_disk: Path, concurrency: int) -> None:
    """The sweep ends with one clear line, no server stays, finished runs are whole, and with room it resumes."""
    data, spec = small_disk / "data", standin_spec(depths=(0, 1), concurrency=[concurrency], prompts=60)
    filler: list[Path] = []

    def fill_in_the_second_run(now: Progress) -> None:
        if now.runs_done == 1 and now.phase == "measure" and not filler:
            filler.append(fill(small_disk))

    with pytest.raises(StoreError, match=r"cannot be written: No space left on device.*--resume"):
        sweep(spec, data, listener=fill_in_the_second_run)
    first, second = runs(data)
    assert (first.status, first.valid) == ("done", True)
    assert second.status in ("running", "failed")  # marked if there was room for the line
    assert left_over(data) == []
    con = connection.open_snapshot(data / "results.duckdb")
    assert int(connection.frame(con, "SELECT count(*) AS n FROM run WHERE status = 'done'")["n"].iloc[0]) == 1
    con.close()
    filler[0].unlink()
    assert sweep(spec, data, resume=True).exit_code == 0
    assert next(run.run_id for run in runs(data) if run.status == "done") == first.run_id
    assert sorted(run.k for run in runs(data) if run.status == "done") == [0, 1]


def test_a_journal_that_cannot_be_synced(standin_spec: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC from fsync (delayed allocation), once: the run is a failed row of kind disk, and the sweep ends."""
    data, spec = tmp_path / "data", standin_spec(depths=(1,))
    fsync, full = os.fsync, []

    def sometimes(handle: int) -> None:
        if full and full.pop():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    monkeypatch.setattr(journal.os, "fsync", sometimes)

    def in_measure(now: Progress) -> None:
        if now.phase == "measure" and now.requests_done == 1:
            full.append(True)

    with pytest.raises(StoreError, match="No space left"):
        sweep(spec, data, listener=in_measure)
    (run,) = runs(data)
    assert (run.status, failures(data)[0].kind) == ("failed", "disk")
    assert left_over(data) == []
    measured = [record for record in records(data) if isinstance(record, Request) and record.phase == "measure"]
    assert len(measured) == 1  # the one that was not acknowledged was cut off again
    assert sweep(spec, data, resume=True).exit_code == 0


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_clock_step_is_a_finding_and_the_run_is_kept(
    standin_spec: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    """Windows are the engine's and spans monotonic: nothing that is measured moves with the wall clock."""
    data, now_s, stepped = tmp_path / "data", time.time, []
    monkeypatch.setattr(time, "time", lambda: now_s() + (step_s if stepped else 0.0))

    def step(now: Progress) -> None:
        if now.phase == "measure" and now.requests_done == 2:
            stepped.append(True)

    spec = standin_spec(depths=(1,), concurrency=[1, 2], prompts=24)
    assert sweep(spec, data, listener=step).exit_code == 0
    (run,) = runs(data)
    (finding,) = findings(data, "clock-step")
    assert (run.status, run.valid) == ("done", True)
    assert finding.figure == pytest.approx(step_s, abs=1)
    assert finding.severity == "warning"
    spans = [r.after_unix_s - r.before_unix_s for r in records(data) if isinstance(r, Counter)]
    assert spans
    assert all(0 < span < 60 for span in spans)
    windows = [r.decode_s for r in records(data) if isinstance(r, Request)]
    assert all(window is not None and 0 < window < 5 for window in windows)


def test_a_quiet_clock_is_no_finding(standin_spec: Write, tmp_path: Path) -> None:
    sweep(standin_spec(depths=(1,)), tmp_path / "data")
    assert findings(tmp_path / "data", "clock-step") == []


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_terminal_that_is_gone(standin_spec: Write, tmp_path: Path, concurrency: int) -> None:
    """Progress that cannot be printed is no reason to lose a sweep."""

    def gone(_now: Progress) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    spec = standin_spec(depths=(1,), concurrency=[concurrency], prompts=32)
    assert sweep(spec, tmp_path / "data", listener=gone).exit_code == 0
