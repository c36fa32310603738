"""The agents of a sweep's nodes, from our side: started, asked, kept alive, and known to be lost when they are.

The program is put together here from the agent's modules and piped to each node's Python, at home as a subprocess,
elsewhere over ssh. Times of a node are brought to our clock by its offset, measured from pings.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from backend.engines.ssh import Piped
from backend.errors import NodeError
from backend.spec_nodes import Agent, Node

HELLO_TIMEOUT_S = 30.0
PINGS = 5
MODULES = ("agent_sensors", "agent_facts", "agent")
# Each module under its own name, so that the parts find each other as they do here.
LOADER = """
import json, sys, types
sources = json.loads({sources!r})
for name in ("backend", "backend.measure"):
    sys.modules[name] = types.ModuleType(name)
for name in {modules!r}:
    module = sys.modules["backend.measure." + name] = types.ModuleType("backend.measure." + name)
    setattr(sys.modules["backend.measure"], name, module)
    exec(compile(sources[name], name + ".py", "exec"), module.__dict__)
sys.modules["backend.measure.agent"].Agent(json.loads(sys.argv[-1]), sources["agent_canary"]).serve()
"""

OnSample = Callable[["NodeAgent", dict[str, Any]], None]


def program() -> str:
    """The agent as one program."""
    folder = Path(__file__).parent
    sources = {name: (folder / f"{name}.py").read_text(encoding="utf-8") for name in (*MODULES, "agent_canary")}
    return LOADER.format(sources=json.dumps(sources), modules=MODULES)


class _Link(Piped):
    """The piped program, which also says whether it is over: a line that does not come may only be late."""

    @property
    def over(self) -> bool:
        """Whether the local end has ended: the agent's own end, or ssh's after it gave the link up."""
        return self._process.poll() is not None


class NodeAgent:
    """One node's agent. `lost` says why it is no longer there; `hello` is what it said of the node at the start.

    Raises NodeError where it cannot be started.
    """

    def __init__(self, node: Node, settings: Agent, on_sample: OnSample | None = None) -> None:
        self.node, self.lost, self.lost_unix_s = node, "", 0.0
        self.patience_s = float(node.ssh.alive_interval_s * node.ssh.alive_count)
        self._on_sample, self._answers = on_sample, deque[dict[str, Any]]()
        self._asking, self._news, self._closing = threading.Lock(), threading.Condition(), threading.Event()
        self._every_s = settings.deadman_s / 4
        self._number, self._pings = 0, deque[tuple[float, float]](maxlen=10)  # (round trip s, offset s)
        config = {"deadman_s": settings.deadman_s, "devices": _devices(node), "wall_meter": list(node.wall_meter)}
        self._program = _Link(node, program(), json.dumps(config), name="agent.py")
        try:
            self.hello: dict[str, Any] = self._first(HELLO_TIMEOUT_S)["hello"]
        except NodeError:
            self._program.close()
            raise
        self._threads = [threading.Thread(target=loop, daemon=True) for loop in (self._listen, self._keep_alive)]
        self._threads[0].start()
        for _ in range(PINGS):
            self.ping()
        self._threads[1].start()

    def _first(self, timeout_s: float) -> dict[str, Any]:
        line = self._program.line(timeout_s)
        if line is None:
            said = self._program.ended(1)[1]
            raise NodeError(
                f"its agent did not start: {said or f'no word in {timeout_s:g} s'}",
                where=self.node.name,
                fix="it needs Python 3.10 or later: name one in [[node]] python",
            )
        first: dict[str, Any] = json.loads(line)
        return first

    def ask(self, do: str, timeout_s: float | None = None, **arguments: Any) -> Any:
        """One answer. Raises NodeError: the link is lost, the answer is late, or the agent could not do it."""
        with self._asking:
            if self.lost:
                raise NodeError(self.lost, where=self.node.name)
            self._number += 1
            request = {"id": self._number, "do": do, **arguments}
            try:
                self._program.write(json.dumps(request).encode() + b"\n")
            except (OSError, ValueError):
                self._lose("the link to its agent is broken")
            answer = self._answer(self._number, timeout_s or self.patience_s)
        if "error" in answer:
            raise NodeError(f"{do}: {answer['error']}", where=self.node.name)
        return answer["ok"]

    def _answer(self, number: int, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        with self._news:
            while True:
                while self._answers:
                    answer = self._answers.popleft()
                    if answer["id"] == number:
                        return answer
                left = deadline - time.monotonic()
                if not self.lost and left <= 0:
                    self._lose(f"its agent did not answer in {timeout_s:g} s")
                if self.lost or self._closing.is_set():
                    raise NodeError(self.lost or "its agent was ended by us", where=self.node.name)
                self._news.wait(left)

    def ping(self) -> None:
        """Measure the clock offset: the agent's time against the middle of the exchange, off by half a round trip."""
        sent = time.time()
        there = float(self.ask("ping")["t_unix_s"])
        back = time.time()
        self._pings.append((back - sent, there - (sent + back) / 2))

    @property
    def offset_s(self) -> float:
        """Its clock minus ours, by the fastest of the last pings."""
        return min(self._pings)[1] if self._pings else 0.0

    @property
    def round_trip_s(self) -> float | None:
        """Of the fastest of the last pings; the offset is known to half of it."""
        return min(self._pings)[0] if self._pings else None

    def close(self) -> None:
        """End it; a second time does nothing."""
        if self._closing.is_set():
            return
        self._closing.set()
        with self._news:
            self._news.notify_all()  # who waits for an answer need not
        self._program.ended(2)  # its output ends with it, and so does the listener
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join(2)
        self._program.close()

    def _lose(self, why: str) -> None:
        with self._news:
            if not self.lost and not self._closing.is_set():
                self.lost, self.lost_unix_s = why, time.time()
            self._news.notify_all()

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                line = self._program.line(1.0)
            except (OSError, ValueError, RuntimeError):  # closed by us
                line = None
            if line is not None:
                message = json.loads(line)
                if "sample" not in message:
                    with self._news:
                        self._answers.append(message)
                        self._news.notify_all()
                elif self._on_sample is not None:
                    self._on_sample(self, message["sample"])
            elif self._program.over and not self._closing.is_set():
                self._lose("the link to its agent ended")
                return

    def _keep_alive(self) -> None:
        while not self._closing.wait(self._every_s):
            if self._asking.locked():
                continue  # it hears us already
            try:
                self.ping()
            except NodeError:
                return


def _devices(node: Node) -> list[int] | None:
    """The GPUs that the node's environment leaves to the server; None: all."""
    given = node.env.get("CUDA_VISIBLE_DEVICES", "")
    parts = [part.strip() for part in given.split(",")]
    return [int(part) for part in parts] if given and all(part.isdigit() for part in parts) else None


def open_agents(
    nodes: Sequence[Node], settings: Agent, on_sample: OnSample | None = None
) -> tuple[list[NodeAgent], dict[str, str]]:
    """Agents on all nodes at once; those that could be started, and by node's name why the others could not."""

    def start(node: Node) -> NodeAgent | NodeError:
        try:
            return NodeAgent(node, settings, on_sample)
        except NodeError as error:
            return error

    with ThreadPoolExecutor(max(len(nodes), 1)) as pool:
        started = list(pool.map(start, nodes))
    failed = {node.name: str(each) for node, each in zip(nodes, started, strict=True) if isinstance(each, NodeError)}
    return [each for each in started if isinstance(each, NodeAgent)], failed
