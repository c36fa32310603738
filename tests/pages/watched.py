"""A sweep whose two nodes were watched: power by NVML and a counter, clocks, canaries; one run lost its readings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from backend.records import Canary, Environment, PowerSample, Record, Request, Run
from tests.pages.page_databases import build, cell_of, measured, run_of, sweep_of

NAME = "watched"
BASE_W, WATTS_PER_K = 40.0, 1.5  # a node's GPU power at K=0, and what a depth adds: the known truth
LOST = 5  # the run that loses its readings in the middle


def samples(run: Run, node: str, requests: list[Request], gone: bool) -> list[Record]:
    """Two a second from three seconds before to three seconds after; the machine takes 20 W more than its GPU."""
    begin = min(request.started_unix_s or 0.0 for request in requests) - 3
    end = max((request.started_unix_s or 0.0) + (request.client_total_s or 0.0) for request in requests) + 3
    out: list[Record] = []
    for index in range(int(2 * (end - begin))):
        t = begin + index / 2
        busy = begin + 2.4 <= t <= end - 2.4  # a second of idling on both sides
        watts = BASE_W + WATTS_PER_K * run.k + 0.1 * (index % 3) if busy else 12.0 + 0.1 * (index % 3)
        lost = gone and t > (begin + end) / 2
        clock = 2405.0 if busy else 210.0
        reason = "GPU is lost" if lost else None
        out.append(PowerSample(run.run_id, node, t, None if lost else watts, None, 61.0, clock, "gpu", "nvml", reason))
        joules = 1e6 + 65.0 * (t - begin)
        out.append(PowerSample(run.run_id, node, t, None, joules, 61.0, clock, "node", "hwmon", None))
    return out


def sweep() -> dict[str, list[list[Record]]]:
    """K = 0..3 in two blocks, on nodes a and b; node b has no counter."""
    cell = cell_of(NAME)
    runs: list[list[Record]] = []
    for order in range(8):
        run = run_of(NAME, order, order // 4, order % 4)
        records = measured(run, cell)
        spaced = [
            replace(record, started_unix_s=(run.started_unix_s or 0) + 2 * record.request_index)
            if isinstance(record, Request)
            else record
            for record in records
        ]
        requests = [record for record in spaced if isinstance(record, Request)]
        for node in ("spark-a", "spark-b"):
            found = samples(run, node, requests, gone=order == LOST and node == "spark-b")
            spaced += [
                s for s in found if not (isinstance(s, PowerSample) and (s.source, node) == ("hwmon", "spark-b"))
            ]
            spaced.append(Environment(run.run_id, node, "gpu_name", "NVIDIA GB10"))
            for moment in ("before", "after"):
                spaced.append(Canary(run.run_id, node, moment, "gemv 8192 float16 torch cuda", 0.00051, None))
        runs.append(spaced)
    return {NAME: [[sweep_of(NAME), cell], *runs]}


def database(directory: Path) -> Path:
    """The data directory of that sweep."""
    return build(directory, sweep(), {})
