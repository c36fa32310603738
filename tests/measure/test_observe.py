"""From answers to Request records, on a real stream and on the faults that users of other tools report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
import respx

from backend.derived import steps_of
from backend.errors import RunFailed
from backend.measure.client import Answer, Client
from backend.measure.counters import ACCEPTED, DRAFTED, DRAFTS, ITERATIONS, Page
from backend.measure.observe import Slot, observe, unanswered
from backend.measure.workload import Prompt
from backend.records import token_hash

STREAM = (Path(__file__).parents[1] / "golden" / "completion_stream_k3.txt").read_text()
SLOT = Slot("s:r000b0k3a1", "s:c1-text-default", "measure", 0)
PROMPT = Prompt("p", "code", "import")
URL = "http://127.0.0.1:1"


def answer(tokens: int, accepted: list[int] | None, k: int, **more: Any) -> Answer:
    """An answer with per-step arrays, as vLLM's detailed metrics give them."""
    metrics: dict[str, Any] = {"time_to_first_token_ms": 10.0, "generation_time_ms": 100.0, "queue_time_ms": 1.0}
    if accepted is not None:
        metrics["speculative_decoding"] = {
            "num_spec_steps": len(accepted),
            "num_draft_tokens": k * len(accepted),
            "num_accepted_draft_tokens": sum(accepted),
            "per_step_accepted": accepted,
            "per_step_drafted": [k] * len(accepted),
        }
    values: dict[str, Any] = {
        "started_unix_s": 1.0,
        "client_total_s": 0.115,
        "usage": {"prompt_tokens": 3, "completion_tokens": tokens},
        "metrics": metrics,
        "token_ids": tuple(range(tokens)),
        "text": "x",
        "finish_reason": "length",
    }
    return Answer(**{**values, **more})


def test_engine_clock_and_units() -> None:
    record = observe(SLOT, PROMPT, answer(5, [3, 0], 3), 3, always_drafts=True)
    assert (record.clock, record.queue_s, record.prefill_s, record.decode_s) == ("engine", 0.001, 0.010, 0.1)
    assert record.ttft_s == pytest.approx(0.011)


def test_steps_after_eos_are_not_tokens() -> None:
    """vllm#56101: a step accepts [d1, d2, EOS, d4, d5]: 5 accepted, 3 emitted. Throughput must use the 3."""
    record = observe(SLOT, PROMPT, answer(1 + 3, [5], 5, finish_reason="stop"), 5, always_drafts=True)
    assert (record.accepted_tokens, record.steps, record.output_tokens) == (5, 1, 4)


def test_k0_drafted_nothing_and_that_is_a_measured_zero() -> None:
    record = observe(SLOT, PROMPT, answer(128, None, 0), 0, always_drafts=True)
    assert (record.steps, record.drafted_steps, record.drafted_tokens, record.accepted_tokens) == (127, 0, 0, 0)
    assert list(steps_of(record)) == []


def test_undrafted_steps_are_never_guessed() -> None:
    """n-gram without the step counter: 20 tokens cannot come from 2 drafted steps alone, so steps is unknown."""
    assert observe(SLOT, PROMPT, answer(20, [3, 3], 3), 3, always_drafts=True).steps is None
    assert observe(SLOT, PROMPT, answer(8, [3, 3], 3), 3, always_drafts=False).steps is None


def pages(**gains: float) -> tuple[Page, Page]:
    names = {"drafts": DRAFTS, "drafted": DRAFTED, "accepted": ACCEPTED, "iterations": ITERATIONS}
    return (
        Page({(names[name], ""): 100.0 for name in gains}, 1.0, 1.0),
        Page({(names[name], ""): 100.0 + gain for name, gain in gains.items()}, 2.0, 2.0),
    )


def test_the_step_counter_tells_undrafted_steps() -> None:
    record = observe(SLOT, PROMPT, answer(20, [3, 3], 3), 3, always_drafts=False, pages=pages(iterations=1 + 13))
    assert (record.steps, record.drafted_steps) == (13, 2)
    assert all(step.start_token_index is None and step.prefix_hash is None for step in steps_of(record))


def test_engines_without_metrics_are_counted_by_the_counters() -> None:
    bare = answer(9, None, 3, metrics={}, first_chunk_s=0.02, last_chunk_s=0.12, first_chunk_tokens=1)
    record = observe(
        SLOT, PROMPT, bare, 3, always_drafts=True, pages=pages(drafts=4, drafted=12, accepted=5, iterations=5)
    )
    assert (record.clock, record.ttft_s, record.decode_s) == ("client", 0.02, pytest.approx(0.1))
    assert (record.drafted_steps, record.drafted_tokens, record.accepted_tokens, record.steps) == (4, 12, 5, 4)


