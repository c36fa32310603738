"""Progress of a sweep: one small JSON file, replaced by rename, so that a reader never sees half of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any


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
    queue: tuple[str, ...] = ()


class ProgressFile:
    """Keeps the latest Progress on disk and tells a listener (the terminal) of every change."""

    def __init__(self, path: Path, listener: Callable[[Progress], None], now: Progress) -> None:
        self._path, self._listener, self.now = path, listener, now
        self._written_at = 0.0

    def update(self, **changes: Any) -> None:
        """Change fields and tell. Request ticks are written at most five times a second."""
        self.now = replace(self.now, updated_unix_s=time.time(), **changes)
        self._listener(self.now)
        only_a_tick = set(changes) <= {"requests_done"}
        if only_a_tick and time.monotonic() - self._written_at < 0.2:
            return
        self._written_at = time.monotonic()
        temporary = self._path.with_name(self._path.name + ".tmp")
        temporary.write_text(json.dumps(asdict(self.now)))
        os.replace(temporary, self._path)
