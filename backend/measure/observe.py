"""From an answer to a Request record: which clock, how many steps, and nothing guessed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from backend.measure.client import Answer
from backend.measure.counters import ACCEPTED, DRAFTED, DRAFTS, ITERATIONS, Page
from backend.measure.workload import Prompt
from backend.records import Phase, Request, token_hash

# Methods that sometimes propose nothing: only the engine's step counter tells their undrafted steps from overshoot.
MAY_NOT_DRAFT = frozenset({"ngram", "ngram_gpu", "suffix", "custom_class"})
# Up to here vLLM's defaults prefill a prompt in one engine step; above, steps cannot be told from prefill chunks.
ONE_PREFILL_STEP_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a request stands in its run."""

    run_id: str
    cell_id: str
    phase: Phase
    index: int
    probe_on: bool | None = None

    @property
    def request_id(self) -> str:
        """Key of the request: run, cell without its sweep, phase, index."""
        return f"{self.run_id}:{self.cell_id.split(':', 1)[-1]}:{self.phase}:{self.index}"


def observe(
    slot: Slot, prompt: Prompt, answer: Answer, k: int, *, always_drafts: bool, pages: tuple[Page, Page] | None = None
) -> Request:
    """The record of one answered request.

    `pages` are /metrics before and after this one request alone: they give drafts and steps where the answer
    itself does not (engines without per-request metrics, methods that sometimes do not draft).
    """
    metrics = answer.metrics
    tokens = answer.usage.get("completion_tokens")
    engine = metrics.get("generation_time_ms") is not None
    queue_s, prefill_s = _seconds(metrics, "queue_time_ms"), _seconds(metrics, "time_to_first_token_ms")
    ttft_s = queue_s + prefill_s if queue_s is not None and prefill_s is not None else None
    decode_s = _seconds(metrics, "generation_time_ms")
    if not engine and answer.first_chunk_s is not None and answer.last_chunk_s is not None:
        ttft_s = answer.first_chunk_s
        # a first chunk of several tokens starts the window late by a step: then there is no honest window
        decode_s = answer.last_chunk_s - answer.first_chunk_s if answer.first_chunk_tokens in (1, None) else None
    if tokens is not None and tokens < 2:
        decode_s = None  # one token has no window
    counts = _drafting(metrics.get("speculative_decoding"), k, tokens, pages)
    return Request(
        request_id=slot.request_id,
        run_id=slot.run_id,
        cell_id=slot.cell_id,
        phase=slot.phase,
        request_index=slot.index,
        prompt_id=prompt.prompt_id,
        category=prompt.category,
        probe_on=slot.probe_on,
        started_unix_s=answer.started_unix_s,
        client_total_s=answer.client_total_s,
        clock="engine" if engine else "client" if decode_s is not None else None,
        queue_s=queue_s if engine else None,
        prefill_s=prefill_s if engine else None,
        ttft_s=ttft_s,
        decode_s=decode_s,
        prompt_tokens=answer.usage.get("prompt_tokens"),
        output_tokens=tokens,
        steps=_steps(k, tokens, answer.usage.get("prompt_tokens"), counts, always_drafts, pages),
        drafted_steps=counts.drafted_steps,
        drafted_tokens=counts.drafted_tokens,
        accepted_tokens=counts.accepted_tokens,
        step_drafted=counts.step_drafted,
        step_accepted=counts.step_accepted,
        token_ids=answer.token_ids,
        output_hash=token_hash(prompt.prompt_id, answer.token_ids) if answer.token_ids is not None else None,
        finish_reason=answer.finish_reason,
        error=None,
    )


def unanswered(slot: Slot, prompt: Prompt, started_unix_s: float, error: str) -> Request:
    """The record of a request that failed: everything measured is NULL, the reason is kept."""
    return Request(
        request_id=slot.request_id,
        run_id=slot.run_id,
        cell_id=slot.cell_id,
        phase=slot.phase,
        request_index=slot.index,
        prompt_id=prompt.prompt_id,
        category=prompt.category,
        probe_on=slot.probe_on,
        started_unix_s=started_unix_s,
        client_total_s=None,
        clock=None,
        queue_s=None,
        prefill_s=None,
        ttft_s=None,
        decode_s=None,
        prompt_tokens=None,
        output_tokens=None,
        steps=None,
        drafted_steps=None,
        drafted_tokens=None,
        accepted_tokens=None,
        step_drafted=None,
        step_accepted=None,
        token_ids=None,
        output_hash=None,
        finish_reason=None,
        error=error,
    )


@dataclass(frozen=True, slots=True)
class _Counts:
    drafted_steps: int | None
    drafted_tokens: int | None
    accepted_tokens: int | None
    step_drafted: tuple[int, ...] | None = None
    step_accepted: tuple[int, ...] | None = None


def _drafting(spec: dict[str, Any] | None, k: int, tokens: int | None, pages: tuple[Page, Page] | None) -> _Counts:
    if k == 0:
        return _Counts(0, 0, 0)  # nothing was drafted: a measured zero, not a missing value
    if spec:
        drafted, accepted = spec.get("per_step_drafted"), spec.get("per_step_accepted")
        return _Counts(
            spec.get("num_spec_steps"),
            spec.get("num_draft_tokens"),
            spec.get("num_accepted_draft_tokens"),
            tuple(drafted) if drafted is not None else None,
            tuple(accepted) if accepted is not None else None,
        )
    if pages is not None:
        return _Counts(_gain(pages, DRAFTS), _gain(pages, DRAFTED), _gain(pages, ACCEPTED))
    return _Counts(None, None, None)


def _steps(
    k: int,
    tokens: int | None,
    prompt_tokens: int | None,
    counts: _Counts,
    always_drafts: bool,
    pages: tuple[Page, Page] | None,
) -> int | None:
    """All decode steps of a request: exact or None."""
    if tokens is None:
        return None
    if k == 0:
        return tokens - 1
    if pages is not None and prompt_tokens is not None and prompt_tokens <= ONE_PREFILL_STEP_TOKENS:
        iterations = _gain(pages, ITERATIONS)
        if iterations is not None:
            return iterations - 1
    if always_drafts and counts.drafted_steps is not None and counts.accepted_tokens is not None:
        # 1 + drafted steps + accepted - tokens is the overshoot; below 0 there were undrafted steps after all
        overshoot = 1 + counts.drafted_steps + counts.accepted_tokens - tokens
        return counts.drafted_steps if overshoot >= 0 else None
    return None


def _gain(pages: tuple[Page, Page], name: str) -> int | None:
    before, after = pages[0].total(name), pages[1].total(name)
    return round(after - (before or 0.0)) if after is not None else None


def _seconds(metrics: dict[str, Any], key: str) -> float | None:
    value = metrics.get(key)
    return float(value) / 1e3 if value is not None else None
