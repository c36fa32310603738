"""`bench serve` results without --save-detailed: what follows exactly from totals and means.

latency = ttft + sum of gaps for each request, so the decode windows are sum(latencies) - completed x mean_ttft, and the
number of chunks is that over mean_itl. Without latencies, or with failed requests in them, neither is known.
"""

from __future__ import annotations

import math

from backend.importers.bench_result import BenchResult
from backend.importers.found import figure
from backend.records import ReportedValue

WHOLE = 0.01  # how near the number of chunks must be to a whole number


def windows_s(told: BenchResult) -> float | None:
    """Sum of the decode windows (client clock), seconds; None where the file does not tell it."""
    if told.latencies is None or len(told.latencies) != told.completed or told.failed or told.mean_ttft_ms is None:
        return None
    return math.fsum(told.latencies) - told.completed * told.mean_ttft_ms / 1e3


def chunks(told: BenchResult) -> int | None:
    """Chunks after the first, all requests; None where they cannot be told."""
    window = windows_s(told)
    if window is None or not told.mean_itl_ms or window <= 0:
        return None
    number = 1e3 * window / told.mean_itl_ms
    return round(number) if abs(number - round(number)) < WHOLE else None


def figures(told: BenchResult, k: int, chunks: int | None) -> tuple[list[ReportedValue], list[str]]:
    """(reported values, notes): requests, ttft, and at concurrency 1 tok/s, tokens per step and cycle."""
    found = [figure("n_requests", told.completed, "requests", "by the tool: completed")]
    if told.mean_ttft_ms is not None:
        found.append(figure("ttft_s", told.mean_ttft_ms / 1e3, "s", "by the tool: mean_ttft_ms, client clock"))
    window, emitted = windows_s(told), told.total_output_tokens - told.completed
    if not window or window <= 0:
        return found, ["without --save-detailed and latencies of finished requests the decode time is not told"]
    steps = emitted if k == 0 else chunks if chunks == told.spec_decode_num_drafts else None
    note = "from totals: windows = sum of latencies - completed x mean_ttft"
    if told.max_concurrency == 1:
        found.append(figure("decode_tok_s", emitted / window, "tok/s", note))
    if steps:
        found.append(figure("tokens_per_step", emitted / steps, "tokens", "tokens after the first / decode steps"))
        if told.max_concurrency == 1:
            found.append(figure("cycle_ms", 1e3 * window / steps, "ms", f"{note}; over decode steps"))
    return found, []
