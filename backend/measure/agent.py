"""The node agent: a program piped to a node's Python, which watches the node during a run and answers questions on it.

Nothing is installed on the node: agent_sensors, agent_facts and agent_canary travel with it (nodes.py puts the program
together), all standard library. One JSON object a line: {"id", "do", ...} comes in, {"id", "ok"} or {"id", "error"}
goes out, {"hello": ...} first and {"sample": ...} while sampling is on. It ends with its input, and by itself when
nobody has spoken to it for `deadman_s`. Times are seconds since 1970 by this node's clock.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from backend.measure import agent_facts
from backend.measure.agent_sensors import Reading, Sensors, attempt

CANARY_TIMEOUT_S = 120
PERIOD_POLL_S = 0.02
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Agent:
    """The sensors, the sampler and the way out."""

    def __init__(self, config: dict[str, Any], canary_source: str) -> None:
        self.deadman_s, self.canary_source = float(config["deadman_s"]), canary_source
        self.sensors = Sensors(config.get("devices"), config.get("wall_meter") or [])
        self.out, self.lock = os.fdopen(os.dup(1), "w", buffering=1), threading.Lock()
        os.dup2(2, 1)  # whatever a library prints must not get between our lines
        self.heard, self.busy = time.monotonic(), False
        self.sampling = threading.Event()
        self.period_s = 1.0
        self.commands: dict[str, Callable[..., Any]] = {
            "ping": lambda: {"t_unix_s": time.time()},
            "sample": self.sample,
            "canary": self.canary,
            "facts": lambda: agent_facts.facts(self.sensors.nvml),
            "model": agent_facts.model,
            "disk": agent_facts.disk,
            "version": agent_facts.version,
            "alive": agent_facts.alive,
            "released": lambda port, mark: agent_facts.released(port, mark, self.sensors.nvml),
        }

    def say(self, **message: Any) -> None:
        """One line out."""
        with self.lock:
            self.out.write(json.dumps(message) + "\n")

    def hello(self) -> dict[str, Any]:
        """Who is here, and everything the pre-flight asks for."""
        return {
            "facts": agent_facts.facts(self.sensors.nvml),
            "interfaces": agent_facts.interfaces(),
            "hcas": agent_facts.hcas(),
            "gpu_processes": self.sensors.nvml.processes(),
            "unsupported": self.sensors.nvml.unsupported,
            "sample": self.sensors.sample(),
        }

    def sample(self, period_s: float) -> None:
        """Stream samples, one each `period_s`; 0 stops."""
        self.period_s = period_s
        if period_s > 0:
            self.sampling.set()
        else:
            self.sampling.clear()

    def stream(self) -> None:
        """The sampler's thread: on the beat of its own clock, so that a slow reading does not shift the next."""
        while True:
            self.sampling.wait()
            due = time.monotonic()
            while self.sampling.is_set():
                self.say(sample=self.sensors.sample())
                due = max(due + self.period_s, time.monotonic())
                time.sleep(max(0.0, due - time.monotonic()))

    def canary(self) -> dict[str, Any]:
        """Both canaries, in a process of their own, so that the GPU memory they take is given back.

        While they run the power reading changes, which shows its real update period.
        """
        with subprocess.Popen(
            [sys.executable, "-c", self.canary_source],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **ONE_THREAD},
        ) as process:
            kill = threading.Timer(CANARY_TIMEOUT_S, process.kill)
            kill.start()
            period = self.period(process)
            out, err = process.communicate()
            kill.cancel()
        if process.returncode:
            raise RuntimeError((err.strip().splitlines() or [f"ended by {process.returncode}"])[-1])
        return {"canaries": json.loads(out), "power_period": period}

    def period(self, work: subprocess.Popen[str]) -> Reading:
        """The median time between changes of the GPU's power reading while `work` runs, polled each 20 ms."""
        changes, before, why = [], None, self.sensors.nvml.unsupported.get("power_w")
        while why is None and work.poll() is None:
            value, why = self.sensors.nvml.read("power_w")
            if before is not None and value != before:
                changes.append(time.monotonic())
            before = value
            time.sleep(PERIOD_POLL_S)
        gaps = sorted(b - a for a, b in itertools.pairwise(changes))
        if why is None and not gaps:
            why = "the reading did not change twice while the canary ran"
        return (gaps[len(gaps) // 2] if why is None else None), why

    def watch_silence(self) -> None:
        """The deadman: without a word from outside for too long the link is gone, and nobody else would end us."""
        while True:
            time.sleep(self.deadman_s / 10)
            if not self.busy and time.monotonic() - self.heard > self.deadman_s:
                os._exit(3)

    def serve(self) -> None:
        """Answer until the input ends."""
        for loop in (self.stream, self.watch_silence):
            threading.Thread(target=loop, daemon=True).start()
        self.say(hello=self.hello())
        for line in sys.stdin.buffer:
            request = json.loads(line)
            number, name = request.pop("id"), request.pop("do")
            self.heard, self.busy = time.monotonic(), True
            result, why = attempt(partial(self.commands[name], **request))
            self.heard, self.busy = time.monotonic(), False
            if why is None:
                self.say(id=number, ok=result)
            else:
                self.say(id=number, error=why)
