"""SweepSpec: what to sweep, as frozen models. `spec_file.py` reads one, `preflight.py` checks it on the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, field_validator, model_validator

from backend.records import Cell
from backend.spec_nodes import NAME_PATTERN, Node, Nodes, fault_of_nodes

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TIMED_PROMPTS = 8  # each asked four times


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


PILOT_BLOCKS = 5  # of [stop]; fewer make Stein's t quantile wide: 12.7 for two blocks, 2.8 for five


class Target(_Part):
    """The model that verifies. `model` is a local directory (relative to the spec) or a name the server knows."""

    model: str
    revision: str | None = None


class Speculator(_Part):
    """The drafter. `max_depth`: native depth, where its config.json does not say it.

    `config`: further keys of --speculative-config.
    """

    method: str
    model: str | None = None
    revision: str | None = None
    max_depth: PositiveInt | None = None
    config: dict[str, Any] = {}


class Workload(_Part):
    """What is asked of the server. `prompts`: JSON lines of {id, category, text}.

    `extra_body` goes into every request as written (reasoning switches, sampling the engine knows);
    `chat_template_kwargs` only into chat requests.
    """

    name: str = Field(default="default", pattern=NAME_PATTERN)
    prompts: Path
    endpoint: Literal["completions", "chat"] = "completions"
    chat_template: Path | None = None
    chat_template_kwargs: dict[str, Any] = {}
    extra_body: dict[str, Any] = {}
    max_tokens: PositiveInt
    temperature: float = Field(default=0.0, ge=0)
    ignore_eos: bool = False
    warmup_requests: int = Field(default=4, ge=0)
    repeats: PositiveInt = 1  # passes over the prompt file in MEASURE


class Server(_Part):
    """How one server for one K is started and stopped. Every timeout is a setting, in seconds.

    launcher "vllm": `python -m vllm...` with `argv` added, `argv_speculative` only for K >= 1.
    launcher "nnodes": `vllm serve` on every [[node]], rank by rank; "ray": on the first, in a running Ray cluster.
    launcher "command": `argv` is the whole command; {k}, {k_plus_1}, {capture_sizes} and {port} are filled in, in
    `env` too.
    `base_url`: a server that already runs; nothing is launched, so only one depth can be asked.
    """

    launcher: Literal["vllm", "command", "nnodes", "ray"] = "vllm"
    python: Path = Path("python")
    argv: tuple[str, ...] = ()
    argv_speculative: tuple[str, ...] = ()
    env: dict[str, str] = {}
    base_url: str | None = None
    host: str = "127.0.0.1"
    port: int = Field(default=18931, ge=1024, le=65535)
    kv_cache_bytes: PositiveInt | None = None  # pinned: without a drafter K=0 would get a larger cache
    transport: Literal["auto", "engine", "stream"] = "auto"
    ready_timeout_s: float = Field(default=900, gt=0)
    stall_timeout_s: float = Field(default=300, gt=0)  # no new log line while loading
    request_timeout_s: float = Field(default=600, gt=0)
    stop_timeout_s: float = Field(default=60, gt=0)
    release_timeout_s: float = Field(default=30, gt=0)
    settle_s: float = Field(default=0, ge=0)
    retries: int = Field(default=1, ge=0)


class Timing(_Part):
    """INSTRUMENT: after MEASURE, some prompts again with the proposer timed from inside, probe on, off, off, on.

    `prompts`: how many; None: 8 where we launch vLLM ourselves, else none (a launch script must load the probe, see
    `engines/command.py`; on Ray's workers it must lie on PYTHONPATH). `alone`: time without MEASURE, which gives no
    throughput (`time-proposer`).
    """

    prompts: int | None = Field(default=None, ge=0)
    alone: bool = False
    # One more run per drafted depth with --enforce-eager: stages that a captured CUDA graph hides, never throughput.
    diagnostic: bool = False


class Forced(_Part):
    """Forced starts: after MEASURE, `starts` prefixes of every prompt's recorded output are replayed at every depth.

    They tell an effect of depth on acceptance from steps that start at different places; no throughput counts them.
    """

    starts: int = Field(default=0, ge=0)  # a prompt; 0: none


class Stop(_Part):
    """How many blocks: Stein's rule, computed once after the pilot, which is `blocks` (5 or more). Half-widths of 95%.

    decode_tok_s_percent: of every depth's throughput; t_draft_ms: of the fit's t_draft. `max_blocks` bounds the cost.
    """

    decode_tok_s_percent: float | None = Field(default=None, gt=0, lt=100)
    t_draft_ms: float | None = Field(default=None, gt=0)
    max_blocks: PositiveInt = 50


class Expect(_Part):
    """Rough figures for the predicted hours that `check` prints; never used in any result."""

    server_start_s: float = Field(default=60, gt=0)
    decode_tok_s: float = Field(default=50, gt=0)


class SweepSpec(_Part):
    """A depth sweep. Depth 0 means the speculative config is absent."""

    name: str = Field(pattern=NAME_PATTERN)
    description: str = ""
    depths: tuple[int, ...] = Field(min_length=1)
    reference_depths: dict[str, int] = {}
    blocks: PositiveInt = 3
    anchors: bool = True  # K=0 first and last, for drift only; needs depth 0 among the depths
    seed: int = Field(ge=0, default=0)
    concurrency: tuple[PositiveInt, ...] = (1,)
    context_tokens: tuple[PositiveInt, ...] = ()  # empty: prompts as written
    data_dir: Path | None = None  # else SOUNDING_DATA, else data/local of the checkout
    target: Target
    speculator: Speculator
    workload: Workload
    server: Server
    nodes: Nodes = Nodes()
    timing: Timing = Timing()
    forced: Forced = Forced()
    node: tuple[Node, ...] = ()  # rank order; empty: this machine, unwatched
    stop: Stop | None = None
    expect: Expect = Expect()

    @field_validator("depths")
    @classmethod
    def _depths_are_distinct(cls, depths: tuple[int, ...]) -> tuple[int, ...]:
        if any(k < 0 for k in depths) or len(set(depths)) != len(depths):
            raise ValueError("depths must be distinct and not negative (0 is no speculation)")
        return depths

    @model_validator(mode="after")
    def _parts_fit_together(self) -> SweepSpec:
        deepest = max(self.depths)
        if self.speculator.max_depth is not None and deepest > self.speculator.max_depth:
            raise ValueError(
                f"depth {deepest} is above speculator.max_depth = {self.speculator.max_depth}; "
                "lower depths, or name the drafter that drafts so deep"
            )
        if self.server.base_url is not None and len(self.depths) > 1:
            raise ValueError("server.base_url is one running server, so it has one K; give depths one value")
        if self.server.launcher == "command" and not self.server.argv and self.server.base_url is None:
            raise ValueError("server.launcher = 'command' needs server.argv (the launch command) or server.base_url")
        if self.workload.endpoint == "chat" and self.context_tokens:
            raise ValueError(
                "context_tokens cuts prompts by token, which chat templates undo; "
                "use workload.endpoint = 'completions' or leave context_tokens out"
            )
        self._stop_can_be_decided()
        if len(set(self.concurrency)) != len(self.concurrency):
            raise ValueError("concurrency values must be distinct")
        if self.timed_prompts and self.server.host not in LOOPBACK:
            raise ValueError(
                f"timing opens vLLM's development endpoints, and server.host = '{self.server.host}' shows them to the "
                "network; use 127.0.0.1, or timing.prompts = 0"
            )
        if self.timing.alone and (not self.timed_prompts or 1 not in self.concurrency):
            raise ValueError("timing.alone measures nothing: it needs timing.prompts above 0 and concurrency 1")
        if self.timing.diagnostic and (self.server.launcher == "command" or not self.timed_prompts or self.stop):
            raise ValueError(
                "timing.diagnostic adds eager runs at the end: it needs a launcher of ours, timing.prompts above 0 "
                "and no [stop]"
            )
        if fault := fault_of_nodes(self.nodes, self.node) or self._fault_of_launcher() or self._fault_of_forced():
            raise ValueError(fault)
        return self

    @property
    def timed_prompts(self) -> int:
        """Prompts of INSTRUMENT; 0: the proposer is not timed."""
        if self.timing.prompts is not None:
            return self.timing.prompts
        ours = self.server.launcher in ("vllm", "nnodes") and self.server.base_url is None
        return TIMED_PROMPTS if ours else 0

    def _fault_of_forced(self) -> str | None:
        if not self.forced.starts:
            return None
        if self.workload.temperature > 0:
            return "forced.starts replays greedy outputs; use workload.temperature = 0, or forced.starts = 0"
        if self.workload.endpoint == "chat":
            return "forced.starts sends prompts as token ids; use workload.endpoint = 'completions'"
        if 1 not in self.concurrency or max(self.depths) == 0 or self.timing.alone:
            return "forced.starts needs concurrency 1, a depth above 0 and MEASURE; add them, or set forced.starts = 0"
        return None

    def _fault_of_launcher(self) -> str | None:
        launcher, nodes, server = self.server.launcher, self.node, self.server
        if launcher not in ("nnodes", "ray") or server.base_url is not None:
            return None
        if len(nodes) < (2 if launcher == "nnodes" else 1):
            return f"server.launcher = '{launcher}' needs a [[node]] for every machine, the head first"
        if not nodes[0].local and server.host in LOOPBACK:
            return (
                f"server.host = '{server.host}' cannot be reached from here, as the head is {nodes[0].name}; "
                "give its address on the network between you, or run the sweep there with host = 'local'"
            )
        return None

    def _stop_can_be_decided(self) -> None:
        stop = self.stop
        if stop is None:
            return
        if stop.decode_tok_s_percent is None and stop.t_draft_ms is None:
            raise ValueError("stop needs a target: decode_tok_s_percent or t_draft_ms")
        if not PILOT_BLOCKS <= self.blocks <= stop.max_blocks:
            raise ValueError(f"with [stop], blocks is the pilot: {PILOT_BLOCKS} or more, at most stop.max_blocks")
        if stop.t_draft_ms is not None and (0 not in self.depths or len(self.depths) < 3 or 1 not in self.concurrency):
            raise ValueError("stop.t_draft_ms needs depth 0, two depths above it, and concurrency 1")

    def cells(self) -> tuple[Cell, ...]:
        """The conditions measured inside every run: concurrency x context length x workload."""
        work = self.workload
        contexts: tuple[int | None, ...] = self.context_tokens or (None,)
        return tuple(
            Cell(
                f"{self.name}:c{concurrency}-{f'x{context}' if context else 'text'}-{work.name}",
                self.name,
                concurrency,
                context,
                work.name,
                work.endpoint,
                work.max_tokens,
                work.temperature,
                work.ignore_eos,
            )
            for concurrency in self.concurrency
            for context in contexts
        )
