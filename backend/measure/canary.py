"""The canary of every node before and after what is measured, as records. All nodes run theirs at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from backend.errors import NodeError
from backend.measure.nodes import NodeAgent
from backend.records import Canary, Environment, Record

TIMEOUT_S = 150.0
Moment = Literal["before", "after"]


def fly(run_id: str, agents: Sequence[NodeAgent], moment: Moment) -> list[Record]:
    """Canary records of all nodes; before, the power sensor's update period as a fact too, as it was seen meanwhile.

    A node whose canary could not run has one with the reason.
    """
    with ThreadPoolExecutor(max(len(agents), 1)) as pool:
        try:
            answers = list(pool.map(_one, agents))
        except BaseException:  # an interruption does not wait for the canaries
            for agent in agents:
                agent.close()
            raise
    records: list[Record] = []
    for agent, answer in zip(agents, answers, strict=True):
        node = agent.node.name
        if isinstance(answer, NodeError):
            records.append(Canary(run_id, node, moment, "canary", None, answer.what))
            continue
        records += [Canary(run_id, node, moment, each["kind"], each["duration_s"], None) for each in answer["canaries"]]
        period_s, why = answer["power_period"]
        if moment == "before":
            value = f"{period_s:.3f}" if why is None else f"unsupported: {why}"
            records.append(Environment(run_id, node, "power_period_s", value))
    return records


def _one(agent: NodeAgent) -> dict[str, Any] | NodeError:
    try:
        answer: dict[str, Any] = agent.ask("canary", TIMEOUT_S)
    except NodeError as error:
        return error
    return answer
