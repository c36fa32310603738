"""Faults that users of other tools report (facts/peers.md): the same inputs, the right values."""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd
import pytest

from backend.analysis.acceptance import acceptance, from_counts, from_histogram
from backend.analysis.checks import exclusions, run_checks
from backend.analysis.checks_requests import position_findings
from backend.analysis.counted import counted_acceptance
from backend.derived import steps_of
from backend.records import Request

CELL, RUN = "s:1xtext:w", "s:r000b0k5a1"


def request(k: int, steps: int, accepted: tuple[int, ...], output_tokens: int, **given: object) -> Request:
    """A MEASURE request whose every step drafted k tokens."""
    values: dict[str, object] = {
        "request_id": f"{RUN}:x:measure:0",
        "run_id": RUN,
        "cell_id": CELL,
        "phase": "measure",
        "request_index": 0,
        "prompt_id": "p0",
        "category": None,
        "probe_on": None,
        "started_unix_s": 0.0,
        "client_total_s": 1.105,
        "clock": "engine",
        "queue_s": 0.0,
        "prefill_s": 0.1,
        "ttft_s": 0.1,
        "decode_s": 1.0,
        "prompt_tokens": 10,
        "output_tokens": output_tokens,
        "steps": steps,
        "drafted_steps": steps if k else 0,
        "drafted_tokens": k * steps if k else 0,
        "accepted_tokens": sum(accepted),
        "step_drafted": (k,) * steps if k else None,
        "step_accepted": accepted if k else None,
        "token_ids": None,
        "output_hash": None,
        "finish_reason": "stop",
        "error": None,
        **given,
    }
    return Request(**values)  # type: ignore[arg-type]


def frames(k: int, *requests: Request) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """run_cell, request, step."""
    run_cell = pd.DataFrame(
        [
            {
                "sweep": "s",
                "run_id": RUN,
                "cell_id": CELL,
                "k": k,
                "block": 0,
                "order_index": 0,
                "role": "arm",
                "status": "done",
                "valid": True,
                "concurrency": 1,
                "decode_tok_s": 100.0,
            }
        ]
    )
    steps = pd.DataFrame([asdict(s) for r in requests for s in steps_of(r)])
    return run_cell, pd.DataFrame([asdict(r) for r in requests]), steps


def counter(name: str, after: float, *, before: float | None = 0.0, labels: str = 'engine="0"') -> dict[str, object]:
    return {
        "run_id": RUN,
        "cell_id": CELL,
        "phase": "measure",
        "span": "phase",
        "name": name,
        "labels": labels,
        "before": before,
        "after": after,
        "before_unix_s": 0.0,
        "after_unix_s": 1.0,
    }


def codes(run_cell: pd.DataFrame, **given: pd.DataFrame) -> dict[str, object]:
    return {f.code: f for f in run_checks(run_cell, **given)}  # type: ignore[arg-type]


def test_tokens_after_eos_are_accepted_and_not_emitted() -> None:
    # a step accepts [d1, d2, EOS, d4, d5] and a bonus token: 6 tokens in the engine, 3 given out
    run_cell, requests, steps = frames(5, request(5, 1, (5,), 1 + 3))
    (a,) = acceptance(requests, steps, run_cell)
    assert (a.acceptance_length.value, a.tokens_per_step.value) == (6.0, 3.0)
    assert (a.overshoot_tokens, a.overshoot_bound_tokens) == (3.0, 5)
    assert "token-accounting" not in codes(run_cell, requests=requests)


def test_a_rate_is_never_over_100_percent_and_never_clamped() -> None:
    a = from_counts(2, 50, [40, 20])
    assert a.acceptance.value == pytest.approx(0.60)
    wrong = from_counts(2, 50, [80, 40])
    assert wrong.acceptance.value == pytest.approx(1.20)
    assert "accepted-above-drafted" in wrong.flags
    run_cell, requests, _ = frames(2, request(2, 50, (2,) * 50, 151, accepted_tokens=120))
    found = codes(run_cell, requests=requests)
    assert found["impossible-counts"].figure == pytest.approx(120.0)  # type: ignore[attr-defined]
    assert RUN in exclusions(found.values())  # type: ignore[arg-type]


def test_the_bonus_token_is_kept() -> None:
    a = from_histogram(5, [11, 14, 11, 4, 0, 3])
    assert a.acceptance_length.value == pytest.approx(2.4651, abs=5e-5)
    assert a.acceptance.value == pytest.approx(0.2930, abs=5e-5)
    assert [round(p.survival.value or 0, 3) for p in a.positions] == [0.744, 0.419, 0.163, 0.070, 0.070]
    assert a.tokens_per_step.value == pytest.approx(106 / 43)


def test_chunks_are_not_tokens() -> None:
    # 400 tokens after the first in 100 steps in 1 s: 400 tok/s, the cycle is 10 ms
    run_cell, requests, steps = frames(3, request(3, 100, (3,) * 100, 401))
    (a,) = acceptance(requests, steps, run_cell)
    assert a.tokens_per_step.value == 4.0
    chunked = frames(3, request(3, 100, (3,) * 100, 101))
    assert "token-accounting" not in codes(run_cell, requests=requests)
    found = codes(chunked[0], requests=chunked[1])["token-accounting"]
    assert found.severity == "error"  # type: ignore[attr-defined]
    assert found.figure == 300.0  # type: ignore[attr-defined]


