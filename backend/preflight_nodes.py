"""Look at every node before a sweep: `check SPEC --nodes`. Each finding has a code, a severity and what to do.

The agents answer (measure/agent_facts.py); what their answers mean is decided here and in preflight_rules.py. Nothing
is started and nothing is written on a node.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend import preflight, preflight_rules
from backend.errors import NodeError, Refused
from backend.measure.nodes import NodeAgent, open_agents
from backend.preflight_rules import Check, Seen
from backend.spec import SweepSpec
from backend.spec_nodes import Node

WHOLE_HASH_BYTES = 16 << 30  # up to here every byte of a model is compared; reading 100 GB would take minutes a node
MODEL_TIMEOUT_S = 900.0


@dataclass(frozen=True, slots=True)
class Report:
    """What `check SPEC --nodes` found, errors first."""

    checks: tuple[Check, ...]
    nodes: int

    @property
    def errors(self) -> int:
        """How many findings forbid the sweep."""
        return sum(check.severity == "error" for check in self.checks)


def check_nodes(spec: SweepSpec, data_dir: Path) -> Report:
    """All findings about a spec and its nodes. Raises Refused where the spec names no node."""
    if not spec.node:
        raise Refused("the spec names no [[node]]", where=spec.name, fix="data/specs/glm52-gb10.toml shows how")
    found = [Check("spec", "error", "", fault, "correct the spec") for fault in preflight.faults(spec)]
    found += [Check("note", "info", "", note, "") for note in preflight.notes(spec)]
    agents, failed = open_agents(spec.node, spec.nodes.agent)
    try:
        for name, why in failed.items():
            words = why.removeprefix(f"{name}: ")
            fix = "every check of this node is open until it answers"
            found.append(Check("node-unreachable", "error", name, words, fix))
        with ThreadPoolExecutor(max(len(agents), 1)) as pool:
            seen = list(pool.map(lambda agent: look(spec, agent, data_dir), agents))
    finally:
        for agent in agents:
            agent.close()
    found += preflight_rules.judge(spec, seen)
    order = ("error", "warning", "info")
    names = ["", *(node.name for node in spec.node)]
    return Report(
        tuple(sorted(found, key=lambda check: (order.index(check.severity), names.index(check.node)))), len(spec.node)
    )


def look(spec: SweepSpec, agent: NodeAgent, data_dir: Path) -> Seen:
    """Ask one node everything. An answer that does not come is None, with its reason among `unanswered`."""
    node, unanswered = agent.node, dict[str, str]()

    def ask(what: str, do: str, timeout_s: float = 90, **arguments: Any) -> Any:
        try:
            return agent.ask(do, timeout_s, **arguments)
        except NodeError as error:
            unanswered[what] = error.what
            return None

    target, drafter = models_on(spec, node)
    folder = str(data_dir) if node.local else node.log_dir or "~/.cache"
    python = node.vllm_python or (spec.server.python if spec.server.launcher != "command" else None)
    whole = {"whole_bytes": WHOLE_HASH_BYTES}
    return Seen(
        node=node,
        hello=agent.hello,
        target=ask("target", "model", MODEL_TIMEOUT_S, folder=target, **whole) if target else None,
        drafter=ask("drafter", "model", MODEL_TIMEOUT_S, folder=drafter, **whole) if drafter else None,
        disk=ask("disk", "disk", folder=folder),
        vllm=ask("vllm", "version", python=str(python), package="vllm") if python else None,
        left=ask("port", "released", port=spec.server.port, mark=""),
        offset_s=agent.offset_s,
        round_trip_s=agent.round_trip_s or 0.0,
        unanswered=unanswered,
    )


def models_on(spec: SweepSpec, node: Node) -> tuple[str | None, str | None]:
    """Folders of target and drafter on a node; None where the spec gives only a name that the server knows."""
    names: Iterable[str | None] = (
        node.target_model or spec.target.model,
        node.speculator_model or spec.speculator.model,
    )
    target, drafter = (name if name and name.startswith(("/", "~", ".")) else None for name in names)
    return target, drafter
