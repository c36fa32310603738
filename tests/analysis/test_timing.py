"""Direct times from stages: sums, books, overhead, lines in K, ranks; truths that are known by construction."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from backend.analysis.stages import PARTS, STAGES, part_of, stages_of
from backend.analysis.timing import depth_times, overhead_pct, rank_times, run_parts, stage_shares
from backend.analysis.timing_lines import timing_lines
from backend.analysis.timing_report import NOTHING, timing_report

STEPS = 40
NO_WAITS = pd.DataFrame({"k": [], "rank": [], "wait_s": []})


def truth(k: int) -> dict[tuple[str, int], float]:
    """Milliseconds a step by (stage, position): a drafter of 2 + 1.5 K ms, a target of 10 + 0.5 K, host 1 ms."""
    rows = {("verify_forward", -1): 9.0 + 0.5 * k, ("target_logits", -1): 1.0, ("schedule", -1): 0.25}
    rows |= {("runner_loop", -1): 0.75, ("target_sampling", -1): 0.125}
    if k:
        rows |= {("draft_prepare", -1): 2.0} | {("draft_forward", position): 1.5 for position in range(k)}
    return rows


def sweep(
    depths: tuple[int, ...] = (0, 1, 2, 4),
    blocks: int = 3,
    *,
    outside_ms: float = 0.1,
    overhead: float = 0.01,
    block_factor: float = 0.05,
    ranks: int = 1,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(timed requests, stage totals) of runs whose cycle is the truth plus `outside_ms` that no stage holds."""
    requests, stages = [], []
    for block in range(blocks):
        factor = 1 + block_factor * block
        for k in depths:
            run_id = f"s:b{block}k{k}"
            inside = sum(truth(k).values()) * factor
            for index in range(8):
                on = index % 4 in (0, 3)
                base = {"k": k, "block": block, "run_id": run_id, "cell_id": "s:c", "request_id": f"{run_id}:{index}"}
                cycle_ms = (inside + outside_ms) * (1 + (overhead if on else 0.0))
                requests.append(
                    {
                        **base,
                        "prompt_id": f"p{index // 4}",
                        "probe_on": on,
                        "decode_s": STEPS * cycle_ms / 1e3,
                        "steps": STEPS,
                    }
                )
                if on:
                    stages += [
                        {
                            **base,
                            "rank": rank,
                            "stage": stage,
                            "position": position,
                            "source": "perf_counter",
                            "total_s": STEPS * value * factor * (1 + overhead) / 1e3,
                            "ran_steps": STEPS,
                        }
                        for rank in range(ranks)
                        for (stage, position), value in truth(k).items()
                    ]
    return pd.DataFrame(requests), pd.DataFrame(stages)


def test_parts_are_sums_of_their_stages() -> None:
    requests, stages = sweep(block_factor=0.0, overhead=0.0)
    times = {row.k: row for row in depth_times(requests, stages)}
    assert list(times) == [0, 1, 2, 4]
    for k, row in times.items():
        assert row.n_runs == 3
        assert row.t_verify_ms.value == pytest.approx(10 + 0.5 * k)
        assert row.t_sample_ms.value == pytest.approx(0.125)
        assert row.t_host_ms.value == pytest.approx(1.0)
        assert row.cycle_ms.value == pytest.approx(sum(truth(k).values()) + 0.1)
    assert times[4].t_draft_ms.value == pytest.approx(2 + 1.5 * 4)
    assert (times[0].t_draft_ms.value, times[0].t_draft_ms.reason) == (None, "K=0 drafts nothing")


@pytest.mark.parametrize("outside_ms", [0.0, 0.3, 2.0])
def test_the_residual_is_what_no_stage_holds(outside_ms: float) -> None:
    """It does not close by construction: the cycle comes from another clock."""
    requests, stages = sweep(outside_ms=outside_ms, block_factor=0.0, overhead=0.0)
    for row in depth_times(requests, stages):
        inside = sum(truth(row.k).values())
        assert row.residual_pct.value == pytest.approx(100 * outside_ms / (inside + outside_ms), abs=1e-9)


