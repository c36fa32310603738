"""Forced starts: prefixes of recorded outputs sent again as prompts, so that every depth drafts from the same starts.

A start after s output tokens is asked for with the prompt and the first s - 1 of them as prompt tokens: the prefill
emits token s - 1 once more, and the one decode step that follows starts where every other depth's does. Two tokens are
asked for, so each request holds exactly that step; what it accepted beyond them is reported all the same. The outputs
are this run's own MEASURE answers: greedy depths emit the same ones, and hashes of the prefixes prove it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace

from backend.errors import RunFailed
from backend.measure.cell import Bench
from backend.measure.observe import Slot, observe, unanswered
from backend.measure.workload import Prompt, request
from backend.records import Cell, Finding, Request, token_hash

ASKED_TOKENS = 2  # one of the prefill, and at least one of the step that starts after it


def force_starts(bench: Bench, cell: Cell, ids: dict[str, list[int]], answers: Sequence[Request]) -> None:
    """Replay starts of one cell's answers, `forced.starts` a prompt. Raises RunFailed where a request fails.

    Without speculation there is nothing to draft, and above concurrency 1 no greedy output to rely on: nothing is sent.
    """
    count = bench.spec.forced.starts
    if not count or bench.k == 0 or cell.concurrency != 1:
        return
    first = {answer.prompt_id: answer for answer in reversed(answers)}
    plan = [
        (prompt, tokens, start)
        for prompt in bench.prompts
        if (tokens := _recorded(first.get(prompt.prompt_id)))
        for start in places(prompt.prompt_id, len(tokens), count)
    ]
    index = differing = 0
    prompt_tokens: dict[str, list[int]] = {}
    for index, (prompt, tokens, start) in enumerate(plan):
        if prompt.prompt_id not in prompt_tokens:
            prompt_tokens[prompt.prompt_id] = _prompt_tokens(bench, prompt, ids, first[prompt.prompt_id])
        slot = Slot(bench.run_id, cell.cell_id, "forced", index)
        record = _ask(bench, slot, prompt, prompt_tokens[prompt.prompt_id], tokens[: start - 1])
        bench.sink([record])
        if record.drafted_steps is None:  # none drafted is 0: n-gram finds nothing at some starts
            bench.sink([_not_told(bench, cell)])
            return
        differing += record.token_ids is not None and record.token_ids[:start] != tokens[:start]
        bench.tick("forced", index + 1, len(plan))
    if differing:
        bench.sink([_differing(bench, cell, differing, len(plan))])


def places(prompt_id: str, output_tokens: int, count: int) -> list[int]:
    """Where to start: emitted tokens before the step, 1 <= s < output_tokens, at most `count` of them, ascending.

    Drawn by the prompt's id alone, so they are the same at every depth, in every run.
    """
    every = range(1, output_tokens)
    return sorted(random.Random(prompt_id).sample(every, min(count, len(every))))


def _recorded(answer: Request | None) -> tuple[int, ...]:
    return () if answer is None or answer.token_ids is None else answer.token_ids


def _prompt_tokens(bench: Bench, prompt: Prompt, ids: dict[str, list[int]], answer: Request) -> list[int]:
    """The prompt as the engine saw it in MEASURE. Raises RunFailed where its tokenizer says another length."""
    known = ids.get(prompt.prompt_id)
    tokens = known if known is not None else bench.client.tokenize(prompt.text, bench.model, add_special_tokens=True)
    if answer.prompt_tokens is not None and len(tokens) != answer.prompt_tokens:
        raise RunFailed(
            f"prompt {prompt.prompt_id} is {len(tokens)} tokens by /tokenize and was {answer.prompt_tokens} in MEASURE",
            kind="http",
            fix="forced starts need the prompt as token ids: give context_tokens, or set forced.starts = 0",
        )
    return tokens


def _ask(bench: Bench, slot: Slot, prompt: Prompt, prompt_tokens: list[int], replayed: tuple[int, ...]) -> Request:
    """One start: the record of its only decode step."""
    path, body = request(bench.spec.workload, bench.model, prompt, [*prompt_tokens, *replayed])
    body["max_tokens"] = ASKED_TOKENS
    started = time.time()
    try:
        answer = bench.client.ask(path, body)
    except RunFailed as failure:
        bench.sink([unanswered(slot, prompt, started, failure.what)])
        raise RunFailed(
            f"forced request {slot.index} ({prompt.prompt_id}): {failure.what}", kind=failure.kind
        ) from None
    record = observe(slot, prompt, answer, bench.k, always_drafts=True)
    tokens = None if record.token_ids is None else (*replayed, *record.token_ids)
    return replace(
        record,
        # what follows the prefill's token came from one step, whether it carried a draft or not
        steps=None if record.output_tokens is None else min(record.output_tokens, ASKED_TOKENS) - 1,
        token_ids=tokens,
        output_hash=None if tokens is None else token_hash(prompt.prompt_id, tokens),
        replayed_tokens=len(replayed),
    )


def _not_told(bench: Bench, cell: Cell) -> Finding:
    return Finding(
        bench.spec.name,
        bench.run_id,
        cell.cell_id,
        "forced-starts-not-told",
        "warning",
        None,
        "",
        "no forced starts: the engine does not report what a step accepted",
        "start it with --per-request-spec-decode-metrics detailed, or set forced.starts = 0",
    )


def _differing(bench: Bench, cell: Cell, differing: int, asked: int) -> Finding:
    return Finding(
        bench.spec.name,
        bench.run_id,
        cell.cell_id,
        "forced-starts-differ",
        "info",
        float(differing),
        "starts",
        f"at {differing} of {asked} forced starts the prefill emitted another token than the recorded answer",
        "ties between logits, as bf16 has them: these starts match only depths that emitted the same; use float32",
    )
