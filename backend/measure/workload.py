"""The workload: prompts from a file, cut to a context length by the server's own tokenizer, and request bodies."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.errors import SpecError
from backend.measure.client import Client
from backend.spec import Workload


@dataclass(frozen=True, slots=True)
class Prompt:
    """One line of a prompt file. `prompt_id` pairs the same prompt over runs and depths."""

    prompt_id: str
    category: str | None
    text: str


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """Read JSON lines of {id, category, text}. Raises SpecError naming file, line and what is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SpecError(
            f"cannot read the prompts: {error.strerror}", where=str(path), fix="workload.prompts names this file"
        ) from None
    prompts: list[Prompt] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise SpecError(f"not a JSON line: {error.msg}", where=where) from None
        if (
            not isinstance(row, dict)
            or not isinstance(row.get("id"), str)
            or not isinstance(row.get("text"), str)
            or not row["text"]
        ):
            raise SpecError(
                'a prompt is {"id": "...", "category": "...", "text": "..."} with text not empty', where=where
            )
        prompts.append(Prompt(row["id"], row.get("category"), row["text"]))
    if not prompts:
        raise SpecError("no prompts in the file", where=str(path))
    ids = [prompt.prompt_id for prompt in prompts]
    if len(set(ids)) != len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise SpecError(
            f"prompt id '{twice}' stands twice", where=str(path), fix="ids pair prompts over depths; make them distinct"
        )
    return tuple(prompts)


def ordered(prompts: Sequence[Prompt], repeats: int, seed: int) -> list[Prompt]:
    """`repeats` passes over the prompts, each pass in a random order of its own."""
    dice = random.Random(seed)
    order: list[Prompt] = []
    for _ in range(repeats):
        one = list(prompts)
        dice.shuffle(one)
        order += one
    return order


def cut_to_context(prompts: Sequence[Prompt], context_tokens: int, client: Client, model: str) -> dict[str, list[int]]:
    """Token ids per prompt id, exactly `context_tokens`: its last ones, preceded by earlier prompts where it is short.

    The same for every depth, because it depends on the file and the tokenizer alone.
    """
    tokens = [client.tokenize(prompt.text, model) for prompt in prompts]
    if not any(tokens):
        raise SpecError("the prompts hold no tokens", where="workload.prompts")
    cut: dict[str, list[int]] = {}
    for index, prompt in enumerate(prompts):
        ids, before = list(tokens[index]), index - 1
        while len(ids) < context_tokens:
            ids = tokens[before % len(tokens)] + ids
            before -= 1
        cut[prompt.prompt_id] = ids[-context_tokens:]
    return cut


def request(workload: Workload, model: str, prompt: Prompt, ids: list[int] | None) -> tuple[str, dict[str, Any]]:
    """Path and body of one request. Token ids are asked back: they are the proof that outputs agree over depths."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": workload.max_tokens,
        "temperature": workload.temperature,
        "ignore_eos": workload.ignore_eos,
        "return_token_ids": True,
        **workload.extra_body,
    }
    if workload.endpoint == "chat":
        if workload.chat_template_kwargs:
            body["chat_template_kwargs"] = workload.chat_template_kwargs
        return "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": prompt.text}]}
    return "/v1/completions", {**body, "prompt": ids if ids is not None else prompt.text}
