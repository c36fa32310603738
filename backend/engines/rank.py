"""One rank of a server on one node: launched, looked at and ended through its keeper, its log mirrored as it grows.

The mirror is what evidence is read from: a node that loses power takes its own log away.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend import errors
from backend.engines import keeper, session
from backend.engines.process import ending, tail
from backend.engines.ssh import Channel
from backend.errors import NodeError, RunFailed
from backend.spec_nodes import Node

ANSWER_S = 10.0  # an operation that only looks
DEADMAN_S = 120.0  # a keeper without a word from us for so long ends; its rank lives on and is found by its lease
RECONNECT_S = 1.0
# What vLLM and torch write while they wait for another rank: new lines, but no progress.
WAITING = re.compile(r"No available shared memory broadcast block|Waiting for .* (nodes|ranks|workers|engine)|^\s*$")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank keeps its lease and log on its node, so that a later sweep finds them again."""

    node: Node
    folder: str
    lease: str


LOADER = """
import json, sys, types
for name, text in json.loads({modules!r}).items():
    module = sys.modules[name] = types.ModuleType(name)
    parent, _, own = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], own, module)
    exec(compile(text, name, "exec"), module.__dict__)
sys.modules[{main!r}].main()
"""


def keeper_source() -> str:
    """The program for a node: our modules as text, loaded under their own names; nothing is installed there."""
    modules = {module.__name__: Path(str(module.__file__)).read_text() for module in (errors, session, keeper)}
    packages = {"backend": "", "backend.engines": ""}  # without what else is in them: nodes have no httpx
    return LOADER.format(modules=json.dumps({**packages, **modules}), main=keeper.__name__)


def open_keeper(place: Place) -> Channel:
    """A keeper on the place's node. Raises NodeError."""
    return Channel(place.node, keeper_source(), place.folder, place.lease, str(DEADMAN_S), name="keeper.py")


def ask(channel: Channel, timeout_s: float, **request: Any) -> dict[str, Any]:
    """An answer of a keeper. Raises NodeError, and RunFailed with the node's name where the keeper says so."""
    answer = channel.ask(timeout_s, **request)
    if (failed := answer.get("failed")) is not None:
        raise RunFailed(failed["what"], kind=failed["kind"], where=channel.node.name, fix=failed["fix"])
    return answer


