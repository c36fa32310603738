"""/metrics: parse a page, know the depth it reports, subtract two pages, and reconcile them with the requests.

Series of several engines (label `engine`) are kept apart in the records and summed where a total is asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from backend.errors import RunFailed
from backend.records import Counter, Phase

GENERATED = "vllm:generation_tokens_total"
DRAFTS = "vllm:spec_decode_num_drafts_total"  # steps that carried a draft, counted per request
DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
ACCEPTED_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
ITERATIONS = "vllm:iteration_tokens_total_count"  # engine steps, prefill steps among them
RUNNING = "vllm:num_requests_running"
FINISHED = "vllm:request_success_total"
KEPT = (
    GENERATED,
    DRAFTS,
    DRAFTED,
    ACCEPTED,
    ACCEPTED_PER_POSITION,
    ITERATIONS,
    FINISHED,
    "vllm:prompt_tokens_total",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:num_preemptions_total",
)

Series = dict[tuple[str, str], float]  # (sample name, canonical labels) -> value


@dataclass(frozen=True, slots=True)
class Page:
    """One scrape. `unix_s` and `monotonic_s` are when its answer arrived, by two clocks."""

    series: Series
    unix_s: float
    monotonic_s: float

    def total(self, name: str) -> float | None:
        """Sum over engines and label values; None when the page has no such series."""
        values = [value for (sample, _), value in self.series.items() if sample == name]
        return sum(values) if values else None


def parse(text: str) -> Series:
    """Counters we keep, by sample name (with its `_total`) and canonical labels; `_created` gauges are dropped."""
    series: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in KEPT or sample.name == RUNNING:
                labels = ",".join(
                    f'{key}="{value}"' for key, value in sorted(sample.labels.items()) if key != "model_name"
                )
                series[sample.name, labels] = sample.value
    return series


def reported_depth(text: str) -> int | None:
    """The K that a server reports: its number of draft positions; 0 without draft counters.

    None when the page is not vLLM's at all, so that an unknown engine is not taken for K=0.
    """
    if "vllm:" not in text:
        return None
    positions = {
        sample.labels["position"]
        for family in text_string_to_metric_families(text)
        if family.name == ACCEPTED_PER_POSITION.removesuffix("_total")
        for sample in family.samples
        if "position" in sample.labels
    }
    return len(positions)


def scrape(http: httpx.Client) -> Page | None:
    """One page; None when the engine has no /metrics. Raises RunFailed(kind='http') when it does not answer."""
    try:
        reply = http.get("/metrics")
    except httpx.HTTPError as error:
        raise RunFailed(f"/metrics did not answer: {error}", kind="http", where=str(http.base_url)) from None
    if reply.status_code != 200:
        return None
    return Page(parse(reply.text), time.time(), time.monotonic())


def deltas(run_id: str, cell_id: str, phase: Phase, span: str, before: Page, after: Page) -> list[Counter]:
    """Raw samples before and after a span, as records. Its length is monotonic: a clock step does not change it."""
    assert span in ("phase", "busy")
    return [
        Counter(
            run_id,
            cell_id,
            phase,
            "phase" if span == "phase" else "busy",
            name,
            labels,
            before.series.get((name, labels)),
            value,
            before.unix_s,
            before.unix_s + after.monotonic_s - before.monotonic_s,
        )
        for (name, labels), value in sorted(after.series.items())
        if name != RUNNING
    ]


def gained(counters: Iterable[Counter], name: str) -> float | None:
    """Gain of one counter over a span, summed over engines and labels. A series born inside counts from 0."""
    rows = [counter for counter in counters if counter.name == name]
    return sum(counter.after - (counter.before or 0.0) for counter in rows) if rows else None
