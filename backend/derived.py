"""Rows of tables that no journal holds: derived from the arrays of a record, here and nowhere else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from backend.records import Request, StageTimes


@dataclass(frozen=True, slots=True)
class Step:
    """One drafted verify step of a request; derived from `Request` by `steps_of`. Key: request_id, step_index.

    start_token_index: output tokens emitted before this step (>= 1: prefill emits the first);
    prefix_hash: of prompt id and those tokens, equal between arms when their prefixes are equal. Both None
    where undrafted steps in between make the start unknown.
    """

    request_id: str
    step_index: int
    start_token_index: int | None
    prefix_hash: str | None
    drafted_tokens: int
    accepted_tokens: int


@dataclass(frozen=True, slots=True)
class StageTime:
    """A timed stage of one step inside the engine; derived from `StageTimes` by `stage_rows_of`.

    Key: run_id, cell_id, rank, request_index, step_index, stage, position.
    """

    run_id: str
    cell_id: str
    request_id: str
    rank: int
    request_index: int
    step_index: int
    stage: str
    position: int  # draft position; -1 for a stage without one
    duration_s: float
    source: str  # "cuda_event" | "perf_counter"


def steps_of(request: Request) -> Iterator[Step]:
    """The drafted steps of a request as rows. Nothing for K=0 or where per-step arrays were not reported."""
    if request.step_drafted is None or request.step_accepted is None:
        return
    every_step_drafted = request.steps is not None and request.steps == request.drafted_steps
    tokens = request.token_ids if every_step_drafted else None
    running = hashlib.blake2b(f"{request.prompt_id}|".encode(), digest_size=8)  # `token_hash`, grown step by step
    start, hashed = 1 + (request.replayed_tokens or 0), 0  # the prefill emitted the first token
    for index, (drafted, accepted) in enumerate(zip(request.step_drafted, request.step_accepted, strict=True)):
        if tokens is not None and tokens[hashed:start]:
            running.update((("," if hashed else "") + ",".join(map(str, tokens[hashed:start]))).encode())
            hashed = min(start, len(tokens))
        prefix = running.hexdigest() if tokens is not None else None
        yield Step(request.request_id, index, start if every_step_drafted else None, prefix, drafted, accepted)
        start += accepted + 1


def stage_rows_of(times: StageTimes) -> Iterator[StageTime]:
    """The stages of a request as rows, in step order."""
    for index, row in enumerate(times.durations_us, times.first_step):
        for stage, position, duration_us in zip(times.stages, times.positions, row, strict=True):
            if duration_us is not None:
                yield StageTime(
                    times.run_id,
                    times.cell_id,
                    times.request_id,
                    times.rank,
                    times.request_index,
                    index,
                    stage,
                    position,
                    duration_us * 1e-6,
                    times.source,
                )
