"""The order of a sweep, what it leaves, and that storing never overlaps a measurement."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backend import publish
from backend import sweep as sweep_module
from backend.progress import Progress
from backend.schedule import plan
from backend.spec_file import load
from tests.sweep.harness import runs, sweep

Write = Callable[..., Path]


def test_runs_are_made_in_the_planned_order(standin_spec: Write, tmp_path: Path) -> None:
    data, spec = tmp_path / "data", standin_spec(blocks=2, anchors=True)
    outcome = sweep(spec, data)
    made, planned = runs(data), plan(load(spec))
    assert (outcome.done, outcome.exit_code, outcome.notes) == (len(planned), 0, ())
    assert [(r.order_index, r.block, r.k, r.role) for r in made] == [
        (p.order_index, p.block, p.k, p.role) for p in planned
    ]
    started = [run.started_unix_s or 0 for run in made]
    assert started == sorted(started)
    assert all(run.reported_k == run.k and (run.server_start_s or 0) > 0 for run in made)
    assert json.loads((data / "progress.json").read_text())["state"] == "done"
    assert not (data / "server.json").exists()


def test_storing_overlaps_starts_and_never_a_measurement(
    standin_spec: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow store of one second: the next server starts meanwhile, and waits with its warm-up until it is over."""
    stored: list[tuple[float, float, str]] = []
    measured: list[tuple[float, float]] = []
    launched: list[float] = []
    real = publish.publish

    def slow(*arguments: object) -> list[str]:
        began = time.monotonic()
        named = real(*arguments)  # type: ignore[arg-type]
        time.sleep(1.0)
        stored.append((began, time.monotonic(), threading.current_thread().name))
        return named

    def listen(now: Progress) -> None:
        if now.phase in ("warmup", "measure"):
            if not measured or measured[-1][1] < (launched or [0.0])[-1]:
                measured.append((time.monotonic(), time.monotonic()))
            measured[-1] = (measured[-1][0], time.monotonic())
        elif now.phase == "launch":
            launched.append(time.monotonic())

    monkeypatch.setattr(sweep_module.publish, "publish", slow)
    sweep(standin_spec(), tmp_path / "data", listener=listen)
    assert len(measured) == 3
    assert len(stored) == 3
    for began, ended, thread in stored:
        assert thread.startswith("store")
        assert all(ended < first or began > last for first, last in measured)
    assert any(began < moment < ended for moment in launched for began, ended, _ in stored)
