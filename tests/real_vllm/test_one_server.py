"""One real K=3 server: two clocks, two transports, three ways to launch, several clients."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from backend.analysis.checks_requests import request_findings
from backend.engines import engine_for
from backend.measure.cell import Bench, measure, prompt_ids, warm_up
from backend.measure.client import Client
from backend.measure.counters import GENERATED, gained
from backend.measure.workload import read_prompts, request
from backend.records import Counter, Record, Request
from backend.spec import SweepSpec

from .conftest import Running, spec_on

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]
CLOCK_BOUND_S = 0.008  # design: beyond max(2 % of the request, 8 ms) the clocks disagree
TRIES = 3  # a chunk may be late once on a busy machine


def record(running: Running, spec: SweepSpec, *, streaming: bool = False, engine_clock: bool = True) -> list[Record]:
    """Warm-up and MEASURE of the spec's first cell on the running server."""
    kept: list[Record] = []
    cell = spec.cells()[0]
    with Client(running.server.base_url, 120, cell.concurrency) as client:
        bench = Bench(
            spec,
            client,
            running.ready.model_name,
            3,
            f"{spec.name}:r000b0k3a1",
            streaming,
            engine_clock,
            read_prompts(spec.workload.prompts),
            kept.extend,
            lambda *_: None,
        )
        ids = prompt_ids(bench, cell)
        warm_up(bench, cell, ids)
        measure(bench, cell, ids, seed=1)
    return kept


def measured(kept: Sequence[Record]) -> list[Request]:
    return [row for row in kept if isinstance(row, Request) and row.phase == "measure"]


def findings(requests: Sequence[Request]) -> dict[str, float | None]:
    frame = pd.DataFrame([asdict(row) for row in requests])
    cells = frame[["run_id", "cell_id"]].drop_duplicates().assign(sweep="smoke", k=3)
    return {finding.code: finding.figure for finding in request_findings(cells, frame, "smoke")}


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Threads that fight our client for this interpreter, as a busy notebook or exporter would."""
    done = threading.Event()

    def spin() -> None:
        while not done.is_set():
            pass

    threads = [threading.Thread(target=spin) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_the_two_clocks_agree_and_a_starved_client_is_found_out(running: Running) -> None:
    """Client total against queue + prefill + window of the engine, per request; then with busy loops in the client."""
    spec = spec_on(running.port, max_tokens=160, repeats=2)
    quiet = measured(record(running, spec))
    excess = [row.client_total_s - row.ttft_s - row.decode_s for row in quiet]  # type: ignore[operator]
    allowed = [max(CLOCK_BOUND_S, 0.02 * row.client_total_s) for row in quiet]  # type: ignore[operator]
    within = sum(0 <= over <= bound for over, bound in zip(excess, allowed, strict=True))
    assert within >= 0.75 * len(quiet), f"excess in ms: {[round(1000 * over, 1) for over in excess]}"
    with busy_loops(4):
        starved = measured(record(running, spec))
    assert [row.output_hash for row in sorted(starved, key=by_prompt)] == [
        row.output_hash for row in sorted(quiet, key=by_prompt)
    ]
    assert "client-starved" in findings(starved)


def by_prompt(row: Request) -> tuple[str, int]:
    return row.prompt_id, row.request_index


def test_streaming_gives_the_same_tokens_and_window(running: Running) -> None:
    """The fallback's clock (first to last chunk) against the engine's own window of the very same requests."""
    workload = spec_on(running.port, max_tokens=128).workload
    with Client(running.server.base_url, 120) as client:
        for prompt in read_prompts(running.spec.workload.prompts):
            path, body = request(workload, running.ready.model_name, prompt, None)
            plain = client.ask(path, body)
            apart_s = []
            for _ in range(TRIES):
                streamed = client.ask_streaming(path, body)
                assert streamed.token_ids == plain.token_ids
                assert streamed.usage["completion_tokens"] == plain.usage["completion_tokens"] == 128
                assert streamed.first_chunk_tokens == 1
                window_s = streamed.last_chunk_s - streamed.first_chunk_s  # type: ignore[operator]
                engine_s = streamed.metrics["generation_time_ms"] / 1000
                apart_s.append(window_s - engine_s)
                if abs(apart_s[-1]) <= max(CLOCK_BOUND_S, 0.02 * engine_s):
                    break
            else:
                raise AssertionError(f"{prompt.prompt_id}: the clocks were apart in every try: {apart_s} s")


def test_an_engine_without_own_times_is_measured_by_stream_and_counters(running: Running) -> None:
    """The whole fallback path: the same drafts, steps and tokens as the engine's own figures."""
    spec = spec_on(running.port)
    own = sorted(measured(record(running, spec)), key=by_prompt)
    fallback = sorted(measured(record(running, spec, streaming=True, engine_clock=False)), key=by_prompt)
    for left, right in zip(own, fallback, strict=True):
        assert left.token_ids == right.token_ids
        assert (left.steps, left.drafted_steps, left.accepted_tokens) == (
            right.steps,
            right.drafted_steps,
            right.accepted_tokens,
        )


