"""What was measured: frozen records, one class a table, one field a column, units in the names.

The journal writes them as JSON lines, the store inserts them by name. None means "not measured" and is
never replaced by 0. `derived.py` turns the arrays of a request into the rows of tables `step` and `stage_time`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

Source = Literal["measured", "imported", "published", "simulated"]
# An anchor is a K=0 run at a sweep's end, for drift only; a diagnostic run is eager and only timed inside. Neither is
# in fits or n_runs, and neither gives throughput.
Role = Literal["arm", "anchor", "diagnostic"]
RunStatus = Literal["running", "done", "failed", "interrupted"]
Phase = Literal["warmup", "measure", "instrument", "forced"]
Severity = Literal["info", "warning", "error"]
# Pseudo stages where the probe was on in every other step: a whole step, by whether its stages were recorded. The probe
# has its own copy of the names, since it imports nothing of ours.
STEP_TOTALS = ("step_unprobed", "step_probed")


@dataclass(frozen=True, slots=True)
class Sweep:
    """A depth sweep: one target, one speculator, one workload, several depths. Key: `sweep`."""

    sweep: str
    source: Source
    created_unix_s: float | None
    description: str
    target_model: str
    target_revision: str | None
    speculator_method: str | None
    speculator_model: str | None
    speculator_revision: str | None
    max_depth: int | None
    seed: int | None
    blocks: int | None
    reference_depths: dict[str, int]  # name (production, recipe, native) -> K
    spec_toml: str | None  # the spec as it was run, verbatim
    code_version: str


@dataclass(frozen=True, slots=True)
class Cell:
    """A measuring condition inside every run of a sweep (split plot). Key: `cell_id`."""

    cell_id: str  # "<sweep>:<concurrency>x<context or 'text'>:<workload>"
    sweep: str
    concurrency: int
    context_tokens: int | None  # None: prompts as written
    workload: str
    endpoint: str | None
    max_tokens: int | None
    temperature: float | None
    ignore_eos: bool | None


@dataclass(frozen=True, slots=True)
class Run:
    """One launch of one depth in one block (whole plot). Key: `run_id`.

    `valid` is False only on K-blind evidence (see `exclusion_reason`); a failed run keeps its rows.
    """

    run_id: str  # "<sweep>:r<order_index>b<block>k<k>a<attempt>"
    sweep: str
    k: int
    block: int | None
    order_index: int | None
    attempt: int
    role: Role
    status: RunStatus
    reason: str | None
    valid: bool
    exclusion_reason: str | None
    started_unix_s: float | None
    ended_unix_s: float | None
    server_start_s: float | None  # launch to ready
    server_stop_s: float | None
    reported_k: int | None  # what the server itself says
    command: str | None  # argv, shell-quoted, ready to paste
    env: dict[str, str] | None  # what was set on top of the inherited environment
    log_path: str | None


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Times are the engine's clock when `clock` is "engine". Key: `request_id`.

    decode_s: first token to last token. prefill_s: scheduled to first token (what vLLM calls
    time_to_first_token). ttft_s = queue_s + prefill_s. steps: all decode steps, drafted or not; drafted_steps:
    those that carried a draft. step_drafted / step_accepted: one entry per drafted step, in order. replayed_tokens: how
    many output tokens of an earlier answer were sent as prompt (phase "forced" only); token_ids begins with them.
    """

    request_id: str  # "<run_id>:<cell suffix>:<phase>:<request_index>"
    run_id: str
    cell_id: str
    phase: Phase
    request_index: int
    prompt_id: str
    category: str | None
    probe_on: bool | None  # INSTRUMENT only: was the probe recording; None: in every other step
    started_unix_s: float | None
    client_total_s: float | None
    clock: Literal["engine", "client"] | None
    queue_s: float | None
    prefill_s: float | None
    ttft_s: float | None
    decode_s: float | None
    prompt_tokens: int | None
    output_tokens: int | None
    steps: int | None
    drafted_steps: int | None
    drafted_tokens: int | None
    accepted_tokens: int | None
    step_drafted: tuple[int, ...] | None
    step_accepted: tuple[int, ...] | None
    token_ids: tuple[int, ...] | None
    output_hash: str | None
    finish_reason: str | None
    error: str | None
    replayed_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Counter:
    """A /metrics sample before and after a span. Key: run_id, cell_id, phase, span, name, labels.

    span "phase": around the whole phase of a cell; "busy": while all concurrency slots were busy.
    Engines are kept apart by label; sum over them.
    """

    run_id: str
    cell_id: str
    phase: Phase
    span: Literal["phase", "busy"]
    name: str
    labels: str  # canonical: k="v" sorted, comma-joined
    before: float | None  # None: the series did not exist yet
    after: float
    before_unix_s: float
    after_unix_s: float


