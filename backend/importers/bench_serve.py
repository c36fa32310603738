"""Results of vLLM's `bench serve`: with --save-detailed a row a request, without it the totals.

Times are the client's. A chunk is no token: itls has one entry a chunk, and a chunk counts as a verify step only where
the server's count of drafts says there were as many. `max_concurrent_requests` and `max_output_tokens_per_s` (a peak of
chunks) are not read: they count something else than their names say.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from backend.errors import Refused
from backend.importers import bench_totals
from backend.importers.bench_result import BenchResult
from backend.importers.counts import (
    draft_figures,
    failed_requests,
    impossible_counts,
    survival_figures,
    token_accounting,
)
from backend.importers.found import Found, figure, settle_depth
from backend.records import Finding, ReportedValue, Request

FORMAT = "vLLM bench serve result"
KEYS = frozenset({"model_id", "num_prompts", "completed", "duration"})  # by these it is recognised
WORKLOAD_KEYS = ("workload", "dataset_name", "dataset")  # written by --metadata KEY=VALUE only


def parse(result: Mapping[str, Any], place: str, given_k: int | None) -> Found:
    """The run that one result tells.

    Raises Refused: keys of a wrong type, arrays that do not fit together, no finished request, K or concurrency
    unknown.
    """
    try:
        told = BenchResult.model_validate(result)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise Refused(f"{FORMAT} with a bad {key}: {first['msg']}", where=place) from error
    failures = _failures(told, place)
    detailed = told.output_lens is not None
    chunks = sum(map(len, told.itls or ())) if detailed else bench_totals.chunks(told)
    k, by = settle_depth(_depth(told, chunks, failures), given_k, place, _why_unknown(told))
    requests = tuple(_requests(told, k, chunks, failures)) if detailed else ()
    figures, findings, notes = _drafts(told, k)
    if not detailed:
        measured, more = bench_totals.figures(told, k, chunks)
        figures += measured
        notes += more
    if k and chunks is not None and chunks != told.spec_decode_num_drafts:
        notes.append(
            f"{chunks} chunks for {told.spec_decode_num_drafts} drafts: a chunk is not a verify step here, "
            "so steps and cycle stay empty"
        )
    elif k and chunks is not None and not failures and told.spec_decode_accepted_tokens is not None:
        emitted = told.total_output_tokens - told.completed
        findings += token_accounting(k, told.completed, emitted, chunks, told.spec_decode_accepted_tokens)
    concurrency = _concurrency(told, place)
    if concurrency > 1:
        notes.append("above concurrency 1 tok/s is read from /metrics while all slots are busy, which this file lacks")
    if told.output_throughput is not None:
        note = "by the tool: all output tokens / whole duration, prefill, ramp-up and drain included"
        figures.append(figure("output_throughput_tok_s", told.output_throughput, "tok/s", note))
    reason = next((text for text in failures.values()), "the file does not say why")
    return Found(
        place=place,
        format=FORMAT,
        identity=hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()[:10],
        k=k,
        k_by=by,
        models=tuple(dict.fromkeys(name for name in (told.model_id, told.tokenizer_id) if name)),
        concurrency=concurrency,
        workload=_workload(told, result),
        requests=requests,
        figures=tuple(figures),
        findings=(*findings, *failed_requests(len(failures) or told.failed or 0, reason)),
        facts={
            name: str(value) for name in ("date", "backend", "label", "request_rate") if (value := result.get(name))
        },
        notes=tuple(notes),
    )


def _failures(told: BenchResult, place: str) -> dict[int, str]:
    """Index -> reason of each failed request that the arrays show. Raises Refused where arrays do not fit together."""
    if told.completed == 0:
        why = f": {told.failed} of them failed" if told.failed else ""
        raise Refused(f"holds no finished request{why}", where=place, fix="measure again, then import that result")
    present = {
        name: len(values)
        for name in ("output_lens", "ttfts", "itls", "input_lens", "errors", "latencies")
        if (values := getattr(told, name)) is not None
    }
    if not {"output_lens", "ttfts", "itls"} & set(present):
        return {}
    lacking = {"output_lens", "ttfts", "itls"} - set(present)
    if lacking:
        raise Refused(f"has {', '.join(present)} but no {', '.join(sorted(lacking))}", where=place)
    if len(set(present.values())) > 1:
        lengths = ", ".join(f"{name} {length}" for name, length in present.items())
        raise Refused(
            f"arrays of unequal lengths: {lengths}", where=place, fix="one entry a request each; save the result again"
        )
    outputs = told.output_lens or []
    if sum(outputs) != told.total_output_tokens:
        raise Refused(
            f"contradicts itself: output_lens add up to {sum(outputs)}, "
            f"total_output_tokens says {told.total_output_tokens}",
            where=place,
        )
    errors = told.errors or [""] * len(outputs)
    return {
        index: _last_line(error) or "no token came back"
        for index, (error, output) in enumerate(zip(errors, outputs, strict=True))
        if error or not output
    }


def _depth(told: BenchResult, chunks: int | None, failures: Mapping[int, str]) -> dict[str, int]:
    """What says K -> that K. Without drafts it is 0 where every finished request has a chunk a token."""
    positions = told.spec_decode_per_position_acceptance_rates
    if positions:
        return {"its per-position rates": len(positions)}
    drafts, drafted = told.spec_decode_num_drafts, told.spec_decode_draft_tokens
    if drafts and drafted and drafted % drafts == 0:
        return {"draft tokens / drafts": drafted // drafts}
    if told.tells_drafts:
        return {}
    if told.itls is not None and told.output_lens is not None:
        pairs = enumerate(zip(told.itls, told.output_lens, strict=True))
        singly = all(len(gaps) == output - 1 for index, (gaps, output) in pairs if index not in failures)
    else:
        singly = chunks == told.total_output_tokens - told.completed
    return {"one chunk a token and no drafts": 0} if singly else {}


def _why_unknown(told: BenchResult) -> str:
    if told.tells_drafts:
        return "its drafts differ in length"
    return "it has no spec_decode figures, and its chunks do not show one token a step"


def _requests(told: BenchResult, k: int, chunks: int | None, failures: Mapping[int, str]) -> list[Request]:
    """A row a request. steps: K=0 tokens after the first; else its chunks, where all chunks are all drafts."""
    outputs, ttfts, itls = told.output_lens or [], told.ttfts or [], told.itls or []
    prompts: Sequence[int | None] = told.input_lens or [None] * len(outputs)
    chunk_is_step = k > 0 and chunks == told.spec_decode_num_drafts
    all_full = chunk_is_step and told.spec_decode_draft_tokens == k * (told.spec_decode_num_drafts or 0)
    # Same list of prompt lengths -> taken for the same prompts, so that depths are compared prompt by prompt.
    prompt_set = hashlib.sha256(json.dumps(prompts).encode()).hexdigest()[:6]
    rows = []
    for index, (output, ttft, gaps, prompt) in enumerate(zip(outputs, ttfts, itls, prompts, strict=True)):
        failed = index in failures
        steps = None if failed else len(gaps) if chunk_is_step else output - 1 if k == 0 else None
        window = None if failed or (output > 1 and not gaps) else math.fsum(gaps)
        rows.append(
            Request(
                request_id="",
                run_id="",
                cell_id="",
                phase="measure",
                request_index=index,
                prompt_id=f"{prompt_set}-{index:04d}",
                category=None,
                probe_on=None,
                started_unix_s=None,  # start_times are of a clock without a date
                client_total_s=None if failed else ttft + math.fsum(gaps),
                clock="client",
                queue_s=None,
                prefill_s=None,
                ttft_s=None if failed else ttft,
                decode_s=window,
                prompt_tokens=prompt,
                output_tokens=None if failed else output,
                steps=steps,
                drafted_steps=steps if chunk_is_step else None,
                drafted_tokens=steps * k if all_full and steps is not None else None,
                accepted_tokens=None,  # told for the run only
                step_drafted=None,
                step_accepted=None,
                token_ids=None,
                output_hash=None,
                finish_reason=None,
                error=failures.get(index),
            )
        )
    return rows


def _drafts(told: BenchResult, k: int) -> tuple[list[ReportedValue], list[Finding], list[str]]:
    """The run's totals from the server's counters, and what is wrong with them."""
    if not k:
        return [], [], []
    note = "by the tool: change of the server's counters over the benchmark"
    drafts, drafted, accepted = (
        told.spec_decode_num_drafts,
        told.spec_decode_draft_tokens,
        told.spec_decode_accepted_tokens,
    )
    survival = told.spec_decode_per_position_acceptance_rates or []
    if drafts is not None and drafted is not None and accepted is not None:
        return (
            draft_figures(drafts, drafted, accepted, survival, note),
            impossible_counts(k, drafts, drafted, accepted),
            [],
        )
    figures = survival_figures(survival, note)
    length = told.spec_decode_acceptance_length
    if length is None and len(survival) == k:
        length = 1 + math.fsum(survival)
    if length is not None:
        figures.append(figure("acceptance_length", length, "tokens", note))
    return figures, [], ["the file does not hold all draft totals: acceptance as far as it is told"]


def _concurrency(told: BenchResult, place: str) -> int:
    """max_concurrency; all prompts at once where nothing limits them. Raises Refused for an open arrival rate."""
    if told.max_concurrency is not None:
        return told.max_concurrency
    if told.request_rate in ("inf", None):
        return max(told.num_prompts, 1)
    raise Refused(
        f"has no concurrency: requests arrived at {told.request_rate}/s without a limit",
        where=place,
        fix="measure with --max-concurrency",
    )


def _workload(told: BenchResult, result: Mapping[str, Any]) -> str:
    """Metadata names it, else the mean prompt length does: the file does not say which dataset it was."""
    named = next((str(result[key]) for key in WORKLOAD_KEYS if result.get(key)), None)
    return named or f"bench-{round(told.total_input_tokens / told.completed)}in"


def _last_line(text: str) -> str:
    """A traceback's last line says what happened."""
    lines = text.strip().splitlines()
    return lines[-1][:200] if lines else ""
