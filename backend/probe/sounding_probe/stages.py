"""The stage timers that run INSIDE vLLM's worker processes. Needs torch and the standard library, nothing of ours.

Loaded with `--worker-extension-cls sounding_probe.stages.StageProbe` and the folder above on PYTHONPATH; driven by POST
/collective_rpc (VLLM_SERVER_DEV_MODE=1, loopback only), which every rank answers. Until `probe_begin` nothing is
wrapped, and `probe_end` takes every wrapper off again: between the two calls, and only there, it costs something.

A TAPE holds a mark whenever a hooked function is entered or left: the time, and the stage that runs from now on. The
time between two marks belongs to exactly one stage, so stages are exclusive leaves, and a container's own code is a
stage of its own. What runs outside every hook belongs to none: the books against the engine's clock show how much.

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

from .hooks import HOOKS, STEP_ENDS, Hook

MAX_MARKS = 1_000_000  # 16 bytes each: at most 16 MB a rank between two drains; recording then stops and says so
MAX_EVENTS = 100_000  # CUDA events are objects of the driver as well
PAGE_STEPS = 256
OUTSIDE = 0


class Tape:
    """Marks of one rank. Only the thread that made it records: vLLM's output threads call nothing that is hooked."""

    def __init__(self, cuda: bool) -> None:
        self.cuda = cuda
        if cuda:
            import torch  # only where there is a stream to put events on

            self.torch = torch
        self.limit = MAX_EVENTS if cuda else MAX_MARKS
        self.names: list[str] = ["outside"]
        self.thread = threading.get_ident()
        self.stack: list[tuple[int, int]] = []  # (stage, position) of what runs, outermost first
        self.reset()

    def reset(self) -> None:
        """Forget all marks; what runs now goes on running."""
        self.stages, self.positions, self.ends, self.times = array("H"), array("h"), array("b"), array("d")
        self.events: list[Any] = []
        self.calls: dict[int, int] = {}
        self.truncated = False

    def code(self, stage: str) -> int:
        """Number of a stage."""
        if stage not in self.names:
            self.names.append(stage)
        return self.names.index(stage)

    def mark(self, end: int = 0) -> None:
        """From now on the top of the stack runs. `end` > 0: a step ended here, by STEP_ENDS[end - 1]."""
        if len(self.stages) >= self.limit:
            self.truncated = True
            return
        if self.cuda:
            event = self.torch.cuda.Event(enable_timing=True)
            event.record()
            self.events.append(event)
        else:
            self.times.append(time.perf_counter())
        stage, position = self.stack[-1] if self.stack else (OUTSIDE, -1)
        self.stages.append(stage)
        self.positions.append(position)
        self.ends.append(end)

    def running(self, stage: int, position: int, end: int = 0) -> _Span:
        """A span in which a stage runs."""
        return _Span(self, stage, position, end)

    def intervals_us(self) -> list[float]:
        """Time from each mark to the next, microseconds. Synchronises once on CUDA."""
        if not self.cuda:
            return [(later - now) * 1e6 for now, later in zip(self.times, self.times[1:], strict=False)]
        self.torch.cuda.synchronize()
        return [now.elapsed_time(later) * 1e3 for now, later in zip(self.events, self.events[1:], strict=False)]

    def table(self) -> tuple[list[tuple[str, int]], list[list[float | None]]]:
        """Columns (stage, position) and a row per step, microseconds; None where a stage did not run in that step."""
        end = next((number for number in (1, 2) if number in self.ends), 0)
        columns: dict[tuple[int, int], int] = {}
        steps: list[dict[int, float]] = [{}]
        for index, interval in enumerate(self.intervals_us()):
            if end and self.ends[index] == end:
                steps.append({})
            if self.stages[index] != OUTSIDE:
                column = columns.setdefault((self.stages[index], self.positions[index]), len(columns))
                steps[-1][column] = steps[-1].get(column, 0.0) + interval
        if end and self.ends and self.ends[-1] == end:
            steps.append({})
        # What follows the last end belongs to no step.
        rows = [[_rounded(step.get(column)) for column in range(len(columns))] for step in steps[:-1]]
        return [(self.names[stage], position) for stage, position in columns], rows


def _rounded(duration_us: float | None) -> float | None:
    return None if duration_us is None else round(duration_us, 1)


class _Span:
    """Marks at both ends, whatever happens in between."""

    __slots__ = ("end", "entry", "tape")

    def __init__(self, tape: Tape, stage: int, position: int, end: int) -> None:
        self.tape, self.entry, self.end = tape, (stage, position), end

    def __enter__(self) -> None:
        self.tape.stack.append(self.entry)
        self.tape.mark()

    def __exit__(self, *_: object) -> None:
        self.tape.stack.pop()
        self.tape.mark(self.end)


class _TimedContext:
    """A context manager of vLLM's whose entering and leaving are a stage; what runs inside is not."""

    def __init__(self, tape: Tape, stage: int, inner: Any) -> None:
        self.tape, self.stage, self.inner = tape, stage, inner

    def __enter__(self) -> Any:
        with self.tape.running(self.stage, -1):
            return self.inner.__enter__()

    def __exit__(self, *why: Any) -> Any:
        with self.tape.running(self.stage, -1):
            return self.inner.__exit__(*why)


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
        stage, by_position = tape.code(hook.stage), hook.by_position
        gives_context = hook.owner.endswith(":")
        end = STEP_ENDS.index(hook.attribute) + 1 if hook.attribute in STEP_ENDS else 0
        begins_proposal = hook.stage == "draft_prepare" or hook.attribute == "propose"
        collectives = {
            tape.code(parent): tape.code(f"{side}_collective")
            for parent, side in (("verify_forward", "verify"), ("target_logits", "verify"))
        }
        in_draft = tape.code("draft_collective")

        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != tape.thread:
                return original(*args, **kwargs)
            position, run = -1, stage
            if by_position:
                position = tape.calls.get(stage, 0)
                tape.calls[stage] = position + 1
            elif begins_proposal and not any(tape.names[code].startswith("draft") for code, _ in tape.stack):
                tape.calls.clear()
            if hook.stage == "collective" and tape.stack:
                inside, position = tape.stack[-1]
                run = inside if "collective" in tape.names[inside] else collectives.get(inside, stage)
                run = in_draft if tape.names[inside].startswith("draft") else run
            with tape.running(run, position, end):
                result = original(*args, **kwargs)
            return _TimedContext(tape, stage, result) if gives_context else result

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

    def probe_begin(self, wanted: bool = True) -> dict[str, Any]:
        """Wrap the hooks and record from now on; with `wanted` false do nothing, so that both arms ask alike."""
        self._end_recording()
        worker: Any = self
        tape = Tape(worker.device.type == "cuda")
        self._sounding = Wrappers(tape)
        if wanted:
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
