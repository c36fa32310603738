"""Launch, readiness, watch, stop and release over two real hosts, with scripted ranks: no vLLM, so on every commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.nodes.rig import Rig
from tests.sweep.harness import failures, runs, sweep

Write = Callable[..., Path]


def test_a_sweep_over_two_hosts(scripted_spec: Write, hosts: Rig, tmp_path: Path) -> None:
    data = tmp_path / "data"
    outcome = sweep(scripted_spec(), data)
    assert [failure.reason for failure in failures(data)] == []
    assert outcome.exit_code == 0
    assert [(run.k, run.reported_k, run.status) for run in sorted(runs(data), key=lambda run: run.k)] == [
        (0, 0, "done"),
        (1, 1, "done"),
        (3, 3, "done"),
    ]
