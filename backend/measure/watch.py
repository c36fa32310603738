"""Watching the nodes of one run: facts and a canary before, power while it is measured, a canary after.

Without [[node]], or with nodes.agent.on = false, nothing happens. Nothing here fails a run but a journal that cannot be
written: a node that cannot be watched, or is lost on the way, becomes a finding, and what was gathered stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType

from backend.errors import NodeError
from backend.measure import canary
from backend.measure.nodes import NodeAgent, open_agents
from backend.measure.power import Recorder
from backend.records import Environment, Finding, Record
from backend.spec import SweepSpec


class Watch:
    """A context around the measuring part of a run. `findings` says afterwards what could not be watched."""

    def __init__(self, spec: SweepSpec, run_id: str, append: Callable[[Sequence[Record]], None]) -> None:
        self._spec, self._run_id, self._append = spec, run_id, append
        self._nodes = spec.node if spec.nodes.agent.on else ()
        self._agents: list[NodeAgent] = []
        self._unwatched: dict[str, str] = {}
        self._recorder = Recorder(run_id, append)

    def __enter__(self) -> None:
        if not self._nodes:
            return
        settings = self._spec.nodes.agent
        self._agents, self._unwatched = open_agents(self._nodes, settings, self._recorder.take)
        try:
            self._append([fact for agent in self._agents for fact in self._facts(agent)])
            if settings.canary:
                self._append(canary.fly(self._run_id, self._alive(), "before"))
            for agent in self._alive():
                with suppress(NodeError):  # lost now: `findings` says so
                    agent.ask("sample", period_s=settings.period_s)
        except BaseException:  # an interruption too must not leave agents behind on the nodes
            self._close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for agent in self._alive():
                with suppress(NodeError):
                    agent.ask("sample", period_s=0)
            if self._agents and kind is None:
                self._recorder.flush()
                self._append(self._recorder.facts())
                if self._spec.nodes.agent.canary:
                    self._append(canary.fly(self._run_id, self._alive(), "after"))
            elif self._agents:
                with suppress(Exception):  # the run's own fault goes first
                    self._recorder.flush()
        finally:
            self._close()

    def findings(self, sweep: str) -> list[Finding]:
        """Nodes that were not watched, or not to the end."""
        lost = {agent.node.name: agent.lost for agent in self._agents if agent.lost}
        found = [
            (self._unwatched, "node-unwatched", "was not watched", "python -m backend check SPEC --nodes says more"),
            (
                lost,
                "agent-lost",
                "was lost from sight during the run",
                "its power and canary are missing from then on; check the management link, and look at this run's "
                "other nodes before trusting it",
            ),
        ]
        return [
            Finding(
                sweep,
                self._run_id,
                "",
                code,
                "warning",
                float(len(nodes)),
                "nodes",
                "; ".join(f"node {name} {what}: {why.removeprefix(f'{name}: ')}" for name, why in nodes.items()),
                action,
            )
            for nodes, code, what, action in found
            if nodes
        ]

    def _alive(self) -> list[NodeAgent]:
        return [agent for agent in self._agents if not agent.lost]

    def _facts(self, agent: NodeAgent) -> list[Environment]:
        trip_s = agent.round_trip_s
        facts: dict[str, str | None] = {
            **agent.hello["facts"],
            **{f"nvml_{name}": f"unsupported: {why}" for name, why in agent.hello["unsupported"].items()},
            "clock_offset_s": f"{agent.offset_s:.6f}",
            "clock_offset_uncertainty_s": None if trip_s is None else f"{trip_s / 2:.6f}",
            "node_rank": str(self._spec.node.index(agent.node)),
            "node_host": agent.node.host,
        }
        return [Environment(self._run_id, agent.node.name, name, value) for name, value in facts.items()]

    def _close(self) -> None:
        for agent in self._agents:
            agent.close()
