"""A rank and its keeper, at home: the same program that is piped to other nodes, without any (tests/nodes has them)."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.engines import session
from backend.engines.leftover import end_on_nodes, places_path, recall, remember
from backend.engines.rank import WAITING, Place, Rank
from backend.errors import RunFailed
from backend.spec_nodes import Node
from tests.standin.specs import free_port

HOME = Node(name="home", interface="lo")
# A main process with a worker under one of vLLM's titles, which outlives it
MAIN = """
import subprocess, sys, time
subprocess.Popen(["VLLM::Worker_TP0", "-S", "-E", "-c", "import time; time.sleep(60)"], executable=sys.executable)
print("loading shard 1", flush=True)
time.sleep(60)
"""
PLENTY_BYTES = 1 << 40  # memory is not what these tests are about
Launch = Callable[..., Rank]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Launches ranks at home; all of them are gone after the test."""
    started: list[Rank] = []

    def start(program: str = MAIN, **more: object) -> Rank:
        place = Place(HOME, str(tmp_path), "server.json")
        argv = [sys.executable, "-S", "-E", "-c", program]
        rank = Rank(0, place, argv, {"WORD": "it's\n$HOME"}, tmp_path / "log", [free_port()], **more)  # type: ignore[arg-type]
        started.append(rank)
        rank.open()
        rank.launch("127.0.0.1")
        return rank

    yield start
    for rank in started:
        rank.stop(1, 5, PLENTY_BYTES)


def until(rank: Rank, condition: Callable[[], object]) -> None:
    """Look until something is so."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
        rank.look()


def leader(rank: Rank) -> int:
    lease = session.read_lease(Path(rank.place.folder) / rank.place.lease)
    assert lease is not None
    return lease.pid


def test_a_rank_is_watched_with_its_worker_and_ended_whole(launch: Launch) -> None:
    rank = launch()
    until(rank, lambda: rank.progress_bytes)
    (name,) = rank.watch()
    assert name.startswith("VLLM::Worker_TP0 ")
    session_number = leader(rank)
    assert len(session.members(session_number)) == 2
    assert rank.ended is None
    rank.stop(2, 5, PLENTY_BYTES)
    assert session.members(session_number) == []
    assert not rank.forced


@pytest.mark.parametrize(("which", "says"), [("main", "rank 0 on home"), ("worker", "VLLM::Worker_TP0")])
def test_either_process_that_ends_is_seen(launch: Launch, which: str, says: str) -> None:
    rank = launch()
    until(rank, lambda: rank.progress_bytes)
    rank.watch()
    main = leader(rank)
    (worker,) = (pid for pid in session.members(main) if pid != main)
    os.kill(main if which == "main" else worker, signal.SIGKILL)
    until(rank, lambda: rank.ended)
    assert says in (rank.ended or "")


def test_environment_and_files_arrive_as_given(launch: Launch, tmp_path: Path) -> None:
    program = "import os; print(repr(os.environ['WORD']), open('deep/er/file').read(), flush=True)"
    rank = launch(f"import os; os.chdir({str(tmp_path)!r}); {program}", files={"deep/er/file": "é text"})
    until(rank, lambda: rank.ended)
    assert (tmp_path / "log").read_text() == '"it\'s\\n$HOME" é text\n'
    assert rank.ended == "rank 0 on home exit status 0"


def test_what_cannot_be_started_is_one_clear_error(tmp_path: Path) -> None:
    port = free_port()
    rank = Rank(0, Place(HOME, str(tmp_path), "server.json"), ["no-such-vllm"], {}, tmp_path / "log", [port])
    rank.open()
    with pytest.raises(RunFailed, match="home: cannot start no-such-vllm: No such file or directory") as caught:
        rank.launch("127.0.0.1")
    assert caught.value.kind == "launch"
    with socket.create_server(("127.0.0.1", port)), pytest.raises(RunFailed, match=f"port {port} is in use before"):
        rank.launch("127.0.0.1")
    rank.stop(1, 1, PLENTY_BYTES)  # nothing was launched, so nothing is waited for
    assert not (tmp_path / "server.json").exists()


def test_memory_that_is_missing_after_the_stop(launch: Launch) -> None:
    rank = launch()
    rank._free_bytes += 1 << 40  # as if a terabyte more had been free before the launch
    with pytest.raises(RunFailed, match=r"home: after the stop memory is not back: [\d.]+ of [\d.]+ GiB"):
        rank.stop(1, 0.5, 4 << 30)
    rank._free_bytes = 0  # the fixture's stop finds all in order


def test_what_a_killed_sweep_left_is_found_by_its_list(launch: Launch, tmp_path: Path) -> None:
    rank, lease = launch(), tmp_path / "server.json"
    remember(lease, [rank.place])
    assert recall(lease) == [rank.place]
    session_number = leader(rank)
    rank.close()  # the sweep is gone, and its keeper with it
    assert end_on_nodes(lease, 1, 5) == [
        f"ended the server (process {session_number} on home) that a killed sweep left"
    ]  # fmt: skip
    assert session.members(session_number) == []
    assert not places_path(lease).exists()
    assert end_on_nodes(lease, 1, 5) == []


def test_a_node_that_cannot_be_looked_at_stops_the_next_start(tmp_path: Path) -> None:
    lease = tmp_path / "server.json"
    remember(lease, [Place(Node(name="spark-b", host="no-such-host.invalid"), "~", "server.json")])
    with pytest.raises(RunFailed, match="a killed sweep had a server on spark-b, which cannot be looked at") as caught:
        end_on_nodes(lease, 1, 1)
    assert "server-nodes.json" in caught.value.fix
    assert places_path(lease).exists()


@pytest.mark.parametrize("content", ["", "[{}]", '{"no": 1}', "[1]"])
def test_a_list_that_another_version_wrote_is_no_list(tmp_path: Path, content: str) -> None:
    places_path(tmp_path / "server.json").write_text(content)
    assert recall(tmp_path / "server.json") == []


def test_lines_that_only_wait_are_no_progress() -> None:
    """As vLLM 0.32 wrote them."""
    for line in (
        "INFO shm_broadcast.py:542] No available shared memory broadcast block found in 60 seconds.",
        "",
        "  ",
    ):
        assert WAITING.search(line)
    for line in ("Loading safetensors checkpoint shards: 20% Completed", "INFO:     Waiting for application startup."):
        assert not WAITING.search(line)
