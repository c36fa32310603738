"""Prompt files and request bodies."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
import respx

from backend.errors import SpecError
from backend.measure.client import Client
from backend.measure.workload import Prompt, cut_to_context, ordered, read_prompts, request
from backend.spec import Workload

URL = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "prompts.jsonl:1: not a JSON line"),
        ('{"id": "a"}', "a prompt is"),
        ('{"id": "a", "text": ""}', "text not empty"),
        ('{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}', "prompt id 'a' stands twice"),
        ("\n", "no prompts in the file"),
    ],
)
def test_bad_prompt_files(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(text)
    with pytest.raises(SpecError, match=words):
        read_prompts(path)
    with pytest.raises(SpecError, match="cannot read the prompts"):
        read_prompts(tmp_path / "none")


def test_order_is_random_per_run_and_complete() -> None:
    prompts = [Prompt(str(i), None, "x") for i in range(12)]
    one, two = ordered(prompts, 2, 1), ordered(prompts, 2, 2)
    assert one != two
    assert one == ordered(prompts, 2, 1)
    for order in (one, two):
        assert sorted(p.prompt_id for p in order[:12]) == sorted(p.prompt_id for p in order[12:])


@respx.mock
def test_prompts_are_cut_and_filled_to_the_context() -> None:
    """The last tokens stay; a short prompt is preceded by the prompts before it, the same for every depth."""

    def tokenize(call: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"tokens": [ord(sign) for sign in json.loads(call.content)["prompt"]]})

    respx.post(f"{URL}/tokenize").mock(side_effect=tokenize)
    prompts = [Prompt("long", None, "abcdef"), Prompt("short", None, "xy")]
    with Client(URL, 5) as client:
        cut = cut_to_context(prompts, 4, client, "m")
    assert {name: "".join(map(chr, ids)) for name, ids in cut.items()} == {"long": "cdef", "short": "efxy"}


def test_bodies() -> None:
    work = Workload.model_validate(
        {
            "prompts": "p",
            "max_tokens": 7,
            "ignore_eos": True,
            "extra_body": {"top_k": 3},
            "chat_template_kwargs": {"think": False},
        }
    )
    path, body = request(work, "m", Prompt("a", None, "hello"), [1, 2])
    assert (path, body["prompt"], body["max_tokens"], body["temperature"], body["top_k"]) == (
        "/v1/completions",
        [1, 2],
        7,
        0.0,
        3,
    )
    assert body["ignore_eos"] is True
    assert body["return_token_ids"] is True
    chat = work.model_copy(update={"endpoint": "chat"})
    path, body = request(chat, "m", Prompt("a", None, "hello"), None)
    assert path == "/v1/chat/completions"
    assert body["messages"] == [{"role": "user", "content": "hello"}]
    assert body["chat_template_kwargs"] == {"think": False}
    assert "prompt" not in body
