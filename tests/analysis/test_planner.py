"""Planning: the study's 10 / 38 / 89, sizes that keep what they promise by simulation, and what cannot be planned."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from backend.analysis.estimate import student_t_log_mean
from backend.analysis.planner import Plan, Target, parse_target, plan_cell, plan_words, smallest
from backend.analysis.variance import Scatter, components, of_cycles, pure_error
from backend.errors import Refused
from backend.truth import FastSweeps, Truth
from tests.analysis.frames import published_run_cell

TRUTH = Truth(run_sd_ms=3.0, block_sd=0.03, blocks=10)


def asked(frame: pd.DataFrame, text: str, **more: object) -> Plan:
    return plan_cell(frame, parse_target(text), **more)  # type: ignore[arg-type]


def test_the_study_s_arithmetic() -> None:
    found = asked(published_run_cell(), "t_draft=3ms", scatter_ms=11.006)
    assert found.depths == tuple(range(8))
    assert [need.blocks for need in found.needs] == [10, 38, 89]
    assert "one standard error" in found.needs[0].meaning
    assert found.scatter.reason == "given, taken as exact"


def test_single_figures_cannot_be_planned_from() -> None:
    found = asked(published_run_cell(), "loss=1%")
    assert found.needs == ()
    assert "no replicates" in (found.reason or "")
    assert plan_words(found)[0].startswith("No plan for loss")
    no_zero = published_run_cell().query("k > 0")
    assert "K=0" in (asked(no_zero, "t_draft=3ms", scatter_ms=11.0).reason or "")


def test_pure_error_holds_no_lack_of_fit_and_no_block_where_blocks_cancel() -> None:
    curved = FastSweeps(replace(TRUTH, t_convex_ms=4.0, block_sd=0.0, block_sd_ms=20.0, blocks=40), 1).frame(0)
    scatter = of_cycles(curved, unit_ms=True)
    assert (scatter.df, scatter.sd) == (320 - 8 - 39, pytest.approx(3.0, rel=0.1))
    k, y = curved["k"].to_numpy(float), curved["cycle_ms"].to_numpy(float)
    with_blocks = pure_error(k, y, curved["block"].to_numpy(float), blocks_cancel=False)
    assert with_blocks.sd == pytest.approx(math.hypot(3.0, 20.0), rel=0.3)


def test_as_many_blocks_as_planned_give_the_half_width_asked_for() -> None:
    target = asked(FastSweeps(replace(TRUTH, blocks=20), 1).frame(0), "tok_s=2%")
    blocks = target.needs[1].blocks
    assert blocks is not None
    many = FastSweeps(replace(TRUTH, blocks=blocks, seed=7), 40)
    halves = []
    for frame in many.frames():
        for k in range(8):
            rate = student_t_log_mean(frame.loc[frame["k"] == k, "decode_tok_s"], "tok/s")
            halves.append(50 * math.log(rate.high / rate.low))
    assert np.median(halves) == pytest.approx(100 * math.log(1.02), rel=0.15)


@pytest.mark.parametrize(("asks", "fewer"), [("t_draft=6ms", "t_draft=3ms"), ("tok_s=4%", "tok_s=2%")])
def test_half_the_width_takes_about_four_times_the_blocks(asks: str, fewer: str) -> None:
    frame = FastSweeps(replace(TRUTH, run_sd_ms=9.0), 1).frame(0)
    wide, narrow = (asked(frame, text).needs[-1].blocks for text in (asks, fewer))
    assert wide is not None
    assert narrow is not None
    assert 3.0 < narrow / wide < 4.5
    for need in asked(frame, asks).needs:
        assert (need.low or 0) <= (need.blocks or 0) <= (need.high or 10**9)


def request_rows(run_sd: float, request_sd: float, *, runs: int, prompts: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """run_cell and request of two depths with a known scatter between runs and of single requests (on the log)."""
    rng = np.random.default_rng(4)
    cells, asks = [], []
    for k in (0, 1):
        effect = rng.normal(0, 0.5, prompts)
        for run in range(runs):
            logs = 3.0 + run_sd * rng.standard_normal() + effect + request_sd * rng.standard_normal(prompts)
            run_id = f"s:r{k}{run}"
            cells.append({"run_id": run_id, "k": k, "block": run, "cycle_ms": 1000 * math.exp(float(logs.mean()))})
            asks += [{"run_id": run_id, "prompt_id": f"p{j}", "decode_s": math.exp(v)} for j, v in enumerate(logs)]
    fixed = {"cell_id": "s:c", "role": "arm", "status": "done", "valid": True, "concurrency": 1}
    more = {"cell_id": "s:c", "phase": "measure", "error": None, "steps": 1, "output_tokens": 9, "client_total_s": 2.0}
    return pd.DataFrame(cells).assign(**fixed), pd.DataFrame(asks).assign(**more)


def test_variance_components_tell_blocks_from_requests() -> None:
    rows, requests = request_rows(0.05, 0.10, runs=60, prompts=25)
    cycle = np.log(rows["cycle_ms"].to_numpy())
    scatter = pure_error(rows["k"].to_numpy(float), cycle, None, blocks_cancel=False)
    found = components(rows, requests, scatter, overhead_s=60.0, request_s=2.0)
    assert math.sqrt(found.request or 0) == pytest.approx(0.10, rel=0.05)
    assert math.sqrt(found.between or 0) == pytest.approx(0.05, rel=0.25)
    assert found.buy == "blocks"  # sqrt(.01 / .0025 x 30) is about 11, below the 25 at hand
    noisy, asks = request_rows(0.001, 0.30, runs=60, prompts=5)
    scatter = pure_error(noisy["k"].to_numpy(float), np.log(noisy["cycle_ms"].to_numpy()), None, blocks_cancel=False)
    assert components(noisy, asks, scatter, overhead_s=60.0, request_s=2.0).buy == "requests"


def test_what_components_need() -> None:
    rows, requests = request_rows(0.05, 0.1, runs=4, prompts=3)
    scatter = of_cycles(rows, unit_ms=False)
    assert components(rows, requests.iloc[:0], scatter, overhead_s=1.0, request_s=1.0).reason == (
        "no single requests are known"
    )
    once = requests.assign(prompt_id=[str(i) for i in range(len(requests))])
    assert "asked once" in (components(rows, once, scatter, overhead_s=1.0, request_s=1.0).reason or "")
    assert components(rows, requests, Scatter(None, 0, "x"), overhead_s=1.0, request_s=1.0).reason == "x"
    known = components(rows, requests, scatter, overhead_s=None, request_s=None)
    assert (known.buy, known.between is None) == (None, False)


def test_hours_come_from_the_sweep_s_own_runs() -> None:
    frame = FastSweeps(replace(TRUTH, blocks=4), 1).frame(0)
    runs = pd.DataFrame(
        {"run_id": frame["run_id"], "k": frame["k"], "started_unix_s": 0.0, "ended_unix_s": 100.0 + frame["k"]}
    )
    found = asked(frame, "tok_s=1%", runs=runs)
    assert found.block_hours.value == pytest.approx((800 + 28) / 3600)
    need = found.needs[1]
    assert need.blocks is not None
    assert need.hours_more == pytest.approx((need.blocks - 4) * (828 / 3600))
    assert asked(frame, "tok_s=1%").block_hours.value is None


@pytest.mark.parametrize(
    "text", ["t_draft=3%", "loss=1ms", "tok_s=0%", "tok_s=150%", "speed=1%", "loss", "loss=1.1.1%"]
)
def test_a_target_that_is_none_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(Refused, match=r"no target.*t_draft=3ms"):
        parse_target(text)


def test_smallest() -> None:
    assert [smallest(lambda n, w=wanted: n >= w) for wanted in (1, 2, 3, 1000)] == [1, 2, 3, 1000]
    assert smallest(lambda n: False) is None
    assert parse_target(" t_draft = 3 ms ") == Target("t_draft", 3.0)
