"""Things that happen to hosts while a sweep measures on them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from backend.records import Finding
from tests.nodes.rig import Host, Rig
from tests.sweep.harness import records, wait_for

OF_VLLM = ("VLLM::", "vllm.entrypoints")
SLOWLY: dict[str, Any] = {"server_env": {"STANDIN_FAULT": "slow ms=20"}, "prompts": 12}  # measured for about 4 s


def nothing_is_left(hosts: Rig, data: Path) -> None:
    """No rank on any host, and no list of places for the next sweep to look at."""
    for host in hosts.hosts:
        assert host.named("scripted_vllm") == host.named("VLLM::") == []
    assert not list(data.glob("server*.json"))


def no_vllm_runs(hosts: Rig) -> None:
    """No process of real vLLM on any host."""
    assert [pid for host in hosts.hosts for word in OF_VLLM for pid in host.named(word)] == []


def measuring(data: Path, attempt: int = 1) -> bool:
    """Whether the first measured answer of some run's attempt is in its journal."""
    return any(
        getattr(record, "phase", "") == "measure" and getattr(record, "run_id", "").endswith(f"a{attempt}")
        for record in records(data)
    )


@contextlib.contextmanager
def once_measuring(data: Path, event: Callable[[], object], timeout_s: float = 30) -> Iterator[None]:
    """Inside, `event` is called as soon as something is measured. What it raises is raised at the end."""
    raised: list[Exception] = []

    def wait_and_act() -> None:
        try:
            wait_for(lambda: measuring(data), timeout_s)
            event()
        except Exception as error:  # noqa: BLE001  (it is raised where the test can see it)
            raised.append(error)

    actor = threading.Thread(target=wait_and_act)
    actor.start()
    try:
        yield
    finally:
        actor.join()
    if raised:
        raise raised[0]


def kill(host: Host, word: str) -> None:
    """kill -9 of the one process of a host whose command line begins with or holds a word."""
    (pid,) = host.named(word)
    os.kill(pid, signal.SIGKILL)


def codes(data: Path) -> list[str]:
    """Codes of all findings that the server or its nodes gave."""
    return [record.code for record in records(data) if isinstance(record, Finding)]
