"""Real vLLM, TP2, `--nnodes 2`, one core a rank, over the two hosts: the study's sweep, and a node's power-off in one.

Probe and agent are on both nodes. Run by `make test-nodes`; test_real_failures.py has what else can fail.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backend.records import Canary, Environment, Failure, PowerSample, Record, Request, Run, StageTimes
from tests.nodes.events import OF_VLLM, no_vllm_runs, once_measuring
from tests.nodes.rig import Rig
from tests.standin.specs import write_spec
from tests.sweep.harness import ROOT, failures, findings, records, runs, sweep

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Finished:
    """The TP2 sweep, run on the head as in a lab; what it kept, and what it left behind."""

    exit_code: int
    output: str
    kept: list[Record]
    left: list[int]

    def of(self, kind: type) -> list[Any]:
        return [record for record in self.kept if isinstance(record, kind)]


@pytest.fixture(scope="module")
def tp2(rig: Rig, vllm: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """K = 0, 1, 3 with the probe in both ranks and the agent on both nodes."""
    folder = tmp_path_factory.mktemp("tp2")
    (worker,) = (node for node in vllm["node"] if node["name"] == rig.worker.name)
    (head,) = (node for node in vllm["node"] if node["name"] == rig.head.name)
    here = {key: value for key, value in head.items() if key not in ("host", "ssh")}
    changes = {
        **vllm,
        "node": [here, worker],
        "server_host": "127.0.0.1",  # what times the proposer must not be seen from outside
        "server_stop_timeout_s": 30,
        "timing": {"prompts": 2},
        "nodes": {"memory_slack_bytes": 64 << 30, "agent": {"period_s": 0.5}},
    }
    spec = write_spec(folder / "specs", name="tp2", depths=(0, 1, 3), **changes)
    command = [sys.executable, "-m", "backend", "sweep", str(spec), "--data", str(folder / "data")]
    done = subprocess.run(
        rig.head.inside(["env", "-C", str(ROOT), f"HOME={rig.head.folder / 'home'}", *command]),
        check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=850,
    )  # fmt: skip
    left = [pid for host in rig.hosts for word in OF_VLLM for pid in host.named(word)]
    return Finished(done.returncode, done.stdout + done.stderr, records(folder / "data"), left)


def test_the_sweep_is_whole_and_leaves_nothing(tp2: Finished) -> None:
    done = {run.k: run for run in tp2.of(Run) if run.status == "done"}
    assert [failure.reason for failure in tp2.of(Failure)] == [], tp2.output
    assert sorted(done) == [0, 1, 3], tp2.output
    assert {k: run.reported_k for k, run in done.items()} == {0: 0, 1: 1, 3: 3}
    assert tp2.left == []


def test_outputs_are_identical_for_every_depth(tp2: Finished) -> None:
    hashes: dict[str, set[str | None]] = {}
    for request in tp2.of(Request):
        if request.phase == "measure":
            hashes.setdefault(request.prompt_id, set()).add(request.output_hash)
    assert len(hashes) == 4
    assert all(len(outputs) == 1 for outputs in hashes.values())


def test_both_ranks_ran_on_their_nodes(tp2: Finished, rig: Rig) -> None:
    facts = {(fact.node, fact.name): fact.value or "" for fact in tp2.of(Environment)}
    for host in rig.hosts:
        assert facts[host.name, "rank"] == str(host.rank)
        assert f"--node-rank {host.rank}" in facts[host.name, "command"]
        assert f"VLLM::Worker_TP{host.rank}" in facts[host.name, "watched_processes"]


def test_the_probe_answered_from_both_ranks(tp2: Finished) -> None:
    rows = tp2.of(StageTimes)
    assert {(row.run_id[-4:-2], row.rank) for row in rows} >= {(f"k{k}", rank) for k in (1, 3) for rank in (0, 1)}


def test_the_agent_told_of_both_nodes(tp2: Finished, rig: Rig) -> None:
    """At home and over ssh. No power sensor is here, and that is said with the reason for each node: never a zero."""
    facts = {(fact.node, fact.name): fact.value for fact in tp2.of(Environment)}
    for host, reached in zip(rig.hosts, ("local", f"root@{rig.worker.management_address}"), strict=True):
        assert (facts[host.name, "node_host"], facts[host.name, "hostname"]) == (reached, host.name)
    samples = tp2.of(PowerSample)
    assert {sample.node for sample in samples} == {host.name for host in rig.hosts}
    assert all(sample.power_w is not None or sample.unsupported_reason for sample in samples)
    assert {canary.node for canary in tp2.of(Canary)} == {host.name for host in rig.hosts}


def test_power_off_in_mid_run_then_resume(vllm: dict[str, Any], rig: Rig, tmp_path: Path) -> None:
    """The node takes its log away, but not our mirror; nothing is launched beside what cannot be seen to have ended.

    Both agents are reached over ssh. What the lost one gave before is kept.
    """
    data = tmp_path / "data"
    changes = {
        **vllm,
        "workload": {"max_tokens": 100},
        "server_request_timeout_s": 25,  # so long the client waits for an answer that cannot come
        "server_release_timeout_s": 3,
        "nodes": {"memory_slack_bytes": 64 << 30, "agent": {"period_s": 0.2, "canary": False}},
    }
    spec = write_spec(tmp_path / "specs", depths=(1,), **changes)
    with once_measuring(data, lambda: rig.power_off(rig.worker), timeout_s=400):
        assert sweep(spec, data).exit_code == 3
    (failure,) = failures(data)
    assert failure.kind == "wont_stop"
    assert "rank 1 on spark-b cannot be seen to have ended" in failure.reason
    assert "== rank 1 on spark-b: out of reach" in failure.log_tail
    assert "spark-b was lost from sight" in findings(data, "agent-lost")[0].message
    assert {s.node for s in records(data) if isinstance(s, PowerSample)} == {"spark-a", "spark-b"}
    rig.power_on(rig.worker)
    assert sweep(spec, data, resume=True).exit_code == 0
    assert [(run.status, run.attempt) for run in runs(data)] == [("failed", 1), ("done", 2)]
    no_vllm_runs(rig)
