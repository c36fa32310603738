"""The agents of both hosts, reached over ssh from a third machine: what they send, what stays when a link is cut."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backend.preflight_nodes import check_nodes
from backend.records import Canary, Environment, PowerSample
from backend.spec_file import load
from tests.nodes.events import SLOWLY, nothing_is_left, once_measuring
from tests.nodes.rig import Host, Rig
from tests.sweep.harness import findings, records, runs, sweep, wait_for

Write = Callable[..., Path]
AGENTS = {"memory_slack_bytes": 64 << 30, "agent": {"period_s": 0.1, "deadman_s": 4}}


def agents_on(host: Host) -> list[int]:
    """Agents that run there."""
    return host.named("agent.py")


def of(data: Path, kind: type) -> dict[str, list[Any]]:
    """Records of a kind, by node."""
    kept: dict[str, list[Any]] = {"spark-a": [], "spark-b": []}
    for record in records(data):
        if isinstance(record, kind):
            kept.setdefault(record.node, []).append(record)  # type: ignore[attr-defined]
    return kept


def test_what_both_agents_tell_is_kept(scripted_spec: Write, hosts: Rig, tmp_path: Path) -> None:
    data = tmp_path / "data"
    seen: list[int] = []
    with once_measuring(data, lambda: seen.extend(len(agents_on(host)) for host in hosts.hosts)):
        assert sweep(scripted_spec(depths=(1,), **SLOWLY, nodes=AGENTS), data).exit_code == 0
    assert seen == [1, 1]
    facts = {(fact.node, fact.name): fact.value for rows in of(data, Environment).values() for fact in rows}
    for host in hosts.hosts:
        assert facts[host.name, "node_host"] == f"root@{host.management_address}"
        assert facts[host.name, "hostname"] == host.name  # asked there, not here
        assert abs(float(facts[host.name, "clock_offset_s"] or "nan")) < 0.1  # one clock under both hosts
        samples = of(data, PowerSample)[host.name]
        assert len(samples) > 10
        assert all(s.power_w is not None or s.energy_j is not None or s.unsupported_reason for s in samples)
        assert [(c.moment, c.reason) for c in of(data, Canary)[host.name]] == [
            (moment, None) for moment in ("before", "before", "after", "after")
        ]
        wait_for(lambda host=host: not agents_on(host))
    assert findings(data, "node-unwatched") == findings(data, "agent-lost") == []
    nothing_is_left(hosts, data)


def test_a_cut_management_link_flags_the_run_and_keeps_what_came(
    scripted_spec: Write, hosts: Rig, tmp_path: Path
) -> None:
    """The server goes on by the data link; power and canary are missing from then on. The agent ends by its deadman."""
    data = tmp_path / "data"

    def flap() -> None:
        time.sleep(1)
        hosts.cut("management", hosts.worker)
        try:
            wait_for(lambda: not agents_on(hosts.worker))  # no end of its connection reaches it
        finally:
            hosts.mend("management", hosts.worker)

    with once_measuring(data, flap):
        outcome = sweep(scripted_spec(depths=(1,), **{**SLOWLY, "prompts": 40}, nodes=AGENTS), data)
    (run,) = runs(data)
    assert (outcome.exit_code, run.status, run.valid) == (0, "done", True)
    (lost,) = findings(data, "agent-lost")
    assert "node spark-b was lost from sight" in lost.message
    head, worker = of(data, PowerSample).values()
    assert len(worker) >= 5
    assert max(s.t_unix_s for s in head) - max(s.t_unix_s for s in worker) > 3
    assert {name: {c.moment for c in flown} for name, flown in of(data, Canary).items()} == {
        "spark-a": {"before", "after"},
        "spark-b": {"before"},
    }
    nothing_is_left(hosts, data)


def test_the_pre_flight_asks_both_hosts(scripted_spec: Write, hosts: Rig, tmp_path: Path) -> None:
    """Each by its own name of the link: the second has no data9."""
    python = {"vllm_python": sys.executable}  # the scripted rank would not say its version, but begin to serve
    nodes = [hosts.node(hosts.head, **python), hosts.node(hosts.worker, interface="data9", **python)]
    report = check_nodes(load(scripted_spec(node=nodes)), tmp_path / "data")
    found = {(check.node, check.code): check.message for check in report.checks}
    assert {node for node, code in found if code == "node"} == {"spark-a", "spark-b"}
    assert not {code for _, code in found} & {"node-unreachable", "unanswered", "clock-offset", "address-wrong"}
    assert [node for node, code in found if code == "interface-missing"] == ["spark-b"]
    assert "data0" in found["spark-b", "interface-missing"]
