"""The stand-in speaks what real vLLM speaks: names on /metrics, per-request metrics, tokens equal for every K."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from backend.measure.client import Answer, Client
from backend.measure.counters import ACCEPTED, DRAFTED, DRAFTS, FINISHED, GENERATED, KEPT, parse, reported_depth, scrape
from tests.standin.specs import ENGINE, free_port

GOLDEN = Path(__file__).parents[1] / "golden" / "metrics_vllm_0.32_k4.txt"
Start = Callable[..., Client]


@pytest.fixture
def standin() -> Iterator[Start]:
    """Starts stand-ins; gives a client to each."""
    started: list[tuple[subprocess.Popen[bytes], Client]] = []

    def start(k: int, *arguments: str) -> Client:
        port = free_port()
        program = [sys.executable, "-S", "-E", str(ENGINE), "--port", str(port), "--k", str(k), *arguments]
        process = subprocess.Popen(program, stdout=subprocess.DEVNULL)
        client = Client(f"http://127.0.0.1:{port}", 10)
        started.append((process, client))
        for _ in range(500):
            try:
                client.http.get("/health").raise_for_status()
            except httpx.TransportError:
                time.sleep(0.02)
            else:
                break
        return client

    yield start
    for process, client in started:
        with closing(client.http):
            process.terminate()
        assert process.wait(10) == 0


def body(prompt: Any, **more: Any) -> dict[str, Any]:
    return {
        "model": "standin",
        "prompt": prompt,
        "max_tokens": 24,
        "ignore_eos": True,
        "return_token_ids": True,
        **more,
    }


def test_names_on_its_page_are_vllms(standin: Start) -> None:
    real, client = parse(GOLDEN.read_text()), standin(4)
    client.ask("/v1/completions", body("x"))
    page = client.http.get("/metrics").text
    assert {name for name, _ in parse(page)} == {name for name, _ in real}
    assert {label for name, label in parse(page) if name == DRAFTS} == {'engine="0"'}
    assert reported_depth(page) == reported_depth(GOLDEN.read_text()) == 4
    assert {name for name, _ in parse(page)} >= set(KEPT)


def test_no_draft_counters_at_depth_0(standin: Start) -> None:
    page = standin(0).http.get("/metrics").text
    assert reported_depth(page) == 0
    assert DRAFTS not in page


def test_tokens_are_the_same_for_every_depth_and_both_transports(standin: Start) -> None:
    answers: list[Answer] = []
    for k in (0, 2):
        client = standin(k)
        answers.append(client.ask("/v1/completions", body([5, 6, 7])))
        answers.append(client.ask_streaming("/v1/completions", body([5, 6, 7])))
    assert {answer.token_ids for answer in answers} == {answers[0].token_ids}
    assert len(answers[0].token_ids or ()) == 24


def test_counters_add_up_with_the_answers(standin: Start) -> None:
    client = standin(3)
    answers = [client.ask("/v1/completions", body(f"prompt {index}")) for index in range(6)]
    drafting = [answer.metrics["speculative_decoding"] for answer in answers]
    page = scrape(client.http)
    assert page is not None
    assert page.total(GENERATED) == sum(answer.usage["completion_tokens"] for answer in answers)
    assert page.total(FINISHED) == 6
    assert page.total(DRAFTS) == sum(one["num_spec_steps"] for one in drafting)
    assert page.total(DRAFTED) == sum(one["num_draft_tokens"] for one in drafting)
    assert page.total(ACCEPTED) == sum(sum(one["per_step_accepted"]) for one in drafting)
    overshoot = 6 + (page.total(DRAFTS) or 0) + (page.total(ACCEPTED) or 0) - (page.total(GENERATED) or 0)
    assert 0 <= overshoot <= 3 * 6


def test_without_clocks_it_streams_token_times(standin: Start) -> None:
    client = standin(1, "--no-clocks")
    answer = client.ask_streaming("/v1/completions", body("x"))
    assert answer.metrics == {}
    assert answer.first_chunk_tokens == 1
    assert (answer.last_chunk_s or 0) > (answer.first_chunk_s or 0)


def test_chat_and_an_early_end(standin: Start) -> None:
    client = standin(1)
    ends = [
        client.ask(
            "/v1/chat/completions",
            {"model": "standin", "max_tokens": 10, "messages": [{"role": "user", "content": f"prompt {index}"}]},
        )
        for index in range(12)
    ]
    assert {(end.finish_reason, end.usage["completion_tokens"]) for end in ends} == {("stop", 5), ("length", 10)}
    assert all(end.text for end in ends)


def test_tokenize_and_version(standin: Start) -> None:
    client = standin(0)
    assert client.tokenize("a b a", "standin")[0] == client.tokenize("a", "standin")[0]
    assert client.version() == "0.32.0-standin"
