"""Agents at home for tests: with a played NVML, and with a /sys of the test's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from backend.measure.nodes import NodeAgent
from backend.spec_nodes import Agent, Node

HERE = Path(__file__).parent
REPLAYS = HERE.parent / "golden" / "nvml"


def play(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Agents started from now on find the played NVML of this name, and not a machine's own."""
    monkeypatch.setenv("PYTHONPATH", str(HERE / "nvml_replay"))
    monkeypatch.setenv("NVML_REPLAY", str(REPLAYS / f"{name}.json"))


@contextmanager
def agent(
    on_sample: Callable[[NodeAgent, dict[str, Any]], None] | None = None, deadman_s: float = 60, **node: Any
) -> Iterator[NodeAgent]:
    """An agent on this machine."""
    started = NodeAgent(Node(name="here", **node), Agent(deadman_s=deadman_s), on_sample)
    try:
        yield started
    finally:
        started.close()


def eventually(condition: Callable[[], Any], timeout_s: float = 20) -> Any:
    """The condition's value once it is true. Raises TimeoutError."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError("waited in vain")
        time.sleep(0.02)
    return value
