"""The small protocol behind which every engine stands: launch one server for one K, know it is ready, end it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from backend.records import Record, Run


@dataclass(frozen=True, slots=True)
class Ready:
    """What a ready server said of itself. `reported_k` is its own word (0: no drafts), None if it has no /metrics."""

    model_name: str
    reported_k: int | None
    server_start_s: float
    engine_clock: bool  # completions carry per-request engine times


class Server(Protocol):
    """One launched server. `stop` returns only when its processes and its port are gone."""

    base_url: str
    command: tuple[str, ...]  # argv as launched; empty for an endpoint that already ran
    env: dict[str, str]  # what was set on top of the inherited environment

    def wait_ready(self) -> Ready:
        """Health, one completion, and the reported K is the asked K. Raises RunFailed with the last log lines."""
        ...

    def alive(self) -> bool:
        """Whether all of it still runs, as far as is known: its main process, or every rank on every node."""
        ...

    def trouble(self) -> str | None:
        """What is known to be wrong with it and no client can see: a rank that ended, a node out of reach."""
        ...

    def records(self, run: Run) -> list[Record]:
        """What it saw of itself over the run, after `stop`: facts of its nodes, findings about them."""
        ...

    def log_tail(self) -> str:
        """The last lines of its log: the evidence kept with a failure."""
        ...

    def stop(self) -> float:
        """End it, verify that port and processes are gone; seconds taken. Raises RunFailed(kind='wont_stop')."""
        ...


class Engine(Protocol):
    """Starts servers: `vllm` here, `nnodes` and `ray` over nodes, `command` (any launch script or running endpoint)."""

    def command(self, k: int) -> tuple[tuple[str, ...], dict[str, str]]:
        """argv and added environment for depth k, without launching (what --dry-run prints)."""
        ...

    def launch(self, k: int, log_path: Path, lease_path: Path) -> Server:
        """Start a server for depth k. `lease_path` records the process: a killed sweep's server is found again."""
        ...
