"""A signal ends a sweep in order: the run marked, the server ended, the snapshot published, the exit code as told."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.errors import Interrupted
from backend.interrupt import Signals
from backend.store import connection
from tests.sweep.harness import left_over, records, running, runs, sweep, wait_for

Write = Callable[..., Path]


def measuring(data: Path, depth: int) -> bool:
    """Whether a run of this depth is being measured."""
    return any(getattr(r, "phase", "") == "measure" and f"k{depth}a" in getattr(r, "run_id", "") for r in records(data))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_while_measuring(standin_spec: Write, tmp_path: Path, number: int, code: int) -> None:
    data, output = tmp_path / "data", tmp_path / "output.txt"
    spec = standin_spec(depths=(0, 1), seed=1, fault="slow ms=20 k=1", prompts=30)  # K=0 comes first
    with running(["sweep", str(spec), "--data", str(data)], output) as process:
        wait_for(lambda: measuring(data, 1))
        os.kill(process.pid or 0, number)
        process.join(20)
        assert process.exitcode == code
    assert [(run.k, run.status, run.valid) for run in runs(data)] == [(0, "done", True), (1, "interrupted", False)]
    assert f"interrupted by signal {int(number)}" in (runs(data)[1].reason or "")
    assert "--resume" in output.read_text()
    assert '"state": "interrupted"' in (data / "progress.json").read_text()
    assert left_over(data) == []
    assert snapshot_statuses(data) == ["done", "interrupted"]


def snapshot_statuses(data: Path) -> list[str]:
    con = connection.open_snapshot(data / "results.duckdb")
    try:
        return list(connection.frame(con, "SELECT status FROM run WHERE sweep = 'quick' ORDER BY run_id")["status"])
    finally:
        con.close()


@pytest.mark.parametrize("moment", ["launch", "measure"])
def test_more_signals_during_the_clean_up_leave_no_server(standin_spec: Write, tmp_path: Path, moment: str) -> None:
    """The server ignores SIGTERM, so that the clean-up takes a second; a hasty user interrupts again and again."""
    data, output = tmp_path / "data", tmp_path / "output.txt"
    spec = standin_spec(
        depths=(1,),
        fault="ignore_term; slow ms=20",
        prompts=30,
        arguments=("--start-s", "30") if moment == "launch" else (),
        server_stop_timeout_s=1.0,
        server_ready_timeout_s=60,
    )
    with running(["sweep", str(spec), "--data", str(data)], output) as process:
        wait_for(lambda: left_over(data) and (moment == "launch" or measuring(data, 1)))
        while process.is_alive():
            os.kill(process.pid or 0, signal.SIGTERM)
            process.join(0.1)
        assert process.exitcode in (143, -signal.SIGTERM)  # the last one may come when all is done
    assert [run.status for run in runs(data)] == ["interrupted"]
    assert left_over(data) == []
    assert not (data / "server.json").exists()


def test_an_interruption_does_not_wait_for_the_queue_of_many_clients(standin_spec: Write, tmp_path: Path) -> None:
    """At concurrency 3 the main thread only waits; the clients must not go on through a long workload."""
    data, output = tmp_path / "data", tmp_path / "output.txt"
    spec = standin_spec(depths=(1,), fault="slow ms=20", prompts=300, concurrency=[3])
    with running(["sweep", str(spec), "--data", str(data)], output) as process:
        wait_for(lambda: measuring(data, 1))
        os.kill(process.pid or 0, signal.SIGTERM)
        process.join(20)
        assert process.exitcode == 143
    measured = [record for record in records(data) if getattr(record, "phase", "") == "measure"]
    assert len(measured) < 250
    assert left_over(data) == []


def test_an_interrupted_sweep_resumes(standin_spec: Write, tmp_path: Path) -> None:
    """Interrupted between two runs, in the settle time: nothing is marked, and what is left is done later."""
    data = tmp_path / "data"
    spec = standin_spec(depths=(0, 1), server_settle_s=30)

    def interrupt(now: object) -> None:
        if getattr(now, "runs_done", 0) == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        sweep(spec, data, listener=interrupt)
    assert [run.status for run in runs(data)] == ["done"]
    assert sweep(spec, data, resume=True).exit_code == 0  # one run was left: no settle time before it
    assert [run.status for run in runs(data) if run.status == "done"] == ["done", "done"]


def test_a_signal_waits_where_it_must_not_strike() -> None:
    """Outside of `interruptible` and inside `held` it is kept; it is raised at the next place where it may."""
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.pending == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.pending == signal.SIGTERM
        with pytest.raises(Interrupted) as caught, signals.interruptible():
            pytest.fail("entered")
        assert caught.value.exit_code == 143
        assert not signals.raising


def held_then_on(signals: Signals, reached: list[str]) -> None:
    with signals.interruptible():
        with signals.held():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("the end of held")
        reached.append("after held")


def test_a_signal_in_a_held_section_is_raised_at_its_end() -> None:
    reached: list[str] = []
    with Signals() as signals:
        with pytest.raises(Interrupted):
            held_then_on(signals, reached)
        assert reached == ["the end of held"]
        with signals.held():  # in the clean-up: nothing is raised any more
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_nohup_keeps_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
