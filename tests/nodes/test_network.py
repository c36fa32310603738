"""RoCE asked for: each launcher has NCCL tell which network it uses, and reads it before anything is measured.

NCCL falls back to TCP without an error. Its lines are scripted here, in their known form; that the launcher set
NCCL_DEBUG on every node is real: without it the scripted ranks do not tell.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.records import Environment, Request
from tests.nodes.events import nothing_is_left
from tests.nodes.rig import Rig
from tests.sweep.harness import failures, records, sweep

pytestmark = pytest.mark.nodes
Write = Callable[..., Path]
ROCE = {"roce": True, "memory_slack_bytes": 64 << 30, "agent": {"on": False}}


@pytest.mark.parametrize(
    ("launcher", "networks", "fault"),
    [
        ("nnodes", ("IB", "IB"), ""),
        ("nnodes", ("IB", "Socket"), "NCCL fell back to TCP (NET/Socket) on spark-b"),
        ("nnodes", ("", "IB"), "the log of spark-a does not say which network NCCL uses"),
        ("ray", ("IB,IB", ""), ""),  # the second is of a worker that Ray started: told in the head's log
        ("ray", ("IB,Socket", ""), "NCCL fell back to TCP (NET/Socket) on spark-a"),
        ("ray", ("", ""), "the log of spark-a does not say which network NCCL uses"),
    ],
)
def test_roce_asked_is_roce_on_both_hosts(
    scripted_spec: Write, hosts: Rig, tmp_path: Path, launcher: str, networks: tuple[str, str], fault: str
) -> None:
    data, (head, worker) = tmp_path / "data", ({"RANK_NET": network} for network in networks)
    spec = scripted_spec(depths=(1,), rank_env=(head, worker), server_launcher=launcher, server_retries=0, nodes=ROCE)
    assert sweep(spec, data).exit_code == (3 if fault else 0)
    assert [(failure.kind, fault in failure.reason) for failure in failures(data)] == [("transport", True)] * bool(
        fault
    )
    measured = [record for record in records(data) if isinstance(record, Request) and record.phase == "measure"]
    assert len(measured) == (0 if fault else 4)
    if "Socket" in fault:
        assert "NET/Socket : Using" in failures(data)[0].log_tail
    if not fault:
        told = [r.value for r in records(data) if isinstance(r, Environment) and r.name == "command_env" and r.value]
        assert len(told) == (2 if launcher == "nnodes" else 1)
        assert {json.loads(env)["NCCL_DEBUG"] for env in told} == {"INFO"}
    nothing_is_left(hosts, data)