@dataclass(frozen=True, slots=True)
class StageTimes:
    """What one rank's probe recorded of one request (INSTRUMENT only), columnar. Key: request_id, rank.

    Column c is stages[c] at draft position positions[c] (-1: none); durations_us[s][c] is its time in step s, None
    where it did not run. The rows are engine steps from `first_step` on; step 0 is the prefill's last, 1, 2, ... are
    the decode steps. Stages are exclusive: none contains time of another.
    """

    run_id: str
    cell_id: str
    request_id: str
    request_index: int
    rank: int
    source: Literal["cuda_event", "perf_counter"]
    truncated: bool  # the probe's memory bound was reached: later steps are missing
    first_step: int
    stages: tuple[str, ...]
    positions: tuple[int, ...]
    durations_us: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class PowerSample:
    """One reading on one node. Key: run_id, node, scope, source, t_unix_s."""

    run_id: str
    node: str
    t_unix_s: float
    power_w: float | None
    energy_j: float | None
    temp_c: float | None
    sm_clock_mhz: float | None
    scope: str  # what the sensor covers: "gpu", "soc", "wall", ...
    source: str  # which sensor: "nvml", "hwmon", ...
    unsupported_reason: str | None


@dataclass(frozen=True, slots=True)
class Canary:
    """A fixed small computation timed around a run, to see hidden machine states. Key: run_id, node, moment, kind."""

    run_id: str
    node: str
    moment: Literal["before", "after"]
    kind: str
    duration_s: float | None
    reason: str | None  # why there is no value


@dataclass(frozen=True, slots=True)
class Environment:
    """One named fact about the machine or engine of a run. Key: run_id, node, name."""

    run_id: str
    node: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed, with evidence. Key: run_id, kind."""

    run_id: str
    kind: str
    reason: str
    log_tail: str
    unix_s: float


@dataclass(frozen=True, slots=True)
class Finding:
    """A check that has something to say. Key: sweep, run_id, cell_id, code ('' where it does not apply)."""

    sweep: str
    run_id: str
    cell_id: str
    code: str
    severity: Severity
    figure: float | None
    unit: str
    message: str
    action: str  # what to do


@dataclass(frozen=True, slots=True)
class ReportedValue:
    """A figure that another tool or a publication reports. Key: run_id, cell_id, quantity.

    Quantities are named like the columns of `k_summary` (decode_tok_s, tokens_per_step, acceptance_length,
    power_w, tokens_per_joule) or `survival_<position>`.
    """

    run_id: str
    cell_id: str
    quantity: str
    value: float
    unit: str
    note: str


Record = (
    Sweep
    | Cell
    | Run
    | Request
    | Counter
    | StageTimes
    | PowerSample
    | Canary
    | Environment
    | Failure
    | Finding
    | ReportedValue
)


def token_hash(prompt_id: str, tokens: tuple[int, ...]) -> str:
    """Hash of a prompt's id and the tokens emitted so far; 16 hex digits of BLAKE2b."""
    return hashlib.blake2b(f"{prompt_id}|{','.join(map(str, tokens))}".encode(), digest_size=8).hexdigest()
