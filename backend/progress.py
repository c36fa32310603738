"""Progress of a sweep: one small JSON file, replaced by rename, so that a reader never sees half of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

PROGRESS_FILE, QUEUE = "progress.json", "queue"
TICK_S = 0.2  # request ticks are written at most this often


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a sweep stands. `eta_s` is from the runs of this very sweep, None before the first is done."""

    state: str  # running | idle | done | failed | interrupted
    sweep: str
    runs_total: int
    run_id: str | None = None
    k: int | None = None
    block: int | None = None
    phase: str | None = None  # launch | warmup | measure | stop | store
    runs_done: int = 0
    runs_failed: int = 0
    requests_done: int = 0
    requests_total: int = 0
    started_unix_s: float = field(default_factory=time.time)
    updated_unix_s: float = field(default_factory=time.time)
    eta_s: float | None = None
    message: str = ""
    queue: tuple[str, ...] = ()  # specs that wait for the worker, in order


def waiting(data_dir: Path) -> tuple[str, ...]:
    """Names of the specs in the queue of a data directory, in the order in which they are taken."""
    return tuple(sorted(path.stem for path in (data_dir / QUEUE).glob("*.toml")))


class ProgressFile:
    """Keeps the latest Progress on disk and tells a listener (the terminal) of every change."""

    def __init__(self, data_dir: Path, listener: Callable[[Progress], None], now: Progress) -> None:
        self._data_dir, self._listener, self.now = data_dir, listener, now
        self._written_at = 0.0

    def update(self, **changes: Any) -> None:
        """Change fields and tell. Request ticks are written at most five times a second."""
        only_a_tick = set(changes) == {"requests_done"}
        if not only_a_tick:
            changes["queue"] = waiting(self._data_dir)
        self.now = replace(self.now, updated_unix_s=time.time(), **changes)
        with suppress(OSError):  # a terminal that is gone must not end a sweep, and least of all its clean-up
            self._listener(self.now)
        if only_a_tick and time.monotonic() - self._written_at < TICK_S:
            return
        self._written_at = time.monotonic()
        path = self._data_dir / PROGRESS_FILE
        temporary = path.with_name(path.name + ".tmp")
        with suppress(OSError):  # a convenience, not the truth: of a full disk the journal tells, and ends the sweep
            temporary.write_text(json.dumps(asdict(self.now)))
            temporary.replace(path)
