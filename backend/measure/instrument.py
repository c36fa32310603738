"""INSTRUMENT: some prompts of a cell asked again with the probe on, off, off, on, then four times in every other step.

Same server, same prompt, and orders in which a linear drift cancels. The stage times come from the requests that had
the probe on; its overhead is the ratio of the steps of the last four, which lie milliseconds apart, since requests lie
seconds apart and a shared machine changes by more than the overhead from one to the next. Nothing here counts as
throughput. The probe is driven over
vLLM's /collective_rpc, which every rank answers; without it the run is kept, and a finding says why it has no times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backend.errors import RunFailed
from backend.measure.cell import Bench
from backend.measure.counters import scrape
from backend.measure.observe import Slot
from backend.measure.workload import Prompt, ordered
from backend.records import STEP_TOTALS, Cell, Finding, Request, StageTimes

# What a prompt's requests ask of the probe; the order changes from prompt to prompt, so that no arm always comes first.
ARMS = (
    ("on", "off", "off", "on", *["alternate"] * 4),
    (*["alternate"] * 4, "off", "on", "on", "off"),
)
REQUESTS_A_PROMPT = len(ARMS[0])
PROBE_ON = {"on": True, "off": False, "alternate": None}
VERIFY = "verify_forward"  # every engine step that decodes or prefills has it


def instrument(bench: Bench, cell: Cell, ids: dict[str, list[int]], seed: int) -> None:
    """Time the proposer in one cell. Raises RunFailed where a request fails, as in MEASURE."""
    count = bench.spec.timed_prompts
    if not count:
        return
    if cell.concurrency != 1:
        return  # a step is then several requests' at once
    try:
        missing = _missing_hooks(bench)
    except RunFailed as failure:
        bench.sink([_unavailable(bench, cell, failure)])
        return
    if missing:
        bench.sink([_hooks_missing(bench, cell, missing)])
    chosen = ordered(_spread(bench.prompts, count), 1, seed)
    index = 0
    for turn, prompt in enumerate(chosen):
        for arm in ARMS[turn % 2]:
            slot = Slot(bench.run_id, cell.cell_id, "instrument", index, probe_on=PROBE_ON[arm])
            _rpc(bench, "probe_begin", arm)  # off asks too: all arms meet an engine that was just spoken to
            page = scrape(bench.client.http) if bench.pages_between else None
            record, _ = bench.ask(slot, prompt, ids.get(prompt.prompt_id), page)
            ends = _rpc(bench, "probe_end")
            if arm != "off":
                bench.sink([_stage_times(record, end, _rows(bench, ends, rank)) for rank, end in enumerate(ends)])
            index += 1
            bench.tick("instrument", index, REQUESTS_A_PROMPT * len(chosen))


def _spread(prompts: tuple[Prompt, ...], count: int) -> tuple[Prompt, ...]:
    """`count` prompts evenly over the file, the same in every run: depths are timed on equal work."""
    count = min(count, len(prompts))
    return tuple(prompts[turn * len(prompts) // count] for turn in range(count))


def _rpc(bench: Bench, method: str, *arguments: Any) -> list[dict[str, Any]]:
    """Every rank's answer. Raises RunFailed(kind="probe") where there is no such method or endpoint."""
    try:
        return bench.client.collective_rpc(method, arguments)
    except RunFailed as failure:
        raise RunFailed(
            f"the probe does not answer: {failure.what}", kind="probe", where=failure.where, fix=failure.fix
        ) from None


def _missing_hooks(bench: Bench) -> tuple[str, ...]:
    """Hooks that this vLLM does not have, over all ranks; the probe is off again afterwards."""
    answers = _rpc(bench, "probe_begin", "on")
    _rpc(bench, "probe_end")
    return tuple(sorted({name for answer in answers for name in answer["missing"]}))


def _rows(bench: Bench, ends: list[dict[str, Any]], rank: int) -> list[list[float | None]]:
    """All recorded steps of one rank, page by page."""
    rows: list[list[float | None]] = []
    while len(rows) < int(ends[rank]["steps"]):
        page = _rpc(bench, "probe_page", len(rows))[rank]["rows"]
        if not page:
            break
        rows += page
    return rows


def _stage_times(request: Request, end: dict[str, Any], rows: Sequence[list[float | None]]) -> StageTimes:
    """Decode steps become 1, 2, ...: the request's last `steps` engine steps that ran the target.

    Where the probe was on in every other step only their totals are kept: a request's stages are of all its steps.
    """
    columns = [(str(stage), int(position)) for stage, position in end["columns"]]
    verify = [place for place, (stage, _) in enumerate(columns) if stage == VERIFY]
    while rows and not any(rows[-1][place] for place in verify):
        rows = rows[:-1]  # the engine's last look at a finished request runs no model
    totals = [place for place, (stage, _) in enumerate(columns) if stage in STEP_TOTALS]
    if totals:
        columns = [columns[place] for place in totals]
        rows = [[row[place] for place in totals] for row in rows]
    steps = request.steps if request.steps is not None else max(len(rows) - 1, 0)
    return StageTimes(
        run_id=request.run_id,
        cell_id=request.cell_id,
        request_id=request.request_id,
        request_index=request.request_index,
        rank=int(end["rank"]),
        source=end["source"],
        truncated=bool(end["truncated"]),
        first_step=1 - (len(rows) - steps),
        stages=tuple(stage for stage, _ in columns),
        positions=tuple(position for _, position in columns),
        durations_us=tuple(map(tuple, rows)),
    )


def _unavailable(bench: Bench, cell: Cell, failure: RunFailed) -> Finding:
    return Finding(
        bench.spec.name,
        bench.run_id,
        cell.cell_id,
        "probe-unavailable",
        "warning",
        None,
        "",
        f"no stage times: {failure.what}",
        "start the server with --worker-extension-cls, PYTHONPATH and VLLM_SERVER_DEV_MODE=1, or timing.prompts = 0",
    )


def _hooks_missing(bench: Bench, cell: Cell, missing: tuple[str, ...]) -> Finding:
    return Finding(
        bench.spec.name,
        bench.run_id,
        cell.cell_id,
        "probe-hook-missing",
        "warning",
        float(len(missing)),
        "hooks",
        f"this vLLM has no {', '.join(missing)}: the stages they time are NULL",
        "the version of vLLM is newer or older than those this was tested with; see backend/probe",
    )
