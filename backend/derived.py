"""Rows of tables that no journal holds: derived from the arrays of a record, here and nowhere else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from backend.errors import StoreError
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
    """A timed stage of one step inside the engine; derived from `StageTimes` by `stage_columns`.

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


def stage_columns(measured: Sequence[StageTimes]) -> dict[str, pa.Array]:
    """The fields of `StageTime` as columns: every stage that ran, record by record and in step order.

    By columns, since a timed sweep has half a million rows. `measured`: one record or more. Raises StoreError where a
    step has more or fewer times than there are stages.
    """
    found: list[tuple[npt.NDArray[Any], ...]] = []  # of a record's rows: its number, step, stage (of all), time
    stages: list[str] = []
    positions: list[int] = []
    for number, times in enumerate(measured):
        width = len(times.stages)
        if len(times.positions) != width or any(len(step) != width for step in times.durations_us):
            raise StoreError("stages, positions and durations_us differ in length", where=times.request_id)
        durations_us = np.array(times.durations_us, dtype=np.float64).reshape(-1, max(width, 1))  # None becomes NaN
        step, column = np.nonzero(~np.isnan(durations_us))
        record = np.full(len(step), number)
        found.append((record, step + times.first_step, column + len(stages), durations_us[step, column]))
        stages += times.stages
        positions += times.positions
    record, step, stage, duration_us = map(np.concatenate, zip(*found, strict=True))
    names = ("run_id", "cell_id", "request_id", "rank", "request_index", "source")
    return {
        **{name: pa.array([getattr(times, name) for times in measured]).take(pa.array(record)) for name in names},
        "step_index": pa.array(step),
        "stage": pa.array(stages, pa.string()).take(pa.array(stage)),
        "position": pa.array(positions, pa.int64()).take(pa.array(stage)),
        "duration_s": pa.array(duration_us * 1e-6),
    }