def test_aggregate_throughput_of_two_clients(running: Running) -> None:
    """Concurrency 2: the busy span is there, inside the phase, and its tokens are the engine's."""
    spec = spec_on(running.port, concurrency=[2], repeats=6, forced={"starts": 0})
    kept = record(running, spec)
    counters = [row for row in kept if isinstance(row, Counter)]
    busy = [row for row in counters if row.span == "busy" and row.name == GENERATED]
    phase = [row for row in counters if row.span == "phase" and row.name == GENERATED]
    total = sum(row.output_tokens or 0 for row in measured(kept))
    assert gained(phase, GENERATED) == total == 24 * spec.workload.max_tokens
    assert 0.5 * total < (gained(busy, GENERATED) or 0) < total
    assert phase[0].before_unix_s <= busy[0].before_unix_s < busy[0].after_unix_s <= phase[0].after_unix_s


def test_too_few_requests_have_no_aggregate_throughput(running: Running) -> None:
    kept = record(running, spec_on(running.port, concurrency=[2], repeats=1, forced={"starts": 0}))
    assert not [row for row in kept if isinstance(row, Counter) and row.span == "busy"]


def test_a_running_endpoint_is_measured_and_left_alone(running: Running, tmp_path: Path) -> None:
    spec = spec_on(running.port, base_url=running.server.base_url + "/v1", depths=[3])
    server = engine_for(spec).launch(3, tmp_path / "log", tmp_path / "lease")
    assert server.wait_ready().reported_k == 3
    assert server.stop() == 0.0
    assert running.server.alive()


LAUNCH_SCRIPT = """#!/bin/sh
# A lab's launch script: the depth comes in its environment, nothing else is known of us.
exec {python} -m vllm.entrypoints.openai.api_server --model {target} --port "$1" --host 127.0.0.1 \\
  --dtype float32 --enforce-eager --max-model-len 512 --max-num-seqs 4 --no-enable-prefix-caching \\
  --kv-cache-memory-bytes 268435456 \\
  --enable-per-request-metrics --per-request-spec-decode-metrics detailed \\
  --speculative-config '{{"method": "draft_model", "model": "{draft}", "num_speculative_tokens": '"$DSPARK_K"'}}'
"""


def test_a_launch_script_gives_the_same_tokens(running: Running, tmp_path: Path) -> None:
    """`command` launcher: DSPARK_K={k} in the environment of a script, as GB10 recipes do it."""
    spec = running.spec
    script = tmp_path / "serve.sh"
    script.write_text(
        LAUNCH_SCRIPT.format(python=spec.server.python, target=spec.target.model, draft=spec.speculator.model)
    )
    script.chmod(0o755)
    other = spec_on(
        running.port + 1, launcher="command", argv=[str(script), "{port}"], env={**spec.server.env, "DSPARK_K": "{k}"}
    )
    server = engine_for(other).launch(3, tmp_path / "log", tmp_path / "lease")
    try:
        ready = server.wait_ready()
        assert ready.reported_k == 3
        theirs = measured(record(Running(other, server, ready, running.port + 1), other))
    finally:
        server.stop()
    ours = measured(record(running, spec))
    assert {row.prompt_id: row.token_ids for row in theirs} == {row.prompt_id: row.token_ids for row in ours}