def test_prefix_hits_take_the_arm_out() -> None:
    run_cell, requests, _ = frames(5, request(5, 10, (0,) * 10, 11))
    counters = pd.DataFrame(
        [counter("vllm:prefix_cache_queries_total", 16000), counter("vllm:prefix_cache_hits_total", 15000)]
    )
    found = codes(run_cell, requests=requests, counters=counters)["prefix-cache-hits"]
    assert (found.figure, found.severity) == (93.75, "error")  # type: ignore[attr-defined]
    assert "contaminated" in exclusions([found])[RUN]  # type: ignore[list-item]


def test_k0_without_counters_has_length_one_and_no_rate() -> None:
    run_cell, requests, steps = frames(
        0, request(0, 10, (), 11, drafted_tokens=None, accepted_tokens=None, drafted_steps=None)
    )
    (a,) = acceptance(requests, steps, run_cell)
    assert (a.acceptance_length.value, a.acceptance.value, a.positions) == (1.0, None, ())
    assert a.tokens_per_step.value == 1.0
    assert a.acceptance.reason == "K=0 drafts nothing"
    assert run_checks(run_cell, requests=requests)[0].code == "too-few-runs"


def test_undrafted_steps_part_length_from_tokens_per_step() -> None:
    # 100 steps of which 40 drafted; acceptance length counts the drafted ones only (the n-gram case)
    r = request(7, 100, (3,) * 40, 1 + 100 + 120, drafted_steps=40, drafted_tokens=280, step_drafted=(7,) * 40)
    run_cell, requests, steps = frames(7, r)
    (a,) = acceptance(requests, steps, run_cell)
    assert (a.acceptance_length.value, a.tokens_per_step.value) == (4.0, 2.2)
    assert a.overshoot_tokens == 0


def test_trimmed_drafts_keep_both_denominators() -> None:
    r = request(3, 4, (1, 3, 0, 1), 10, drafted_tokens=8, step_drafted=(3, 3, 1, 1))
    run_cell, requests, steps = frames(3, r)
    (a,) = acceptance(requests, steps, run_cell)
    position = a.positions[1]
    assert (position.survival.value, position.per_drafted.value) == (0.25, 0.5)
    assert a.acceptance.value == pytest.approx(5 / 8)


def test_engines_are_added_once() -> None:
    run_cell, _, _ = frames(2)
    names = {
        "vllm:spec_decode_num_drafts_total": 50,
        "vllm:spec_decode_num_draft_tokens_total": 100,
        "vllm:spec_decode_num_accepted_tokens_total": 60,
    }
    rows = [counter(n, v / 2, labels=f'engine="{e}"') for n, v in names.items() for e in (0, 1)]
    rows += [
        counter("vllm:spec_decode_num_accepted_tokens_per_pos_total", v / 2, labels=f'engine="{e}",position="{i}"')
        for i, v in ((0, 40), (1, 20))
        for e in (0, 1)
    ]
    (a,) = counted_acceptance(run_cell, pd.DataFrame(rows))
    assert (a.acceptance.value, a.acceptance_length.value) == (0.6, 2.2)
    assert [p.survival.value for p in a.positions] == [0.8, 0.4]


def test_a_reset_counter_is_a_finding_and_no_figure() -> None:
    run_cell, requests, _ = frames(5, request(5, 10, (0,) * 10, 11))
    counters = pd.DataFrame([counter("vllm:generation_tokens_total", 11, before=5000)])
    found = run_checks(run_cell, requests=requests, counters=counters)
    reset = next(f for f in found if f.code == "counter-reset")
    assert reset.figure == 4989.0
    assert RUN in exclusions([reset])
    assert counted_acceptance(run_cell, counters) == []


def test_published_rates_that_do_not_sum() -> None:
    run_cell, _, _ = frames(3)
    positions = pd.DataFrame(
        [{"cell_id": CELL, "k": 3, "position": i, "survival": a} for i, a in enumerate((0.7, 0.5, 0.3))]
    )
    found = position_findings(run_cell.assign(acceptance_length=2.259), positions, "s")
    assert [f.code for f in found] == ["rates-do-not-sum"]
    assert found[0].figure == pytest.approx(-0.241)
    assert position_findings(run_cell.assign(acceptance_length=2.50), positions, "s") == []


def test_conditional_rates_published_as_survival_are_seen() -> None:
    run_cell, _, _ = frames(3)
    positions = pd.DataFrame(
        [{"cell_id": CELL, "k": 3, "position": i, "survival": a} for i, a in enumerate((0.644, 0.595, 0.72))]
    )
    assert [f.code for f in position_findings(run_cell, positions, "s")] == ["survival-rises"]
    over = positions.assign(survival=[1.2, 0.5, 0.1])
    assert [f.code for f in position_findings(run_cell, over, "s")] == ["impossible-rate"]
