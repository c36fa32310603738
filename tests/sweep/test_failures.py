"""Everything that a server can do wrong ends as a failed run with reason and evidence, and the sweep goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from backend import run as run_module
from backend import sweep as sweep_module
from backend.analysis.checks import exclusions
from backend.records import Finding, Run
from tests.standin.specs import write_spec
from tests.sweep.harness import failures, findings, left_over, runs, sweep, wait_for

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "DEATH_S", 0.5)  # the stand-in dies at once


@pytest.mark.parametrize(
    ("fault", "settings", "kind", "says"),
    [
        ("never_ready times=1", {"server_ready_timeout_s": 3}, "not_ready", "not ready after 3 s"),
        ("freeze times=1", {"server_stall_timeout_s": 2}, "stalled", "no new log line for 2 s"),
        ("die_start times=1", {}, "died", "ended while it was starting"),
        ("die_mid after=3 times=1", {}, "died", "measure request"),
        ("http500 after=3 times=1", {}, "http", "HTTP 500"),
        ("malformed after=3 times=1", {}, "http", "holds no choice"),
        ("short after=3 times=1", {}, "short_output", "13 of 16 tokens"),
        ("drop after=3 times=1", {}, "http", "no answer"),
        ("drop after=3 times=1", {"server_transport": "stream"}, "http", "broke off"),
        ("hang after=3 times=1", {"server_request_timeout_s": 2}, "http", "ReadTimeout"),
    ],
)
def test_a_failure_is_a_row_and_is_retried_in_its_block(
    standin_spec: Write, tmp_path: Path, fault: str, settings: dict[str, object], kind: str, says: str
) -> None:
    spec, data = standin_spec(depths=(2,), fault=fault, **settings), tmp_path / "data"
    outcome = sweep(spec, data)
    first, second = runs(data)
    (failure,) = failures(data)
    assert (outcome.exit_code, outcome.failed_attempts, outcome.missing) == (0, 1, ())
    assert (first.status, first.valid, first.attempt) == ("failed", False, 1)
    assert (failure.run_id, failure.kind, failure.reason) == (first.run_id, kind, first.reason)
    assert says in failure.reason
    assert "loading the stand-in for K=2" in failure.log_tail
    assert (second.status, second.valid, second.attempt) == ("done", True, 2)
    assert (second.block, second.order_index, second.k) == (first.block, first.order_index, first.k)
    assert left_over(data) == []


@pytest.mark.parametrize("concurrency", [1, 3])
def test_finished_runs_stay_and_the_sweep_goes_on(standin_spec: Write, tmp_path: Path, concurrency: int) -> None:
    """A depth that always fails costs its own runs only: exit 3, and the others are there."""
    data = tmp_path / "data"
    spec = standin_spec(depths=(0, 1), fault="die_mid after=4 k=1", concurrency=[concurrency], prompts=30)
    outcome = sweep(spec, data)
    assert outcome.exit_code == 3
    assert [(run.k, run.status, run.attempt) for run in runs(data) if run.k == 1] == [
        (1, "failed", 1),
        (1, "failed", 2),
    ]
    assert [(run.k, run.status) for run in runs(data) if run.k == 0] == [(0, "done")]
    assert outcome.missing == (f"quick:r{next(r.order_index for r in runs(data) if r.k == 1):03d}b0k1a2",)


def test_a_wrong_depth_is_not_asked_again(standin_spec: Write, tmp_path: Path) -> None:
    outcome = sweep(standin_spec(depths=(2,), fault="wrong_depth"), tmp_path / "data")
    (run,) = runs(tmp_path / "data")
    assert outcome.exit_code == 3
    assert failures(tmp_path / "data")[0].kind == "wrong_depth"
    assert "asked for K=2, the server reports K=3" in (run.reason or "")


@pytest.mark.parametrize("fault", ["ignore_term", "child"])
def test_what_ignores_sigterm_is_killed_and_the_run_kept(standin_spec: Write, tmp_path: Path, fault: str) -> None:
    data = tmp_path / "data"
    outcome = sweep(standin_spec(depths=(1,), fault=fault, server_stop_timeout_s=0.4), data)
    (run,) = runs(data)
    (finding,) = findings(data, "stop-forced")
    assert (outcome.exit_code, run.status, run.valid) == (0, "done", True)
    assert "killed" in finding.message
    assert left_over(data) == []


def test_what_cannot_be_stopped_ends_the_sweep_and_says_so(standin_spec: Write, tmp_path: Path) -> None:
    """Something keeps the port that we cannot know to be ours: nothing more is measured until it is gone."""
    data = tmp_path / "data"
    spec = standin_spec(depths=(1, 2, 3), fault="escape s=3 times=1", server_release_timeout_s=0.4)
    outcome = sweep(spec, data)
    (run,) = runs(data)
    assert (run.status, failures(data)[0].kind) == ("failed", "wont_stop")
    assert outcome.exit_code == 3
    assert len(outcome.missing) == 3  # the failed one and those that were not tried
    assert "something listens on port" in outcome.notes[-1]
    assert "end it by hand" in outcome.notes[-1]
    port = int(outcome.notes[-1].split("port ")[1].split()[0])
    wait_for(lambda: not run_module_port(port))
    assert sweep(spec, data, resume=True).exit_code == 0
    assert [run.status for run in runs(data)].count("done") == 3


def run_module_port(port: int) -> bool:
    """Whether the escaped process still holds the port."""
    from backend.engines.process import port_in_use

    return port_in_use("127.0.0.1", port)


def test_a_busy_port_fails_the_launch(standin_spec: Write, tmp_path: Path) -> None:
    """Found only between two runs (before the first, the sweep refuses): a failed run of kind launch."""
    import socket

    data = tmp_path / "data"
    spec = standin_spec(depths=(1, 2), server_retries=0)
    port = int(next(line for line in spec.read_text().splitlines() if line.startswith("port = ")).split()[-1])
    squatter = socket.socket()

    def squat(now: object) -> None:
        if getattr(now, "runs_done", 0) == 1 and squatter.getsockname()[1] == 0:
            squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            squatter.bind(("127.0.0.1", port))
            squatter.listen()

    outcome = sweep(spec, data, listener=squat)
    squatter.close()
    assert outcome.exit_code == 3
    assert [(failure.kind, "is in use" in failure.reason) for failure in failures(data)] == [("launch", True)]
    assert [run.status for run in runs(data)] == ["done", "failed"]


def test_an_excluded_run_is_repeated_in_its_block(
    standin_spec: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-blind evidence takes a run out: its rows stay, marked with the reason, and the depth is measured again."""

    def once(run: Run, *_kept: object) -> list[Finding]:
        code = "foreign-requests" if run.attempt == 1 else "slow-client"
        return [Finding(run.sweep, run.run_id, "", code, "error", 5.0, "requests", "worked for others", "repeat")]

    monkeypatch.setattr(sweep_module, "exclusions", exclusions)
    monkeypatch.setattr(sweep_module, "publish", SimpleNamespace(publish=lambda *_: [], findings_of_run=once))
    outcome = sweep(standin_spec(depths=(1,)), tmp_path / "data")
    first, second = runs(tmp_path / "data")
    assert outcome.exit_code == 0
    assert (first.status, first.valid, first.exclusion_reason) == ("done", False, "foreign-requests: worked for others")
    assert (second.status, second.valid, second.attempt, second.block) == ("done", True, 2, first.block)


def test_an_escaped_helper_with_our_mark_is_ended_too(tmp_path: Path) -> None:
    """A launch script that puts its server into a session of its own: the mark in the environment finds it."""
    data = tmp_path / "data"
    spec = write_spec(tmp_path / "specs", depths=(1,))
    text = spec.read_text().replace('argv = ["', 'argv = ["setsid", "--wait", "')
    spec.write_text(text)
    assert sweep(spec, data).exit_code == 0
    assert left_over(data) == []
