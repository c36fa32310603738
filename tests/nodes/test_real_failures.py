"""Real vLLM over the two hosts, and everything that it does there when something fails.

What vLLM 0.32 does in each case was measured before (a headless rank never ends by itself; /health stays 200 without a
rank that idles). Here it is asked whether we see it, end it on both hosts, and say so. Run by `make test-nodes`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from backend.engines import engine_for
from backend.engines.nodes_server import NodesServer
from backend.records import Finding
from backend.spec_file import load
from tests.nodes.conftest import PAIR
from tests.nodes.events import no_vllm_runs
from tests.nodes.rig import Host, Rig
from tests.standin.specs import write_spec
from tests.sweep.harness import wait_for

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(900)]
HANG_S = 20  # VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS: how long a step may wait for another rank; the first one compiles


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
    body: dict[str, Any] = {"prompt": "import os\n", "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    body["model"] = str(PAIR / "target")
    return httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=90, trust_env=False)


def found(server: NodesServer) -> list[str]:
    """Codes of what the server found out about itself and its nodes."""
    run: Any = SimpleNamespace(sweep="nodes", run_id="nodes:r000b0k1a1")
    return [record.code for record in server.records(run) if isinstance(record, Finding)]


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
    try:
        os.kill(rig.head.leader(), signal.SIGTERM)
        wait_for(lambda: not pair.alive())
        assert "on spark-a" in (pair.trouble() or "")  # its engine core goes first, and what went first is told
        time.sleep(3)
        assert rig.worker.named("--headless")  # it never ends by itself
    finally:
        pair.stop()
    no_vllm_runs(rig)


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
    no_vllm_runs(rig)


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
    no_vllm_runs(rig)
