"""After kill -9 anywhere: finished runs kept, the broken one redone whole, nothing of the killed sweep left running."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.errors import Refused
from backend.resume import KILLED
from backend.store.lock import WriterLock
from tests.standin.specs import write_spec
from tests.sweep.harness import DEATHS, left_over, records, running, runs, start, sweep, wait_for
from tests.sweep.kills import kill_and_resume, lock_is_free, warm_ups_are_whole

Write = Callable[..., Path]


def survives(tmp_path: Path, kills: int, seed: int, longest_s: float) -> None:
    """Kill, resume, and check all that must hold."""
    quick = write_spec(tmp_path / "quick", name="quick", blocks=2, depths=(0, 2), prompts=3)
    slow = write_spec(
        tmp_path / "slow", name="slow", depths=(0, 1), arguments=("--start-s", "0.3"), fault="child; slow ms=1",
        server_stop_timeout_s=0.3,
    )  # fmt: skip
    tally = kill_and_resume([quick, slow], tmp_path / "data", kills, seed, longest_s)
    print(tally)
    assert dataclasses.replace(tally, reads=0, sweeps=0, finished_runs=0) == dataclasses.replace(
        tally, kills=kills, reads=0, sweeps=0, finished_runs=0, lost=0, repeated=0, missing=0, reader_faults=(),
        left_processes=0,
    )  # fmt: skip
    assert tally.reads > 0
    assert not list((tmp_path / "data").glob("*.tmp*"))
    assert warm_ups_are_whole(tmp_path / "data")
    assert lock_is_free(tmp_path / "data")


def test_a_dozen_kills(tmp_path: Path) -> None:
    survives(tmp_path, kills=12, seed=1, longest_s=2.0)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_sixty_kills(tmp_path: Path) -> None:
    survives(tmp_path, kills=60, seed=20261129, longest_s=4.0)


@pytest.mark.parametrize("moment", DEATHS)
def test_a_kill_at_a_bad_moment(standin_spec: Write, tmp_path: Path, moment: str) -> None:
    """Before the lease: a server that only its environment tells. In a line: cut off and said. In a publish: swept."""
    data, output = tmp_path / "data", tmp_path / "output.txt"
    spec = standin_spec(depths=(0, 2))
    command = ["sweep", str(spec), "--resume", "--data", str(data)]
    process = start(command, output, die_at=moment)
    process.join()
    assert process.exitcode == -9
    kept = [run.run_id for run in runs(data) if run.status == "done"]
    if moment == "before the lease":
        assert not (data / "server.json").exists()
        assert len(left_over(data)) == 1
    if moment == "before the snapshot is in place":
        assert len(kept) == 1
    again = start(command, output)
    again.join()
    said = output.read_text()
    assert again.exitcode == 0, said
    assert ("torn last line dropped" in said) == (moment == "in a journal line")
    if moment != "before the snapshot is in place":
        assert "ended the server (process" in said
    assert set(kept) <= {run.run_id for run in runs(data) if run.status == "done"}
    assert sorted(run.k for run in runs(data) if run.status == "done") == [0, 2]
    assert left_over(data) == []
    assert {path.name for path in data.iterdir()} == {
        "journal", "live.duckdb", "logs", "progress.json", "results.duckdb", "writer.lock"
    }  # fmt: skip


def test_a_killed_run_is_marked_and_redone_from_its_launch(standin_spec: Write, tmp_path: Path) -> None:
    data, output = tmp_path / "data", tmp_path / "output.txt"
    spec = standin_spec(depths=(2,), fault="slow ms=20 times=1")
    with running(["sweep", str(spec), "--data", str(data)], output):
        wait_for(lambda: any(getattr(record, "phase", "") == "measure" for record in records(data)))
    assert [run.status for run in runs(data)] == ["running"]
    assert len(left_over(data)) == 1
    sweep(spec, data, resume=True)
    first, second = runs(data)
    assert (first.status, first.valid, first.reason) == ("interrupted", False, KILLED)
    assert (second.status, second.attempt) == ("done", 2)
    assert warm_ups_are_whole(data)
    assert left_over(data) == []


def test_a_second_writer_is_refused(standin_spec: Write, tmp_path: Path) -> None:
    data, output = tmp_path / "data", tmp_path / "output.txt"
    data.mkdir()
    lock = WriterLock(data)
    second = start(["sweep", str(standin_spec()), "--data", str(data)], output)
    second.join()
    lock.release()
    assert second.exitcode == 2
    assert f"another writer (process {os.getpid()}) is at work" in output.read_text()
    assert runs(data) == []


def test_a_torn_head_is_completed(standin_spec: Write, tmp_path: Path) -> None:
    """sweep.jsonl cut after its first line, as a power cut can leave it: the cells are written again."""
    data, spec = tmp_path / "data", standin_spec(depths=(0,))
    sweep(spec, data)
    head = data / "journal" / "quick" / "sweep.jsonl"
    whole = head.read_text()
    head.write_text(whole.splitlines(keepends=True)[0] + '{"record": "Ce')
    sweep(spec, data, resume=True)
    assert head.read_text() == whole


def test_another_spec_cannot_resume(standin_spec: Write, tmp_path: Path) -> None:
    data = tmp_path / "data"
    sweep(standin_spec(depths=(0,)), data)
    with pytest.raises(Refused, match=r"depths, workload differ"):
        sweep(standin_spec(depths=(1,), workload={"max_tokens": 8}), data, resume=True)
    with pytest.raises(Refused, match=r"exists in"):
        sweep(standin_spec(depths=(0,)), data)


def test_a_finished_sweep_resumes_to_nothing(standin_spec: Write, tmp_path: Path) -> None:
    data, spec = tmp_path / "data", standin_spec(depths=(0,))
    first = sweep(spec, data)
    (data / "results.duckdb").unlink()  # killed before its last snapshot
    again = sweep(spec, data, resume=True)
    assert (first.done, again.done, again.exit_code) == (1, 1, 0)
    assert len(runs(data)) == 1
    assert (data / "results.duckdb").exists()