def test_a_first_chunk_of_several_tokens_has_no_honest_window() -> None:
    bare = answer(9, None, 3, metrics={}, first_chunk_s=0.02, last_chunk_s=0.12, first_chunk_tokens=3)
    assert observe(SLOT, PROMPT, bare, 3, always_drafts=True).decode_s is None


def test_one_token_has_no_window() -> None:
    assert observe(SLOT, PROMPT, answer(1, [], 3), 3, always_drafts=True).decode_s is None


def test_an_unanswered_request_has_no_values() -> None:
    record = unanswered(SLOT, PROMPT, 5.0, "HTTP 500")
    assert record.error == "HTTP 500"
    measured = ("output_tokens", "decode_s", "steps", "accepted_tokens", "client_total_s", "clock")
    assert all(getattr(record, name) is None for name in measured)


@respx.mock
def test_a_real_stream() -> None:
    """The recorded stream of vLLM 0.32: 16 tokens by usage in 10 chunks, 9 steps, 7 accepted, overshoot 1, 34.9 ms."""
    respx.post(f"{URL}/v1/completions").mock(httpx.Response(200, text=STREAM))
    with Client(URL, 5) as client:
        got = client.ask_streaming("/v1/completions", {"model": "tiny"})
    record = observe(SLOT, PROMPT, got, 3, always_drafts=True)
    assert (record.output_tokens, len(record.token_ids or ())) == (16, 16)
    assert (record.steps, record.drafted_steps, record.accepted_tokens) == (9, 9, 7)
    assert 1 + 9 + 7 - 16 == 1
    assert record.decode_s == pytest.approx(0.0349, abs=5e-5)
    assert record.finish_reason == "length"
    assert got.first_chunk_tokens == 1
    starts = [step.start_token_index for step in steps_of(record)]
    assert starts == [1, 2, 3, 4, 5, 6, 10, 11, 13]
    hashes = [step.prefix_hash for step in steps_of(record)]
    assert hashes[6] == token_hash("p", (record.token_ids or ())[:10])


@respx.mock
def test_chunks_are_never_counted_as_tokens() -> None:
    """vllm#50677: 400 tokens in 100 chunks; the number comes from usage."""
    chunk = 'data: {"choices":[{"index":0,"text":"four tokens","finish_reason":null}]}\n\n'
    usage = 'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":400}}\n\ndata: [DONE]\n\n'
    respx.post(f"{URL}/v1/completions").mock(httpx.Response(200, text=chunk * 100 + usage))
    with Client(URL, 5) as client:
        got = client.ask_streaming("/v1/completions", {})
    assert observe(SLOT, PROMPT, got, 0, always_drafts=True).output_tokens == 400
    assert got.token_ids is None


@respx.mock
def test_reasoning_streamed_outside_content_opens_the_window() -> None:
    parts = [
        '{"choices":[{"delta":{"role":"assistant"}}]}',
        '{"choices":[{"delta":{"reasoning_content":"hm"}}]}',
        '{"choices":[{"delta":{"content":"yes"},"finish_reason":"stop"}]}',
        '{"choices":[],"usage":{"completion_tokens":2}}',
    ]
    respx.post(f"{URL}/v1/chat/completions").mock(
        httpx.Response(200, text="".join(f"data: {part}\n\n" for part in parts))
    )
    with Client(URL, 5) as client:
        got = client.ask_streaming("/v1/chat/completions", {})
    assert got.text == "hmyes"
    assert got.first_chunk_s is not None
    assert got.last_chunk_s is not None
    assert got.first_chunk_s <= got.last_chunk_s


@respx.mock
@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (httpx.Response(500, text="engine dead"), "HTTP 500: engine dead"),
        (httpx.Response(200, text="[]x"), "not a JSON object"),
    ],
)
def test_a_bad_answer_fails_the_run_in_words(reply: httpx.Response, words: str) -> None:
    respx.post(f"{URL}/v1/completions").mock(reply)
    with Client(URL, 5) as client, pytest.raises(RunFailed, match=words) as failed:
        client.ask("/v1/completions", {})
    assert failed.value.kind == "http"


@respx.mock
def test_no_measured_request_is_retried() -> None:
    route = respx.post(f"{URL}/v1/completions").mock(side_effect=httpx.ReadTimeout("slow"))
    with Client(URL, 5) as client, pytest.raises(RunFailed, match="no answer: ReadTimeout"):
        client.ask("/v1/completions", {})
    assert route.call_count == 1
