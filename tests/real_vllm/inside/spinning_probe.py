"""The probe with a brake and a stop-watch of its own, for tests. Runs inside vLLM."""

from __future__ import annotations

import time
from typing import Any

from sounding_probe.stages import StageProbe


class SpinningProbe(StageProbe):
    """`spin` slows one of "drafter", "target" by some milliseconds a call; `release` ends that.

    `watch` times whole proposals with nothing of the probe's: what the probe's draft stages must add up to.
    """

    def watch(self, on: bool) -> dict[str, Any]:
        """Put the stop-watch on, or take it off; what it has seen until now, seconds and proposals."""
        worker: Any = self
        runner = worker.model_runner
        seen = getattr(self, "_watched", [0.0, 0])
        runner.__dict__.pop("propose_draft_token_ids", None)
        if on:
            propose, self._watched = runner.propose_draft_token_ids, [0.0, 0]

            def watched(*args: Any, **kwargs: Any) -> Any:
                began = time.perf_counter()
                try:
                    return propose(*args, **kwargs)
                finally:
                    self._watched[0] += time.perf_counter() - began
                    self._watched[1] += 1

            runner.propose_draft_token_ids = watched
        return {"rank": worker.rank, "seconds": seen[0], "proposals": seen[1]}

    def spin(self, where: str, milliseconds: float, calls_a_step: int = 0) -> dict[str, Any]:
        """Put the brake on (0 ms: only its watch); what the watch saw before, of each call: slowed or not, seconds.

        Every call is slowed; with `calls_a_step` those of every other step: on, off, off, on, from the second step on.
        The watch is needed: after 5 ms of an empty loop the forward itself takes 0.1 to 1 ms longer (sleeping threads,
        cold caches), which is as much a slow-down of that forward as the loop is.
        """
        worker: Any = self
        runner = worker.model_runner
        model = runner.drafter.model if where == "drafter" else runner.get_model()
        model.__dict__.pop("forward", None)
        watches: dict[str, list[tuple[bool, float]]] = self.__dict__.setdefault("_braked", {})
        seen, forward = watches.get(where, []), model.forward
        calls: list[tuple[bool, float]] = []
        watches[where] = calls

        def slow(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            slowed = not calls_a_step or (len(calls) // calls_a_step - 1) % 4 in (0, 3)
            while slowed and time.perf_counter() < began + milliseconds / 1e3:
                pass
            try:
                return forward(*args, **kwargs)
            finally:
                calls.append((slowed, time.perf_counter() - began))

        model.forward = slow
        return {"rank": worker.rank, "calls": seen}

    def release(self, where: str) -> dict[str, Any]:
        """Take the brake off."""
        worker: Any = self
        runner = worker.model_runner
        (runner.drafter.model if where == "drafter" else runner.get_model()).__dict__.pop("forward", None)
        return {"rank": worker.rank}
