"""The stage timers that run INSIDE vLLM's worker processes. Needs torch and the standard library, nothing of ours.

Loaded with `--worker-extension-cls sounding_probe.stages.StageProbe` and the folder above on PYTHONPATH; driven by POST
/collective_rpc (VLLM_SERVER_DEV_MODE=1, loopback only), which every rank answers. Until `probe_begin` nothing is
wrapped, and `probe_end` takes every wrapper off again: between the two calls, and only there, it costs something.

A TAPE holds a mark whenever a hooked function is entered or left: the time, and the stage that runs from now on. The
time between two marks belongs to exactly one stage, so stages are exclusive leaves, and a container's own code is a
stage of its own. What runs outside every hook belongs to none: the books against the engine's clock show how much.

In mode "alternate" the tape records step on, off, off, on, ...: its two kinds of step lie so close together that what
the machine does to one it does to the other, and their ratio is what recording costs.

On CUDA a mark is an event on the current stream, read once at the end of a request, so that no step synchronises.
Elsewhere it is time.perf_counter.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from array import array
from collections.abc import Callable
from typing import Any

from .hooks import HOOKS, STEP_ENDS, STEP_TOTALS, Hook

MAX_MARKS = 1_000_000  # 16 bytes each: at most 16 MB a rank between two drains; recording then stops and says so
MAX_EVENTS = 100_000  # CUDA events are objects of the driver as well
PAGE_STEPS = 256
OUTSIDE = 0
VERIFYING = ("verify_forward", "target_logits")
POSITIONS = 1 << 8  # a mark's number: stage x POSITIONS + draft position + 1, and from END on which step end it was
END = 1 << 24


class Tape:
    """Marks of one rank: what runs from then on, and when that was. `stack[-1]` is what runs now.

    Only the thread that made it records: vLLM's output threads call nothing that is hooked.
    """

    def __init__(self, cuda: bool, alternate: bool = False) -> None:
        self.cuda = cuda
        self.alternate = alternate
        self.recording = [True]  # one cell, so that a wrapper sees it change
        self.recorded: tuple[list[bool], ...] = ([], [], [])  # by step end: whether the step that ended was recorded
        self.limit = MAX_EVENTS if cuda else MAX_MARKS
        self.names: list[str] = ["outside"]
        self.thread = threading.get_ident()
        self.stack = [OUTSIDE]
        self.marks = array("L")
        self.times: Any = [] if cuda else array("d")
        self.now: Callable[[], Any] = self._events() if cuda else time.perf_counter
        self.calls: dict[int, int] = {}  # stage -> its calls in this proposal
        self.truncated = False

    def _events(self) -> Callable[[], Any]:
        """Record an event on the current stream: the device's own time, read when the request is over."""
        import torch  # only where there is a stream to put events on

        self._torch = torch

        def record() -> Any:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            return event

        return record

    def code(self, stage: str) -> int:
        """Number of a stage."""
        if stage not in self.names:
            self.names.append(stage)
        return self.names.index(stage)

    def step_ended(self, end: int) -> None:
        """Note whether the step was recorded, and in mode "alternate" whether the next one is: on, off, off, on."""
        ended = self.recorded[end]
        ended.append(self.recording[0])
        if self.alternate and (end == 1 or not self.recorded[1]):  # the end that counts, see `table`
            self.recording[0] = len(ended) % 4 in (0, 3)

    def intervals_us(self) -> list[float]:
        """Time from each mark to the next, microseconds. Synchronises once on CUDA."""
        pairs = zip(self.times, self.times[1:], strict=False)
        if not self.cuda:
            return [(later - now) * 1e6 for now, later in pairs]
        self._torch.cuda.synchronize()
        return [now.elapsed_time(later) * 1e3 for now, later in pairs]

    def table(self) -> tuple[list[tuple[str, int]], list[list[float | None]]]:
        """Columns (stage, position) and a row per step, microseconds; None where a stage did not run in that step."""
        ends = [mark // END for mark in self.marks]
        end = next((number for number in (1, 2) if number in ends), 0)
        totals = [self.code(name) * POSITIONS for name in STEP_TOTALS] if self.alternate else []
        columns = {what: column for column, what in enumerate(totals)}
        steps: list[dict[int, float]] = [{}]
        for index, interval in enumerate([*self.intervals_us(), 0.0][: len(ends)]):
            if end and ends[index] == end:
                steps.append({})
            what = self.marks[index] % END
            step = len(steps) - 1
            probed = step < len(self.recorded[end]) and self.recorded[end][step]
            for part in [what, totals[probed]] if totals else [what]:
                if part != OUTSIDE and index < len(ends) - 1:
                    column = columns.setdefault(part, len(columns))
                    steps[-1][column] = steps[-1].get(column, 0.0) + interval
        # What follows the last end belongs to no step.
        rows = [[_rounded(step.get(column)) for column in range(len(columns))] for step in steps[:-1]]
        return [(self.names[what // POSITIONS], what % POSITIONS - 1) for what in columns], rows


def _rounded(duration_us: float | None) -> float | None:
    return None if duration_us is None else round(duration_us, 1)


class Wrappers:
    """Hooks put on, and taken off without a trace."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.installed: list[tuple[Any, str, bool, Any]] = []  # owner, attribute, was it the owner's own, what it was
        self.missing: list[str] = []

    def install(self, worker: Any) -> None:
        """Wrap every hook that this worker's kind of runner has; name those that should be there and are not."""
        version = "v2" if ".gpu." in type(worker.model_runner).__module__ else "v1"
        for hook in HOOKS:
            if hook.runner not in ("", version):
                continue
            owner = _owner(worker, hook.owner)
            if owner is None:
                continue
            if callable(getattr(owner, hook.attribute, None)):
                self._wrap(owner, hook)
            elif hook.required:
                self.missing.append(f"{hook.owner}.{hook.attribute}")

    def _wrap(self, owner: Any, hook: Hook) -> None:
        tape, original = self.tape, getattr(owner, hook.attribute)
        stage = tape.code(hook.stage)
        end = END * (STEP_ENDS.index(hook.attribute) + 1) if hook.attribute in STEP_ENDS else 0
        what, plain = self._what(hook, stage), stage * POSITIONS
        # A span costs microseconds of a step of milliseconds, so all it needs is at hand: no attribute is looked up.
        get_ident, thread, limit, now = threading.get_ident, tape.thread, tape.limit, tape.now
        stack, marks, times = tape.stack, tape.marks, tape.times
        push, pop, mark, at = stack.append, stack.pop, marks.append, times.append
        recording = [True] if hook.every_step else tape.recording

        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not recording[0] or get_ident() != thread or len(times) >= limit:
                tape.truncated |= len(times) >= limit
                return original(*args, **kwargs)
            runs = what() if what else plain
            push(runs)
            mark(runs)
            at(now())
            try:
                return original(*args, **kwargs)
            finally:
                pop()
                mark(stack[-1] + end)
                at(now())
                if end:
                    tape.step_ended(end // END)

        own = hook.attribute in vars(owner)
        self.installed.append((owner, hook.attribute, own, vars(owner).get(hook.attribute)))
        setattr(owner, hook.attribute, timed)

    def _what(self, hook: Hook, stage: int) -> Callable[[], int] | None:
        """What a call of this hook runs, stage and position, by what it is called in; None: always the stage."""
        tape, calls, stack, plain = self.tape, self.tape.calls, self.tape.stack, stage * POSITIONS

        def by_position() -> int:
            position = calls.get(stage, 0)
            calls[stage] = position + 1
            return plain + position + 1

        def beginning() -> int:
            if not any(tape.names[runs // POSITIONS].startswith("draft") for runs in stack):
                calls.clear()
            return plain

        def collective() -> int:
            """Of the drafter or of the target, at the position of what it is called in."""
            inside = tape.names[stack[-1] // POSITIONS]
            side = "draft" if inside.startswith("draft") else "verify" if inside in VERIFYING else None
            if "collective" in inside:
                return stack[-1]
            return (tape.code(f"{side}_collective") if side else stage) * POSITIONS + stack[-1] % POSITIONS

        if hook.stage == "collective":
            return collective
        if hook.by_position:
            return by_position
        return beginning if hook.stage == "draft_prepare" or hook.attribute == "propose" else None

    def remove(self) -> None:
        """Put everything back as it was."""
        for owner, attribute, own, before in reversed(self.installed):
            if own:
                setattr(owner, attribute, before)
            else:
                delattr(owner, attribute)
        self.installed.clear()


def _owner(worker: Any, path: str) -> Any:
    """The object that a hook's `owner` names, None where this server has none."""
    runner = worker.model_runner
    if ":" in path:
        module, _, name = path.partition(":")
        found = sys.modules.get(module)  # vLLM has imported what it uses
        return getattr(found, name, None) if name else found
    drafter = getattr(runner, "drafter", None) or getattr(runner, "speculator", None)
    find: dict[str, Callable[[], Any]] = {
        "runner": lambda: runner,
        "graphs": lambda: getattr(runner, "cudagraph_manager", None),
        "block_table": lambda: getattr(getattr(runner, "input_batch", None), "block_table", None),
        "model": lambda: runner.get_model(),
        "rejection_sampler": lambda: getattr(runner, "rejection_sampler", None),
        "drafter": lambda: drafter,
        "drafter.model": lambda: getattr(drafter, "model", None),
    }
    return find[path]()


class StageProbe:
    """Mixed into vLLM's Worker by --worker-extension-cls: `self` is the worker. Every answer is a JSON object."""

    def probe_begin(self, mode: str = "on") -> dict[str, Any]:
        """Wrap the hooks and record from now on; "alternate": steps in turn; "off": nothing, but all ask alike."""
        self._end_recording()
        worker: Any = self
        tape = Tape(worker.device.type == "cuda", alternate=mode == "alternate")
        self._sounding = Wrappers(tape)
        if mode != "off":
            self._sounding.install(self)
        return {"rank": worker.rank, "missing": self._sounding.missing, "hooks": len(self._sounding.installed)}

    def probe_end(self) -> dict[str, Any]:
        """Stop recording, leave vLLM as it was, and say what was recorded; `probe_page` gives the rows."""
        self._end_recording()
        worker: Any = self
        wrappers: Wrappers | None = getattr(self, "_sounding", None)
        if wrappers is None:
            return {"rank": worker.rank, "columns": [], "steps": 0}
        columns, self._sounding_rows = wrappers.tape.table()
        return {
            "rank": worker.rank,
            "source": "cuda_event" if wrappers.tape.cuda else "perf_counter",
            "columns": columns,
            "steps": len(self._sounding_rows),
            "truncated": wrappers.tape.truncated,
        }

    def probe_page(self, first: int) -> dict[str, Any]:
        """Rows of PAGE_STEPS steps from `first` on: microseconds, in the order of `probe_end`'s columns."""
        worker: Any = self
        return {"rank": worker.rank, "rows": self._sounding_rows[first : first + PAGE_STEPS]}

    def _end_recording(self) -> None:
        if getattr(self, "_sounding", None) is not None:
            self._sounding.remove()
