"""Launch, readiness, stop and release over two real hosts, with scripted ranks: no vLLM, so on every commit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backend.engines.rank import Rank
from backend.progress import Progress
from backend.records import Environment
from tests.nodes.events import SLOWLY, measuring, nothing_is_left
from tests.nodes.rig import Rig
from tests.sweep.harness import ROOT, failures, findings, records, running, runs, sweep, wait_for

Write = Callable[..., Path]


def test_a_sweep_over_two_hosts(
    scripted_spec: Write, hosts: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last rank is launched first, the head is stopped first; what ran where is kept with the run."""
    order: list[str] = []
    for step in ("launch", "stop"):
        real = getattr(Rank, step)

        def noted(rank: Rank, *arguments: Any, _step: str = step, _real: Any = real) -> None:
            order.append(f"{_step} {rank.number}")
            _real(rank, *arguments)

        monkeypatch.setattr(Rank, step, noted)
    data = tmp_path / "data"
    outcome = sweep(scripted_spec(), data)
    assert [failure.reason for failure in failures(data)] == []
    assert outcome.exit_code == 0
    assert sorted((run.k, run.reported_k, run.status) for run in runs(data)) == [
        (0, 0, "done"), (1, 1, "done"), (3, 3, "done"),
    ]  # fmt: skip
    assert order == ["launch 1", "launch 0", "stop 0", "stop 1"] * 3
    facts = {(f.run_id, f.node, f.name): f.value for f in records(data) if isinstance(f, Environment)}
    (run,) = (run for run in runs(data) if run.k == 3)
    assert facts[run.run_id, "spark-b", "rank"] == "1"
    assert "--node-rank 1" in (facts[run.run_id, "spark-b", "command"] or "")
    assert "--headless" in (facts[run.run_id, "spark-b", "command"] or "")
    assert '"num_speculative_tokens": 3' in (facts[run.run_id, "spark-b", "command"] or "")
    assert "VLLM::Worker_TP1" in (facts[run.run_id, "spark-b", "watched_processes"] or "")
    assert f'"VLLM_HOST_IP": "{hosts.worker.data_address}"' in (facts[run.run_id, "spark-b", "command_env"] or "")
    log = Path(facts[run.run_id, "spark-b", "log_path"] or "").read_text().splitlines()
    assert [line for line in log if "rank 1" in line] == ["rank 1 of 2: loading", "rank 1: joined"]
    nothing_is_left(hosts, data)


def test_the_sweep_runs_on_the_head_itself(scripted_spec: Write, hosts: Rig, tmp_path: Path) -> None:
    """As in a lab: `host = "local"` for the head, loopback for the server; only the other node is reached by ssh."""
    head = {"name": "spark-a", "address": hosts.head.data_address, "interface": "data0"}
    data = tmp_path / "data"
    spec = scripted_spec(depths=(0, 2), node=[head, hosts.node(hosts.worker)], server_host="127.0.0.1")
    command = [sys.executable, "-m", "backend", "sweep", str(spec), "--data", str(data)]
    done = subprocess.run(
        hosts.head.inside(["env", "-C", str(ROOT), "HOME=/root", *command]),
        check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted((run.k, run.status) for run in runs(data) if run.valid) == [(0, "done"), (2, "done")]
    nothing_is_left(hosts, data)


def test_a_rank_that_ignores_sigterm_is_killed_and_the_run_kept(
    scripted_spec: Write, hosts: Rig, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    spec = scripted_spec(depths=(1,), rank_env=({}, {"RANK_FAULT": "ignore_term"}), server_stop_timeout_s=0.5)
    assert sweep(spec, data).exit_code == 0
    (finding,) = findings(data, "stop-forced")
    assert "rank 1 on spark-b" in finding.message
    nothing_is_left(hosts, data)


@pytest.mark.parametrize("moment", ["launch", "measure"])
def test_an_interruption_leaves_nothing(scripted_spec: Write, hosts: Rig, tmp_path: Path, moment: str) -> None:
    data, output = tmp_path / "data", tmp_path / "output.txt"
    env = ({"RANK_FAULT": "freeze"}, {}) if moment == "launch" else ({}, {})
    spec = scripted_spec(depths=(1,), rank_env=env, **SLOWLY)
    with running(["sweep", str(spec), "--data", str(data)], output) as process:
        wait_for(lambda: measuring(data) if moment == "measure" else hosts.head.named("scripted_vllm"))
        os.kill(process.pid or 0, signal.SIGTERM)
        process.join(30)
        assert process.exitcode == 143
    assert [run.status for run in runs(data)] == ["interrupted"]
    nothing_is_left(hosts, data)


@pytest.mark.parametrize("moment", ["launch", "measure"])
def test_after_kill_9_of_the_sweep_the_next_start_cleans_both_hosts(
    scripted_spec: Write, hosts: Rig, tmp_path: Path, moment: str
) -> None:
    data, output = tmp_path / "data", tmp_path / "output.txt"
    env = ({"RANK_FAULT": "freeze"}, {}) if moment == "launch" else ({}, {})
    killed = scripted_spec(name="killed", depths=(1,), rank_env=env, **SLOWLY)
    with running(["sweep", str(killed), "--data", str(data)], output):
        wait_for(lambda: measuring(data) if moment == "measure" else hosts.head.named("scripted_vllm"))
    assert hosts.head.named("scripted_vllm")
    assert hosts.worker.named("scripted_vllm")
    other = scripted_spec(name="other", depths=(1,))  # whatever is swept next
    with running(["sweep", str(other), "--data", str(data)], output) as process:
        process.join(60)
        assert process.exitcode == 0, output.read_text()
    for host in hosts.hosts:
        assert f"on {host.name}) that a killed sweep left" in output.read_text()
    nothing_is_left(hosts, data)


def test_memory_that_does_not_come_back_ends_the_sweep(scripted_spec: Write, hosts: Rig, tmp_path: Path) -> None:
    data = tmp_path / "data"
    balloon = "import time; held = b'x' * (3 << 30); print('held', flush=True); time.sleep(60)"
    spec = scripted_spec(nodes={"memory_slack_bytes": 256 << 20, "agent": {"on": False}}, server_release_timeout_s=1)
    leak: list[subprocess.Popen[bytes]] = []

    def take_memory_while_measuring(now: Progress) -> None:
        if now.phase == "measure" and not leak:
            leak.append(subprocess.Popen([sys.executable, "-c", balloon], stdout=subprocess.PIPE))
            assert leak[0].stdout is not None
            assert leak[0].stdout.readline() == b"held\n"

    try:
        outcome = sweep(spec, data, listener=take_memory_while_measuring)
    finally:
        for process in leak:
            process.kill()
            process.communicate()
    assert outcome.exit_code == 3
    assert failures(data)[-1].kind == "wont_stop"
    assert "memory is not back" in failures(data)[-1].reason
    assert len(runs(data)) == 1  # nothing was launched after it