def test_a_slower_block_widens_the_interval_and_not_the_residual() -> None:
    requests, stages = sweep(outside_ms=0.0)
    for row in depth_times(requests, stages):
        assert row.t_verify_ms.has_interval
        assert row.t_verify_ms.high > row.t_verify_ms.value > row.t_verify_ms.low
        assert row.residual_pct.value == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("overhead", [0.0, 0.01, 0.05])
def test_overhead_is_the_paired_ratio(overhead: float) -> None:
    requests, stages = sweep(overhead=overhead)
    for row in depth_times(requests, stages):
        assert row.overhead_pct.value == pytest.approx(100 * overhead, abs=1e-9)
        assert row.overhead_pct.n == 3 * 2  # runs x prompts


def test_a_linear_drift_cancels_in_on_off_off_on() -> None:
    requests, stages = sweep(overhead=0.0)
    drifting = requests.assign(decode_s=requests["decode_s"] * np.exp(0.02 * (np.arange(len(requests)) % 4)))
    ratios, compared = overhead_pct(drifting, stages)
    assert compared == "requests"
    assert ratios["overhead_pct"].abs().max() < 1e-9


def test_overhead_needs_both_arms() -> None:
    requests, stages = sweep()
    assert overhead_pct(requests[requests["probe_on"]], stages)[0].empty


