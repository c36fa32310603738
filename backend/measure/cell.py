"""Measure one cell of a run: warm-up, then MEASURE, with /metrics before and after.

A measured request is asked once. If it fails, the run fails: a retried request would be another measurement.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from backend.errors import RunFailed
from backend.measure.client import Client
from backend.measure.counters import GENERATED, RUNNING, Page, deltas, scrape
from backend.measure.observe import MAY_NOT_DRAFT, Slot, observe, unanswered
from backend.measure.workload import Prompt, cut_to_context, ordered, request
from backend.records import Cell, Phase, Record, Request
from backend.spec import SweepSpec

COUNTERS_SETTLE_S = 2.0  # the engine logs its counters just after it answers
BUSY_REQUESTS_PER_SLOT = 10  # below, ramp-up and drain weigh too much for an aggregate throughput

Sink = Callable[[Sequence[Record]], None]
Tick = Callable[[Phase, int, int], None]  # phase, requests done, requests in all


@dataclass(frozen=True, slots=True)
class Bench:
    """What a cell is measured with."""

    spec: SweepSpec
    client: Client
    model: str
    k: int
    run_id: str
    streaming: bool
    engine_clock: bool  # answers carry per-request engine times and drafting, streamed or not
    prompts: tuple[Prompt, ...]
    sink: Sink
    tick: Tick

    @property
    def pages_between(self) -> bool:
        """Whether /metrics is read between requests: only where a request cannot tell its own steps."""
        return self.k > 0 and (not self.engine_clock or self.spec.speculator.method in MAY_NOT_DRAFT)

    def ask(
        self, slot: Slot, prompt: Prompt, ids: list[int] | None, before: Page | None
    ) -> tuple[Request, Page | None]:
        """One request, its record and, with `before`, the page after it. Raises RunFailed once the row is kept."""
        path, body = request(self.spec.workload, self.model, prompt, ids)
        started = time.time()
        try:
            answer = self.client.ask_streaming(path, body) if self.streaming else self.client.ask(path, body)
        except RunFailed as failure:
            self.sink([unanswered(slot, prompt, started, failure.what)])
            raise RunFailed(
                f"{slot.phase} request {slot.index} ({prompt.prompt_id}): {failure.what}", kind=failure.kind
            ) from None
        after = _settled(self.client, before, answer.usage.get("completion_tokens")) if before else None
        pages = (before, after) if before and after else None
        record = observe(
            slot, prompt, answer, self.k, always_drafts=self.spec.speculator.method not in MAY_NOT_DRAFT, pages=pages
        )
        self.sink([record])
        self._must_be_whole(record, prompt)
        return record, after

    def _must_be_whole(self, record: Request, prompt: Prompt) -> None:
        wanted = self.spec.workload.max_tokens
        if record.output_tokens is None:
            raise RunFailed(
                f"request {record.request_index} ({prompt.prompt_id}) came without usage.completion_tokens", kind="http"
            )
        cut_short = self.spec.workload.ignore_eos or record.finish_reason == "length"
        if cut_short and record.output_tokens != wanted:
            raise RunFailed(
                f"request {record.request_index} ({prompt.prompt_id}) gave {record.output_tokens} of {wanted} tokens",
                kind="short_output",
                fix="is prompt + max_tokens above the server's --max-model-len?",
            )


def warm_up(bench: Bench, cell: Cell, ids: dict[str, list[int]]) -> None:
    """Requests that are stored, flagged and never counted."""
    count = bench.spec.workload.warmup_requests
    for index in range(count):
        prompt = bench.prompts[index % len(bench.prompts)]
        bench.ask(Slot(bench.run_id, cell.cell_id, "warmup", index), prompt, ids.get(prompt.prompt_id), None)
        bench.tick("warmup", index + 1, count)


def prompt_ids(bench: Bench, cell: Cell) -> dict[str, list[int]]:
    """Token ids per prompt for a cell of a given context length; empty where prompts go as text."""
    if cell.context_tokens is None:
        return {}
    return cut_to_context(bench.prompts, cell.context_tokens, bench.client, bench.model)


def measure(bench: Bench, cell: Cell, ids: dict[str, list[int]], seed: int) -> list[Request]:
    """MEASURE: every prompt of the workload, in a random order of this run's own. The records at concurrency 1."""
    order = ordered(bench.prompts, bench.spec.workload.repeats, seed)
    before = scrape(bench.client.http)
    records: list[Request] = []
    if cell.concurrency == 1:
        records = _one_by_one(bench, cell, ids, order, before)
        tokens = sum(record.output_tokens or 0 for record in records)
    else:
        tokens = _closed_loop(bench, cell, ids, order)
    after = _settled(bench.client, before, tokens) if before else None
    if before and after:
        bench.sink(deltas(bench.run_id, cell.cell_id, "measure", "phase", before, after))
    return records


