"""A server whose ranks run on several nodes: launched in order, watched, stopped in order, its release verified.

The last rank is launched first and the head last; the head is stopped first, then the others, each by its own session:
a headless rank of vLLM never ends by itself. /health of a head says nothing of the other ranks (it stays 200 when one
idles away), so every node is looked at once a second, and a server that lost a rank is ended at once.
"""

from __future__ import annotations

import json
import re
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from backend.engines.base import Ready
from backend.engines.leftover import forget, remember
from backend.engines.rank import Rank
from backend.engines.readiness import wait_ready
from backend.errors import NodeError, RunFailed
from backend.records import Environment, Finding, Record, Run
from backend.spec import SweepSpec

LOOK_EVERY_S = 1.0
KV_CACHE = re.compile(r"KV cache size: ([\d,]+) tokens")  # vLLM 0.32's banner; must not differ between depths


class NodesServer:
    """Ranks in rank order; the first is the head, and its host and port are the server's.

    `check_ready`, if given, sees the log of every rank that we launched (node -> path) once the server answers, and
    raises RunFailed where it must not run so (NCCL fell back to TCP).
    """

    def __init__(
        self,
        spec: SweepSpec,
        k: int,
        ranks: Sequence[Rank],
        lease_path: Path,
        check_ready: Callable[[Mapping[str, Path]], None] | None = None,
    ) -> None:
        self._spec, self._settings, self.k, self.ranks = spec, spec.server, k, tuple(ranks)
        self.command, self.env = ranks[0].argv, ranks[0].env
        self.base_url = f"http://{spec.server.host}:{spec.server.port}"
        self._lease_path, self._check_ready = lease_path, check_ready
        self._watched: dict[str, list[str]] = {}
        self._stopping, self._ending = threading.Event(), threading.Lock()
        self._watchers: list[threading.Thread] = []
        self._launch()

    def wait_ready(self) -> Ready:
        """Health, a completion, the depth, every rank alive, new log lines on some node. Raises RunFailed."""
        ready = wait_ready(
            self.base_url,
            self.k,
            process=self,
            ready_timeout_s=self._settings.ready_timeout_s,
            stall_timeout_s=self._settings.stall_timeout_s,
            request_timeout_s=self._settings.request_timeout_s,
        )
        if self._check_ready is not None:
            launched = [rank for rank in self.ranks if rank.argv]  # what Ray's workers say is in the head's log
            for rank in launched:
                rank.look()  # the mirror of another node's log is up to a second behind
            self._check_ready({rank.node.name: rank.log_path for rank in launched})
        for rank in self.ranks:
            try:
                self._watched[rank.node.name] = rank.watch()
            except NodeError as error:
                raise RunFailed(f"healthy, but {error}", kind="died", log_tail=self.log_tail()) from None
        return ready

    def alive(self) -> bool:
        """Whether no rank is known to have ended. A node out of reach is not an ended rank: its link may be cut."""
        return not any(rank.ended for rank in self.ranks)

    def trouble(self) -> str | None:
        """Ranks that ended and nodes that are out of reach."""
        known = [rank.ended for rank in self.ranks if rank.ended]
        known += [
            f"{rank.node.name} is out of reach since {time.monotonic() - rank.unreachable_since_s:.0f} s"
            for rank in self.ranks
            if rank.unreachable_since_s is not None
        ]
        return "; ".join(known) or None

    def log_bytes(self) -> int:
        """Bytes of log lines that are progress, over all nodes."""
        return sum(rank.progress_bytes for rank in self.ranks)

    def log_tail(self) -> str:
        """The last lines of every rank's log."""
        return "\n".join(rank.tail() for rank in self.ranks)

    def stop(self) -> float:
        """End head, then workers; verify processes, ports and memory on all nodes. Seconds. Raises RunFailed."""
        began = time.monotonic()
        self._stopping.set()
        failures = [failure for rank in self.ranks if (failure := self._end(rank)) is not None]
        for watcher in self._watchers:
            watcher.join()
        if failures:
            for rank in self.ranks:
                rank.close()  # whoever tries again reaches the nodes anew
            raise RunFailed(
                "; ".join(str(failure) for failure in failures),
                kind="wont_stop",
                log_tail=self.log_tail(),
                fix=failures[0].fix,
            )
        forget(self._lease_path)
        return time.monotonic() - began

    def records(self, run: Run) -> list[Record]:
        """Each rank's command and what was watched on its node; findings about links and forced ends."""
        facts = [
            Environment(run.run_id, rank.node.name, name, value)
            for rank in self.ranks
            for name, value in (
                ("rank", str(rank.number)),
                ("command", shlex.join(rank.argv) or None),
                ("command_env", json.dumps(rank.env, sort_keys=True) if rank.argv else None),
                ("log_path", str(rank.log_path)),
                ("watched_processes", ", ".join(self._watched.get(rank.node.name, [])) or None),
            )
        ]
        size = KV_CACHE.search(self.ranks[0].log_path.read_text(errors="replace"))
        if size is not None:
            tokens = size[1].replace(",", "")
            facts.append(Environment(run.run_id, self.ranks[0].node.name, "kv_cache_tokens", tokens))
        return [*facts, *self._findings(run)]

    def _launch(self) -> None:
        remember(self._lease_path, [rank.place for rank in self.ranks])
        try:
            with ThreadPoolExecutor(len(self.ranks)) as pool:
                list(pool.map(Rank.open, self.ranks))
            for rank in reversed(self.ranks):
                rank.launch(self._settings.host if rank.number == 0 else "0.0.0.0")
        except (NodeError, RunFailed) as error:
            self._stopping.set()
            if not [failure for rank in self.ranks if (failure := self._end(rank)) is not None]:
                forget(self._lease_path)
            fix = error.fix if isinstance(error, NodeError) else "read the node's last log lines"
            raise RunFailed(
                error.what, kind="launch", where=error.where, fix=error.fix or fix, log_tail=self.log_tail()
            ) from None
        for rank in self.ranks:
            watcher = threading.Thread(
                target=self._look_after, args=(rank,), name=f"look-{rank.node.name}", daemon=True
            )
            self._watchers.append(watcher)
            watcher.start()

    def _look_after(self, rank: Rank) -> None:
        while not self._stopping.wait(LOOK_EVERY_S):
            rank.look()
            if rank.ended:
                if self._watched:  # it serves: end the head, so that no request waits for what cannot come
                    self._end(self.ranks[0])
                return

    def _end(self, rank: Rank) -> RunFailed | None:
        settings = self._settings
        with self._ending:
            try:
                rank.stop(settings.stop_timeout_s, settings.release_timeout_s, self._spec.nodes.memory_slack_bytes)
            except RunFailed as failure:
                return failure
            return None

    def _findings(self, run: Run) -> list[Finding]:
        found = []
        if forced := [rank.name for rank in self.ranks if rank.forced]:
            found.append(
                Finding(
                    run.sweep,
                    run.run_id,
                    "",
                    "stop-forced",
                    "warning",
                    float(len(forced)),
                    "ranks",
                    f"{', '.join(forced)} did not end within {self._settings.stop_timeout_s:g} s of SIGTERM: killed",
                    "raise server.stop_timeout_s if it needs longer here; a killed rank can leave GPU memory in use",
                )
            )
        if away := {rank.node.name: rank.unreachable_s for rank in self.ranks if rank.unreachable_s > 0}:
            names = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in away.items())
            found.append(
                Finding(
                    run.sweep,
                    run.run_id,
                    "",
                    "node-out-of-reach",
                    "warning",
                    max(away.values()),
                    "s",
                    f"the management link was lost during the run ({names}); the server went on and was seen again",
                    "check that link: meanwhile nobody could have seen a rank end",
                )
            )
        flaps = {
            rank.node.name: max(rank.carrier_changes) - min(rank.carrier_changes)
            for rank in self.ranks
            if rank.carrier_changes
        }
        if any(flaps.values()):
            names = ", ".join(name for name, changes in flaps.items() if changes)
            found.append(
                Finding(
                    run.sweep,
                    run.run_id,
                    "",
                    "data-link-flap",
                    "error",
                    float(max(flaps.values())),
                    "changes",
                    f"the data link went down or came up while it was measured ({names})",
                    "check cable and switch: steps waited for the link, whatever the depth",
                )
            )
        return found