class Rank:
    """Use: `open`, `launch`, `look` again and again, `stop`. `look` and `stop` never at the same time.

    `argv` is empty for a node where somebody else starts the workers (Ray): there they are only looked at. `files` are
    put into the place's folder before the launch, FOLDER_HERE in `env` is that folder. `by_title`: workers are not of
    our session but found by their titles, those that came since the launch.
    """

    def __init__(
        self,
        number: int,
        place: Place,
        argv: Sequence[str],
        env: Mapping[str, str],
        log_path: Path,
        ports: Sequence[int],
        files: Mapping[str, str] | None = None,
        *,
        by_title: bool = False,
    ) -> None:
        self.number, self.place, self.node, self.log_path = number, place, place.node, log_path
        self.argv, self.env, self.ports = tuple(argv), dict(env), list(ports)
        self._files, self._by_title = dict(files or {}), by_title
        self.ended: str | None = None  # how it or one of its workers ended, once that was seen
        self.unreachable_since_s: float | None = None  # monotonic
        self.unreachable_s = 0.0  # in all
        self.carrier_changes: list[int] = []  # of the data link: first and last reading since it was ready
        self.progress_bytes = 0  # of log lines that are more than waiting
        self.progress_s = time.monotonic()
        self.forced = self.stopped = self.launched = False
        self._channel: Channel | None = None
        self._names: list[str] = []  # watched, by title and number
        self._known: list[int] | None = None  # workers that were there before us, where Ray starts them
        self._offset, self._free_bytes = 0, 0
        self._line = ""
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """How it is called in messages."""
        return f"rank {self.number} on {self.node.name}" if self.argv else f"workers on {self.node.name}"

    @property
    def _log(self) -> str:
        return str(self.log_path) if self.node.local else "server.log"

    def open(self) -> None:
        """Reach the node, its echo verified, and note its free memory. Raises NodeError."""
        self._channel = open_keeper(self.place)
        self._free_bytes = self._channel.ask(ANSWER_S, op="hello")["memory_available_bytes"]

    def launch(self, address: str) -> None:
        """Start it; `address`: where its ports must be free. Raises NodeError, RunFailed(kind="launch")."""
        channel = self._reached()
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self.log_path.write_bytes(b"")
        if self._by_title:
            self._known = ask(channel, ANSWER_S, op="workers")["workers"]
        if self.argv:
            request = {"argv": self.argv, "env": self.env, "files": self._files, "log": self._log}
            self.launched = True  # also where the answer is lost: then it may run
            try:
                launched = ask(channel, ANSWER_S, op="launch", **request, address=address, ports=self.ports)
            except RunFailed:
                self.launched = False
                raise
            self.env = launched["env"]
        else:
            self.launched = True

    def watch(self) -> list[str]:
        """It is ready: from now on its workers must live and its link must stay. Their names."""
        self.look()
        with self._lock:
            self._names = ask(self._reached(), ANSWER_S, op="watch", known=self._known)["watched"]
        self.carrier_changes.clear()
        self.look()
        return self._names

    def look(self) -> None:
        """Ask the keeper once; a lost link is noted and tried again, and says nothing of the rank itself."""
        with self._lock:
            if self.stopped:
                return
            try:
                missing = self._open_again() if self._channel is None else []
                answer = self._reached().ask(
                    ANSWER_S, op="look", log=self._log, offset=self._offset, interface=self.node.interface
                )
                answer["lost"] += missing
            except NodeError:
                self._lost()
                return
            if self.unreachable_since_s is not None:
                self.unreachable_s += time.monotonic() - self.unreachable_since_s
                self.unreachable_since_s = None
            self._take_log(answer["text"], answer["offset"])
            if answer["carrier_changes"] is not None:
                self.carrier_changes[1:] = [answer["carrier_changes"]]
            if self.ended is None:
                status, gone = answer["status"], [f"{name} on {self.node.name} ended" for name in answer["lost"]]
                if self.argv and not answer["leader"]:
                    gone.append(f"{self.name} {ending(status) if status is not None else 'ended'}")
                self.ended = ", ".join(gone) or None

    def tail(self) -> str:
        """The last lines of its log, headed by what is known of it."""
        quiet_s = time.monotonic() - self.progress_s
        state = self.ended or ("out of reach" if self.unreachable_since_s is not None else "running")
        return f"== {self.name}: {state}, log quiet for {quiet_s:.0f} s ==\n{tail(self.log_path)}"

    def stop(self, stop_timeout_s: float, release_timeout_s: float, memory_slack_bytes: int) -> None:
        """End it, by its own session, and verify the release. Raises RunFailed(kind="wont_stop")."""
        with self._lock:
            if self.stopped or not self.launched:
                self.stopped = True
                self.close()
                return
            channel = self._reach_again(stop_timeout_s + release_timeout_s)
            try:
                if self.argv:
                    patience_s = stop_timeout_s + 2 * release_timeout_s + ANSWER_S
                    request = {"stop_timeout_s": stop_timeout_s, "release_timeout_s": release_timeout_s}
                    self.forced = ask(channel, patience_s, op="stop", **request)["forced"]
                with suppress(NodeError):  # the last lines, where there are any
                    last = channel.ask(ANSWER_S, op="look", log=self._log, offset=self._offset, interface=None)
                    self._take_log(last["text"], last["offset"])
                self._released(channel, release_timeout_s, memory_slack_bytes)
            except NodeError as error:
                raise _unreachable(self, error) from None
            self.stopped = True
            self.close()

    def close(self) -> None:
        """Let go of the node."""
        if self._channel is not None:
            self._channel.close()
        self._channel = None

    def _open_again(self) -> list[str]:
        """A new keeper after a lost link; the watched processes that ended meanwhile. Raises NodeError."""
        self._channel = open_keeper(self.place)
        if not self._names:
            return []
        names = self._channel.ask(ANSWER_S, op="watch", known=self._known)["watched"]
        return sorted(set(self._names) - set(names))

    def _reached(self) -> Channel:
        if self._channel is None:
            raise NodeError("is not reached", where=self.node.name)
        return self._channel

    def _lost(self) -> None:
        if self.unreachable_since_s is None:
            self.unreachable_since_s = time.monotonic()
        if self._channel is not None:
            self._channel.close()
        self._channel = None

    def _reach_again(self, patience_s: float) -> Channel:
        """The open channel, or a new one within the time. Raises RunFailed(kind="wont_stop")."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                if self._channel is not None:
                    self._channel.ask(ANSWER_S, op="hello")
                else:
                    self._channel = open_keeper(self.place)
            except NodeError as error:
                self._lost()
                if time.monotonic() > deadline:
                    raise _unreachable(self, error) from None
                time.sleep(RECONNECT_S)
            else:
                return self._channel

    def _take_log(self, text: str, offset: int) -> None:
        self._offset = offset
        if text and not self.node.local:
            with self.log_path.open("a") as mirror:
                mirror.write(text)
        *lines, self._line = (self._line + text).split("\n")
        news = sum(len(line) + 1 for line in lines if not WAITING.search(line))
        if news:
            self.progress_bytes, self.progress_s = self.progress_bytes + news, time.monotonic()

    def _released(self, channel: Channel, patience_s: float, memory_slack_bytes: int) -> None:
        deadline = time.monotonic() + patience_s
        while True:
            left = ask(channel, ANSWER_S, op="released", address="0.0.0.0", ports=self.ports, known=self._known)
            missing_bytes = self._free_bytes - memory_slack_bytes - left["memory_available_bytes"]
            faults = [f"port {port} is in use" for port in left["ports"]]
            faults += [f"process {pid} lives on" for pid in left["processes"]]
            if missing_bytes > 0:
                back = f"{left['memory_available_bytes'] / 2**30:.1f} of {self._free_bytes / 2**30:.1f} GiB"
                faults.append(f"memory is not back: {back} available")
            if not faults:
                return
            if time.monotonic() > deadline:
                raise RunFailed(
                    f"after the stop {', '.join(faults)}",
                    kind="wont_stop",
                    where=self.node.name,
                    fix="end what holds it (a GPU that keeps memory needs a restart), then go on with --resume",
                )
            time.sleep(0.2)


def _unreachable(rank: Rank, error: NodeError) -> RunFailed:
    return RunFailed(
        f"{rank.name} cannot be seen to have ended: {error}",
        kind="wont_stop",
        where=rank.node.name,
        fix="bring the node back, then go on with --resume: it ends what was left there first",
    )