def _one_by_one(
    bench: Bench, cell: Cell, ids: dict[str, list[int]], order: Sequence[Prompt], page: Page | None
) -> list[Request]:
    """Concurrency 1."""
    records = []
    for index, prompt in enumerate(order):
        slot = Slot(bench.run_id, cell.cell_id, "measure", index)
        record, after = bench.ask(slot, prompt, ids.get(prompt.prompt_id), page if bench.pages_between else None)
        page = after or page
        records.append(record)
        bench.tick("measure", index + 1, len(order))
    return records


def _closed_loop(bench: Bench, cell: Cell, ids: dict[str, list[int]], order: Sequence[Prompt]) -> int:
    """Concurrency C: C clients, each asks its next request when its last is answered.

    The "busy" span runs from all C slots busy to the last dispatch, so that neither ramp nor drain is in it.
    """
    slots, queue, lock = cell.concurrency, iter(enumerate(order)), threading.Lock()
    all_started, last_dispatched, failed = threading.Event(), threading.Event(), threading.Event()
    dispatched = done = tokens = 0

    def ask_on() -> None:
        nonlocal dispatched, done, tokens
        while not failed.is_set():
            with lock:
                item = next(queue, None)
                if item is None:
                    return
                dispatched += 1
                if dispatched == slots:
                    all_started.set()
                if dispatched == len(order):
                    last_dispatched.set()
            index, prompt = item
            record, _ = bench.ask(
                Slot(bench.run_id, cell.cell_id, "measure", index), prompt, ids.get(prompt.prompt_id), None
            )
            with lock:
                done, tokens = done + 1, tokens + (record.output_tokens or 0)
                bench.tick("measure", done, len(order))

    def client_loop() -> None:
        whole = False
        try:
            ask_on()
            whole = True
        finally:
            if not whole:  # a failed request, a full disk: the other clients and the scrapes must not wait for this one
                for event in (failed, all_started, last_dispatched):
                    event.set()

    with ThreadPoolExecutor(slots) as pool:
        loops = [pool.submit(client_loop) for _ in range(slots)]
        try:
            if len(order) >= BUSY_REQUESTS_PER_SLOT * slots:
                all_started.wait()
                first = _all_running(bench.client, slots)
                last_dispatched.wait()
                last = scrape(bench.client.http)
                if first and last and not failed.is_set():
                    bench.sink(deltas(bench.run_id, cell.cell_id, "measure", "busy", first, last))
            for loop in loops:
                loop.result()
        finally:
            failed.set()  # an interruption must not wait for the rest of the queue
    return tokens


def _all_running(client: Client, slots: int) -> Page | None:
    """The first page on which all slots run; None when that is not seen in time."""
    deadline = time.monotonic() + COUNTERS_SETTLE_S
    while (page := scrape(client.http)) is not None and time.monotonic() < deadline:
        if (page.total(RUNNING) or 0) >= slots:
            return page
    return None


def _settled(client: Client, before: Page, tokens: int | None) -> Page | None:
    """A page that counts at least the tokens we received; the engine updates counters just after it answers."""
    deadline = time.monotonic() + COUNTERS_SETTLE_S
    start = before.total(GENERATED)
    while (page := scrape(client.http)) is not None:
        now = page.total(GENERATED)
        if (
            tokens is None
            or start is None
            or now is None
            or now - start >= tokens
            or now < start
            or time.monotonic() > deadline
        ):
            return page
        time.sleep(0.005)
    return None
