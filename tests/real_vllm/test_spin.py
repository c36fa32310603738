"""A planted slow-down on real vLLM moves the stage that it was put into, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from backend.analysis.stages import PARTS, part_of
from backend.engines import VllmEngine
from backend.measure.client import Client
from backend.measure.workload import read_prompts

from .conftest import braking

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]
PORT, K, SPIN_MS = 18955, 3, 5.0
ROUNDS, TRIES = 8, 4
OTHERS_MS = 0.25
PLANTED = [("drafter", "draft", K), ("target", "verify", 1)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, str, list[str]]]:
    """A ready K=3 server with the braking probe: client, model name, prompts."""
    folder: Path = tmp_path_factory.mktemp("spin")
    spec = braking(PORT)
    engine = VllmEngine(spec).launch(K, folder / "log", folder / "lease")
    try:
        ready = engine.wait_ready()
        with Client(engine.base_url, 120) as client:
            yield client, ready.model_name, [prompt.text for prompt in read_prompts(spec.workload.prompts)]
    finally:
        engine.stop()


def moved_by(client: Client, model: str, prompts: list[str], where: str, calls: int) -> dict[str, float]:
    """By how much the brake moves each part, ms a step, and what its own watch says: medians over fours of steps.

    The brake is on, off, off, on in steps that follow each other, so what slows this machine for longer than
    four steps (some 100 ms) is in both arms.
    """
    changes: dict[str, list[float]] = {name: [] for name in (*PARTS, "watch")}
    for turn in range(ROUNDS):
        client.collective_rpc("spin", (where, SPIN_MS, calls))
        parts = parts_ms(client, model, prompts[turn % len(prompts)])
        (watch,) = client.collective_rpc("spin", (where, 0.0))
        slowed, seconds = np.array(watch["calls"]).reshape(-1, calls, 2).transpose(2, 0, 1)
        parts["watch"] = 1e3 * seconds.sum(axis=1)
        steps = {len(times) for times in parts.values()}
        assert len(steps) == 1, f"the brake and the probe saw different steps: {steps}"
        for name, times in parts.items():
            on, off, off_again, on_again = times[1 : 1 + (len(times) - 1) // 4 * 4].reshape(-1, 4).T
            changes[name] += list((on - off - off_again + on_again) / 2)
        assert list(slowed[1:5, 0]) == [1, 0, 0, 1]
    client.collective_rpc("release", (where,))
    return {name: float(np.median(seen)) for name, seen in changes.items()}


def parts_ms(client: Client, model: str, prompt: str) -> dict[str, np.ndarray]:
    """Each part's time in every step of one request that ran the drafter, the prefill first, ms."""
    client.collective_rpc("probe_begin", ("on",))
    client.ask("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 120, "temperature": 0})
    (end,) = client.collective_rpc("probe_end")
    (page,) = client.collective_rpc("probe_page", (0,))
    table = np.array(page["rows"], dtype=float)
    stages = [stage for stage, _ in end["columns"]]
    ran = np.isfinite(table[:, stages.index("verify_forward")])  # not the empty step at the end
    return {
        part: np.nansum(table[ran][:, [part_of(stage) == part for stage in stages]], axis=1) / 1e3 for part in PARTS
    }


@pytest.mark.parametrize(("where", "moved", "calls"), PLANTED)
def test_a_brake_moves_its_own_part_alone(
    server: tuple[Client, str, list[str]], where: str, moved: str, calls: int
) -> None:
    """The brake's own watch says by how much a step was slowed: 5 ms a call, and what the forward then takes longer."""
    client, model, prompts = server
    for _ in range(TRIES):  # a shared machine slows single seconds by as much as what is looked for
        moved_ms = moved_by(client, model, prompts, where, calls)
        others = {part: moved_ms[part] for part in PARTS if part != moved}
        if moved_ms[moved] == pytest.approx(moved_ms["watch"], rel=0.05) and max(map(abs, others.values())) < OTHERS_MS:
            break
    else:
        raise AssertionError(f"no try of {TRIES} moved {moved} alone; the last: {moved_ms}")
    assert SPIN_MS * calls <= 1.05 * moved_ms["watch"] <= 1.4 * SPIN_MS * calls, moved_ms
