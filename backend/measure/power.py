"""Power samples of a run: what the agents stream, as records on our clock. Missing stays missing, with its reason.

The energy ladder of a node, best first: a wall meter or a counter of the whole machine (hwmon, RAPL psys), the
package's counter, NVML's energy counter, NVML's power readings integrated. All that a node has is stored, each with its
scope and source; which one counts is decided later, by analysis/energy.py, over all nodes.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from backend.measure.nodes import NodeAgent
from backend.records import Environment, PowerSample, Record

FLUSH_S = 10.0  # a kill loses so much; a line each for itself would mean an fsync a second on the measured machine


def samples_of(run_id: str, node: str, sample: dict[str, Any], offset_s: float) -> list[PowerSample]:
    """One record a sensor. `offset_s`: the node's clock minus ours."""
    gpu = sample["gpu"]
    return [
        PowerSample(
            run_id,
            node,
            sample["t_unix_s"] - offset_s,
            power_w,
            energy_j,
            gpu.get("temp_c"),
            gpu.get("sm_clock_mhz"),
            scope,
            source,
            reason,
        )
        for scope, source, power_w, energy_j, reason in sample["sensors"]
    ]


class Recorder:
    """Gathers samples of all agents and hands them on in batches. A fault of the journal is raised by `flush`.

    What is read beside power (utilisation, throttle reasons, free memory) is kept as its summary over the run: `facts`.
    """

    def __init__(self, run_id: str, append: Callable[[Sequence[Record]], None]) -> None:
        self._run_id, self._append = run_id, append
        self._lock, self._held = threading.Lock(), list[Record]()
        self._beside: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._flushed_s = time.monotonic()
        self._fault: Exception | None = None

    def take(self, agent: NodeAgent, sample: dict[str, Any]) -> None:
        """A sample from a node, on that node's listener thread."""
        with self._lock:
            self._held += samples_of(self._run_id, agent.node.name, sample, agent.offset_s)
            self._beside[agent.node.name].append(
                {**sample["gpu"], "memory_available_bytes": sample["memory_available_bytes"]}
            )
            due = time.monotonic() - self._flushed_s > FLUSH_S
        if due:
            try:
                self._write()
            except Exception as error:  # noqa: BLE001 - a listener has nobody to raise to; flush() does
                self._fault = error

    def facts(self) -> list[Environment]:
        """What was read beside power while it was measured, a few facts a node; None where it could not be read."""
        with self._lock:
            return [
                Environment(self._run_id, node, name, value)
                for node, rows in self._beside.items()
                for name, value in _summary(rows).items()
            ]

    def flush(self) -> None:
        """Hand on what is held. Raises what the journal raised."""
        if self._fault is not None:
            raise self._fault
        self._write()

    def _write(self) -> None:
        with self._lock:
            held, self._held, self._flushed_s = self._held, [], time.monotonic()
        if held:
            self._append(held)


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, str | None]:
    busy = [row["utilization_percent"] for row in rows if "utilization_percent" in row]
    flags = [row["throttle"].split(",") for row in rows if "throttle" in row]
    memory = [row["memory_available_bytes"] for row in rows if row["memory_available_bytes"] is not None]
    words = sorted({word for each in flags for word in each if word})
    shares = [f"{word} {100 * sum(word in each for each in flags) / len(flags):.0f}%" for word in words]
    return {
        "gpu_utilization_median_percent": f"{statistics.median(busy):g}" if busy else None,
        "gpu_throttled": (", ".join(shares) or "never") if flags else None,
        "memory_available_min_bytes": str(min(memory)) if memory else None,
    }
