"""Simulated sweeps: the same seed, the same sweep; what is planted comes out; through the same store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backend.derived import steps_of
from backend.records import Request, Run
from backend.simulate import simulate
from backend.store import queries
from backend.store.connection import open_snapshot
from backend.store.database import rebuild
from backend.truth import FastSweeps, Truth

SMALL = Truth(depths=(0, 1, 3), blocks=2, prompts=4, max_tokens=40, run_sd=0.01)


def test_same_seed_same_sweep() -> None:
    assert list(simulate(SMALL).records()) == list(simulate(SMALL).records())
    assert list(simulate(SMALL).records()) != list(simulate(replace(SMALL, seed=1)).records())


def test_marked_simulated_with_anchors_outside_the_arms() -> None:
    sweep = simulate(SMALL, "s")
    assert sweep.sweep.source == "simulated"
    runs = [r for r in sweep.records() if isinstance(r, Run)]
    assert [r.role for r in runs] == ["anchor", *["arm"] * 6, "anchor"]
    assert {(r.k, r.block) for r in runs if r.role == "arm"} == {(k, b) for k in (0, 1, 3) for b in (0, 1)}


def test_requests_add_up_and_greedy_tokens_do_not_depend_on_depth() -> None:
    requests = [r for r in simulate(SMALL).records() if isinstance(r, Request)]
    for r in requests:
        assert r.steps is not None
        assert r.accepted_tokens is not None
        assert r.output_tokens is not None
        k = (r.step_drafted or (0,))[0]
        assert 0 <= r.steps + r.accepted_tokens - (r.output_tokens - 1) <= k
    assert len({(r.prompt_id, r.token_ids) for r in requests}) == SMALL.prompts


def test_matched_starts_agree_exactly_without_a_depth_effect() -> None:
    def starts(truth: Truth) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]]:
        out: tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]] = ({}, {})
        for r in (r for r in simulate(truth).records() if isinstance(r, Request) and r.step_drafted):
            for s in steps_of(r):
                out[int(s.drafted_tokens > 1)][(r.prompt_id, str(s.prefix_hash))] = min(s.accepted_tokens, 1)
        return out

    shallow, deep = starts(SMALL)
    shared = shallow.keys() & deep.keys()
    assert shared
    assert all(shallow[x] == deep[x] for x in shared)
    shallow, deep = starts(replace(SMALL, depth_effect=0.3, prompts=20))
    assert sum(shallow[x] - deep[x] for x in shallow.keys() & deep.keys()) > 0


def test_sampling_does_not_copy_repeats() -> None:
    records = simulate(replace(SMALL, greedy=False)).records()
    requests = [r for r in records if isinstance(r, Request) and r.step_accepted]
    assert len({(r.prompt_id, len(r.step_drafted or ()), r.step_accepted) for r in requests}) > 2 * SMALL.prompts


def test_store_takes_it_in_like_a_measured_sweep(tmp_path: Path) -> None:
    simulate(SMALL, "planted").write(tmp_path)
    rebuild(tmp_path, bundled={})
    con = open_snapshot(tmp_path / "results.duckdb")
    rows = queries.run_cells(con, "planted")
    assert set(rows["source"]) == {"simulated"}
    arms = rows[rows["role"] == "arm"]
    assert arms["cycle_ms"].to_numpy() == pytest.approx(SMALL.cycle_ms(arms["k"].to_numpy()), rel=0.05)
    assert (rows["overshoot_tokens"] <= rows["k"] * rows["n_requests"]).all()
    assert rows["power_w"].notna().all()


def test_fast_sweeps_have_random_complete_blocks() -> None:
    fast = FastSweeps(Truth(blocks=3), 50)
    frame = fast.frame(7)
    assert (frame.groupby("block")["k"].apply(sorted).map(tuple) == tuple(range(8))).all()
    assert len({tuple(k) for k in fast.k}) == 50
    assert len(list(fast.frames())) == len(fast) == 50


def test_k_major_order_runs_a_depth_at_a_time() -> None:
    assert list(FastSweeps(Truth(k_major=True, blocks=2), 1).k[0]) == list(np.repeat(np.arange(8), 2))


@pytest.mark.parametrize(
    ("truth", "low", "high"),
    [
        (Truth(run_sd=0.03, blocks=10), 0.025, 0.035),
        (Truth(block_sd=0.05, blocks=10), 0.04, 0.06),
        (Truth(slow_share=0.5, slow_factor=2.0, blocks=10), 0.30, 0.36),
    ],
)
def test_planted_variance_comes_out(truth: Truth, low: float, high: float) -> None:
    fast = FastSweeps(truth, 200)
    k0 = fast.cycle_ms[fast.k == 0]
    assert low < k0.std() / k0.mean() < high


def test_drift_grows_over_the_order() -> None:
    fast = FastSweeps(Truth(drift=0.05), 1)
    ratio = fast.cycle_ms[0] / Truth().cycle_ms(fast.k[0])
    assert ratio[0] == pytest.approx(1.0)
    assert ratio[-1] == pytest.approx(1.05)