def alternating(requests: pd.DataFrame, overhead: float, seed: int = 1) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A request more for each prompt and run, as noisy as whole requests are on a shared machine; its steps are not."""
    rng = np.random.default_rng(seed)
    added = requests[requests["probe_on"]].drop_duplicates(["run_id", "prompt_id"]).reset_index(drop=True)
    added = added.assign(probe_on=None, request_id=added["request_id"] + "alternate")
    added["decode_s"] *= np.exp(rng.normal(0, 0.1, len(added)))
    step_s = added["decode_s"] / added["steps"]
    kinds = []
    for name, ran, factor in (("step_unprobed", STEPS // 2, 1.0), ("step_probed", STEPS - STEPS // 2, 1 + overhead)):
        totals = {"stage": name, "position": -1, "rank": 0, "source": "perf_counter", "ran_steps": ran}
        kinds.append(
            added.assign(**totals, total_s=ran * step_s * factor, steps_s=[[each] * ran for each in step_s * factor])
        )
    return added, pd.concat(kinds).drop(columns="prompt_id")


@pytest.mark.parametrize("overhead", [0.0, 0.01, 0.05])
def test_overhead_from_steps_does_not_see_what_slows_whole_requests(overhead: float) -> None:
    requests, stages = sweep(overhead=overhead, block_factor=0.0)
    before = depth_times(requests, stages)
    added, totals = alternating(requests, overhead)
    noisy = requests.assign(
        decode_s=requests["decode_s"] * np.exp(np.random.default_rng(2).normal(0, 0.1, len(requests)))
    )
    for row in depth_times(pd.concat([noisy, added]), pd.concat([stages, totals])):
        assert row.overhead_pct.value == pytest.approx(100 * overhead, abs=1e-9)
        assert row.overhead_pct.n == 3 * 2
        assert "of steps" in row.overhead_pct.method
    # A second rank records the same steps: one timeline is compared, not both.
    two = pd.concat([stages, totals, stages.assign(rank=1), totals.assign(rank=1)])
    for row in depth_times(pd.concat([requests, added]), two):
        assert (row.overhead_pct.value, row.overhead_pct.n) == (pytest.approx(100 * overhead, abs=1e-9), 3 * 2)
    # The stages and the books are of the requests that were recorded whole.
    after = depth_times(pd.concat([requests, added]), pd.concat([stages, totals]))
    for old, new in zip(before, after, strict=True):
        assert (new.t_draft_ms, new.t_host_ms, new.residual_pct) == (old.t_draft_ms, old.t_host_ms, old.residual_pct)


def test_one_run_has_values_and_no_interval() -> None:
    requests, stages = sweep(blocks=1)
    row = depth_times(requests, stages)[-1]
    assert row.t_draft_ms.value is not None
    assert (row.t_draft_ms.has_interval, row.t_draft_ms.reason) == (False, "one run")


def test_a_request_with_unrecorded_steps_is_left_out() -> None:
    """A truncated tape would make its cycle look shorter than its stages say."""
    requests, stages = sweep(block_factor=0.0, overhead=0.0)
    cut = stages["request_id"] == "s:b0k4:0"
    halved = stages["total_s"].where(~cut, stages["total_s"] / 2)
    broken = stages.assign(total_s=halved, ran_steps=stages["ran_steps"].where(~cut, STEPS // 2))
    assert {row.k: row for row in depth_times(requests, broken)}[4].t_draft_ms.value == pytest.approx(8.0)


def test_lines_give_back_their_truth_and_compare_with_the_fit() -> None:
    """t_draft of the cycle fit: draft intercept 2 and the step of the rest (0 here); t_marginal: 1.5 + 0.5."""
    requests, stages = sweep(block_factor=0.0, overhead=0.0)
    lines = timing_lines(run_parts(requests, stages))
    assert lines is not None
    assert lines.k == (1, 2, 4)
    found = {name: getattr(lines, name).value for name in lines.to_dict() if name != "k"}
    assert found == pytest.approx(
        {
            "draft_intercept_ms": 2.0,
            "draft_slope_ms": 1.5,
            "verify_intercept_ms": 10.0,
            "verify_slope_ms": 0.5,
            "step_ms": 0.0,
            "fixed_ms": 2.0,
            "marginal_ms": 2.0,
        },
        abs=1e-9,
    )


def test_lines_without_no_speculation_have_no_step() -> None:
    requests, stages = sweep(depths=(1, 2, 4))
    lines = timing_lines(run_parts(requests, stages))
    assert lines is not None
    assert (lines.step_ms.value, lines.fixed_ms.value) == (None, None)
    assert "no K=0 run" in str(lines.step_ms.reason)
    assert lines.marginal_ms.value is not None


def test_one_drafted_depth_makes_no_line() -> None:
    requests, stages = sweep(depths=(0, 3))
    assert timing_lines(run_parts(requests, stages)) is None


def test_shares_are_of_the_cycle_and_large_gaps_are_named() -> None:
    requests, stages = sweep(block_factor=0.0, overhead=0.0, outside_ms=0.0)
    shares = {(row.k, row.stage, row.position): row for row in stage_shares(requests, stages)}
    assert sum(row.share_pct.value for (k, _, _), row in shares.items() if k == 4) == pytest.approx(100)
    assert shares[0, "runner_loop", -1].large_gap  # 0.75 of 11.1 ms
    assert not shares[4, "runner_loop", -1].large_gap
    assert not any(row.large_gap for row in shares.values() if row.part != "host")
    assert [position for k, stage, position in shares if (k, stage) == (4, "draft_forward")] == [0, 1, 2, 3]


def test_ranks_stay_apart() -> None:
    requests, stages = sweep(ranks=2, block_factor=0.0, overhead=0.0)
    stages["total_s"] = stages["total_s"].where(stages["rank"] == 0, stages["total_s"] * 3)
    waits = pd.DataFrame({"k": [4, 4], "rank": [0, 1], "wait_s": [0.002, 0.0]})
    assert depth_times(requests, stages)[-1].t_draft_ms.value == pytest.approx(8.0)  # rank 0 alone, no maximum
    ranks = {(row.k, row.rank): row for row in rank_times(requests, stages, waits)}
    assert ranks[4, 1].t_draft_ms.value == pytest.approx(24.0)
    assert [ranks[4, rank].wait_ms.value for rank in (0, 1)] == pytest.approx([2.0, 0.0])
    assert rank_times(requests, stages[stages["rank"] == 0], waits) == []


def test_nothing_timed_is_said() -> None:
    requests, stages = sweep()
    report = timing_report(requests.iloc[:0], stages.iloc[:0], NO_WAITS)
    assert report.to_dict()["by_k"] == []
    assert report.to_dict()["reason"] == NOTHING


def test_stages_that_no_version_knows_are_the_hosts() -> None:
    assert part_of("something_new") == "host"
    assert sorted(stage for part in PARTS for stage in stages_of(part)) == sorted(STAGES)
