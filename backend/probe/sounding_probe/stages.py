"""The stage timers that run INSIDE vLLM's worker processes. Needs torch and the standard library, nothing of ours.

Loaded with `--worker-extension-cls sounding_probe.stages.StageProbe` and the folder above on PYTHONPATH; driven by POST
/collective_rpc (VLLM_SERVER_DEV_MODE=1, loopback only), which every rank answers. Until `probe_begin` nothing is
wrapped, and `probe_end` takes every wrapper off again: between the two calls, and only there, it costs something.

A TAPE holds a mark whenever a hooked function is entered or left: which one, and the time. Played back after the
request, the time between two marks belongs to exactly one stage, so stages are exclusive leaves, and a container's own
code is a stage of its own. What runs outside every hook belongs to none: the books against the engine's clock show how
much.

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

MAX_MARKS = 1_000_000  # 10 bytes each: at most 10 MB a rank between two drains; recording then stops and says so
MAX_EVENTS = 100_000  # CUDA events are objects of the driver as well
PAGE_STEPS = 256
OUTSIDE = ("outside", -1)
VERIFYING = ("verify_forward", "target_logits")
Running = tuple[str, int]  # a stage and its draft position, -1 where it has none


class Tape:
    """Marks of one rank: the number of a hook where it is entered, its negative where it is left, and the times.

    Only the thread that made it records: vLLM's output threads call nothing that is hooked.
    """

    def __init__(self, cuda: bool, alternate: bool = False) -> None:
        self.cuda = cuda
        self.alternate = alternate
        self.recording = [True]  # one cell, so that a wrapper sees it change
        self.recorded: tuple[list[bool], ...] = ([], [], [])  # by step end: whether the step that ended was recorded
        self.limit = MAX_EVENTS if cuda else MAX_MARKS
        self.hooks: list[Hook] = []
        self.thread = threading.get_ident()
        self.marks = array("h")
        self.times: Any = [] if cuda else array("d")
        self.now: Callable[[], Any] = self._events() if cuda else time.perf_counter
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

    def running(self) -> list[tuple[Running, int]]:
        """For every mark what runs from it on, and which step end it was (0: none)."""
        stack: list[Running] = [OUTSIDE]
        calls: dict[str, int] = {}  # stage -> its calls in this proposal
        found = []
        for mark in self.marks:
            hook = self.hooks[abs(mark) - 1]
            if mark > 0:
                stack.append(_what(hook, stack, calls))
            elif len(stack) > 1:
                stack.pop()
            found.append((stack[-1], _end(hook) if mark < 0 else 0))
        return found

    def table(self) -> tuple[list[Running], list[list[float | None]]]:
        """Columns (stage, position) and a row per step, microseconds; None where a stage did not run in that step."""
        running = self.running()
        ends = [end for _, end in running]
        counts = next((number for number in (1, 2) if number in ends), 0)
        columns: dict[Running, int] = {(name, -1): at for at, name in enumerate(STEP_TOTALS if self.alternate else ())}
        steps: list[dict[Running, float]] = [{}]
        for (what, end), interval in zip(running, self.intervals_us(), strict=False):  # the last mark begins nothing
            if counts and end == counts:
                steps.append({})
            step = len(steps) - 1
            probed = step < len(self.recorded[counts]) and self.recorded[counts][step]
            for part in (what, (STEP_TOTALS[probed], -1)) if self.alternate else (what,):
                if part != OUTSIDE:
                    columns.setdefault(part, len(columns))
                    steps[-1][part] = steps[-1].get(part, 0.0) + interval
        if counts and ends[-1] != counts:
            steps.pop()  # what follows the last end belongs to no step
        rows = [[_rounded(step.get(column)) for column in columns] for step in steps if counts]
        return list(columns), rows


def _end(hook: Hook) -> int:
    """Which step end leaving this hook is: 1 or 2 of STEP_ENDS, 0: none."""
    return STEP_ENDS.index(hook.attribute) + 1 if hook.attribute in STEP_ENDS else 0


def _what(hook: Hook, stack: list[Running], calls: dict[str, int]) -> Running:
    """What a call of this hook runs, by what it is called in. `calls` is counted, anew in every proposal."""
    inside, position = stack[-1]
    if hook.stage == "collective":  # of the drafter or of the target, at the position of what it is called in
        side = "draft" if inside.startswith("draft") else "verify" if inside in VERIFYING else None
        return stack[-1] if "collective" in inside else (f"{side}_collective" if side else hook.stage, position)
    if hook.by_position:
        calls[hook.stage] = calls.get(hook.stage, -1) + 1
        return hook.stage, calls[hook.stage]
    begins = hook.stage == "draft_prepare" or hook.attribute == "propose"
    if begins and not any(stage.startswith("draft") for stage, _ in stack):
        calls.clear()
    return hook.stage, -1


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
        tape.hooks.append(hook)
        entered, left, end = len(tape.hooks), -len(tape.hooks), _end(hook)
        # A span costs microseconds of a step of milliseconds, most of them for memory that the models pushed out of the
        # caches: so it looks up nothing, and what it means is left to `Tape.running`.
        get_ident, thread, limit, now = threading.get_ident, tape.thread, tape.limit, tape.now
        times, mark, at = tape.times, tape.marks.append, tape.times.append
        recording = [True] if hook.every_step else tape.recording

        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not recording[0] or get_ident() != thread or len(times) >= limit:
                tape.truncated |= len(times) >= limit
                return original(*args, **kwargs)
            mark(entered)
            at(now())
            try:
                return original(*args, **kwargs)
            finally:
                mark(left)
                at(now())
                if end:
                    tape.step_ended(end)

        own = hook.attribute in vars(owner)
        self.installed.append((owner, hook.attribute, own, vars(owner).get(hook.attribute)))
        setattr(owner, hook.attribute, timed)

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
