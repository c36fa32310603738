"""The pre-flight of nodes: real answers of an agent at home (with a played NVML), and every rule on what they mean."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from backend.cli import cli
from backend.errors import Refused
from backend.measure.nodes import NodeAgent
from backend.preflight_nodes import check_nodes, look
from backend.preflight_rules import GIB, Check, Seen, judge
from backend.spec import SweepSpec
from backend.spec_file import load
from backend.spec_nodes import Agent
from tests.measure.agents import play
from tests.test_spec import MINIMAL

GB10 = Path(__file__).parents[1] / "data" / "specs" / "glm52-gb10.toml"
PAIR = """
[nodes]
checkpoint_bytes = {checkpoint}
reserve_bytes = 1073741824
[[node]]
name = "spark-a"
address = "127.0.0.1"
interface = "lo"
target_model = "{target}"
speculator_model = "{drafter}"
[[node]]
name = "spark-b"
host = "spark-b.invalid"
address = "10.77.0.2"
"""


def model(folder: Path, config: dict[str, Any], weights: bytes = b"weights") -> Path:
    """A model folder."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(weights)
    return folder


@pytest.fixture
def spec(tmp_path: Path) -> SweepSpec:
    """K = 0, 1, 3 on two nodes; a drafter with a block of 5."""
    target, drafter = model(tmp_path / "target", {}), model(tmp_path / "drafter", {"dspark_block_size": 5})
    text = MINIMAL + PAIR.format(checkpoint=GIB, target=target, drafter=drafter)
    (tmp_path / "spec.toml").write_text(
        text.replace('method = "draft_model"', 'method = "dspark"\nmodel = "drafter-of-the-node"')
    )
    return load(tmp_path / "spec.toml")


def seen_with(spec: SweepSpec, tmp_path: Path) -> Seen:
    """What an agent at home answers as spark-a."""
    agent = NodeAgent(spec.node[0], Agent())
    try:
        return look(spec, agent, tmp_path)
    finally:
        agent.close()


@pytest.fixture
def seen(spec: SweepSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The same with GB10's readings: memory query not supported."""
    play(monkeypatch, "gb10")
    return seen_with(spec, tmp_path)


def of(checks: list[Check], code: str) -> list[Check]:
    """The findings of one code."""
    return [check for check in checks if check.code == code]


def changed(seen: Seen, **hello: Any) -> Seen:
    """The same answers with other facts (facts={...}) or lists."""
    facts = {**seen.hello["facts"], **hello.pop("facts", {})}
    return replace(seen, hello={**seen.hello, "facts": facts, **hello})


def test_a_healthy_node_has_no_error_and_is_recorded(spec: SweepSpec, seen: Seen) -> None:
    found = judge(spec, [replace(seen, vllm=None)])
    assert [check for check in found if check.severity == "error"] == []
    (told,) = of(found, "node")
    for words in ("NVIDIA GB10", "driver 580.95.05", "VBIOS 9A.0B", "gpu (nvml)"):
        assert words in told.message


def test_memory_unsupported_by_nvml_is_read_from_the_machine(spec: SweepSpec, seen: Seen) -> None:
    assert seen.fact("gpu_memory_total_bytes") is None
    big = spec.model_copy(update={"nodes": spec.nodes.model_copy(update={"checkpoint_bytes": 999 * GIB})})
    (short,) = of(judge(big, [seen]), "memory-short")
    assert (short.severity, "499.5 checkpoint share" in short.message) == ("error", True)
    assert "MemAvailable, memory shared with the GPU" in short.message


@pytest.mark.parametrize(
    ("machine_gib", "free_gib", "where"),
    [(128, 20, None), (2000, 20, "free on the GPU")],
    ids=["GB10 shares the machine's memory", "a discrete GPU has its own"],
)
def test_memory_supported_by_nvml(
    spec: SweepSpec, seen: Seen, machine_gib: int, free_gib: int, where: str | None
) -> None:
    """128 GiB of GPU memory, little of it free; MemAvailable is enough. What counts is where the model will lie."""
    facts = {
        "gpu_memory_total_bytes": str(128 * GIB),
        "gpu_memory_free_bytes": str(free_gib * GIB),
        "memory_total_kb": str(machine_gib << 20),
    }
    sample = {**seen.hello["sample"], "memory_available_bytes": 100 * GIB}
    spec = spec.model_copy(update={"nodes": spec.nodes.model_copy(update={"checkpoint_bytes": 120 * GIB})})
    found = of(judge(spec, [changed(seen, facts=facts, sample=sample)]), "memory-short")
    assert [where in check.message for check in found if where] == ([True] if where else [])
    assert bool(found) is bool(where)


def test_drafter_block_refuses_above_and_flags_below(spec: SweepSpec, seen: Seen) -> None:
    """K=7 on a block of 5 collapsed every position; below the block it is trimmed."""
    (trimmed,) = of(judge(spec, [seen]), "drafter-trimmed")
    assert (trimmed.severity, "K = 1, 3 trims the drafter's block of 5" in trimmed.message) == ("info", True)
    deep = spec.model_copy(update={"depths": (0, 5, 7)})
    (above,) = of(judge(deep, [seen]), "depth-above-block")
    assert (above.severity, "depth 7 is above the drafter's block of 5" in above.message) == ("error", True)


def test_a_drafter_that_differs_between_nodes_is_refused(spec: SweepSpec, seen: Seen, tmp_path: Path) -> None:
    """Same size, one byte: the digest of all files finds it."""
    other = model(tmp_path / "b", {"dspark_block_size": 5}, b"weightz")
    there = spec.node[0].model_copy(update={"name": "spark-b", "speculator_model": str(other)})
    agent = NodeAgent(there, Agent())
    try:
        second = look(spec, agent, tmp_path)
    finally:
        agent.close()
    found = judge(spec, [seen, second])
    (differs,) = of(found, "drafter-differs")
    assert (differs.severity, "spark-b" in differs.message) == ("error", True)
    assert of(found, "target-differs") == []
    equal = judge(spec, [seen, replace(second, drafter=seen.drafter)])
    assert of(equal, "drafter-differs") == []


def test_links_by_this_nodes_own_names(spec: SweepSpec, seen: Seen) -> None:
    def with_link(**link: Any) -> list[Check]:
        return judge(spec, [replace(seen, node=seen.node.model_copy(update=link))])

    assert "there are" in of(with_link(interface="enp1s0f0np0"), "interface-missing")[0].message
    assert "lo has 127.0.0.1, the spec says 10.77.0.1" in of(with_link(address="10.77.0.1"), "address-wrong")[0].message
    assert of(with_link(hcas=("rocep1s0f0",)), "hca-missing")[0].severity == "error"
    down = changed(seen, hcas=[{"name": "rocep1s0f0", "state": "1: DOWN", "link": "Ethernet"}])
    down = replace(down, node=seen.node.model_copy(update={"hcas": ("rocep1s0f0",)}))
    assert "1: DOWN" in of(judge(spec, [down]), "hca-down")[0].message
    roce = spec.model_copy(update={"nodes": spec.nodes.model_copy(update={"roce": True})})
    assert of(judge(roce, [seen]), "hca-unnamed")[0].severity == "error"


@pytest.mark.parametrize(
    ("change", "code", "severity"),
    [
        ({"facts": {"earlyoom": "earlyoom"}}, "oom-killer", "warning"),
        ({"facts": {"ray_memory_monitor": "on"}}, "ray-memory-monitor", "warning"),
        ({"facts": {"uptime_s": "120.5"}}, "fresh-boot", "warning"),
        ({"gpu_processes": [{"pid": 7, "program": "python3"}]}, "gpu-in-use", "error"),
        ({"unsupported": {"power_w": "Not Supported"}}, "power-unsupported", "warning"),
        ({"facts": {"gpu_name": None, "gpu": "unsupported: NVML: Driver Not Loaded"}}, "no-gpu", "error"),
    ],
)
def test_what_runs_beside_us(spec: SweepSpec, seen: Seen, change: dict[str, Any], code: str, severity: str) -> None:
    assert of(judge(spec, [seen]), code) == [] or code == "fresh-boot"
    (found,) = of(judge(spec, [changed(seen, **change)]), code)
    assert (found.severity, found.node, bool(found.action)) == (severity, "spark-a", True)


def test_disk_clock_port_and_versions(spec: SweepSpec, seen: Seen) -> None:
    late = replace(seen, offset_s=2.5, disk={"folder": "/var", "free_bytes": 5, "writable": False}, vllm=None)
    taken = replace(late, node=spec.node[0], left={**(seen.left or {}), "listening": True})
    codes = {check.code: check for check in judge(spec, [taken])}
    assert {"clock-offset", "disk-full", "disk-readonly", "port-taken"} <= set(codes)
    assert "+2.50 s off" in codes["clock-offset"].message
    versions = [
        replace(seen, node=node, vllm={"version": version, "reason": None})
        for node, version in zip(spec.node, ("0.32.0", "0.33.0"), strict=True)
    ]
    (differs,) = of(judge(spec, versions), "vllm-differs")
    assert differs.severity == "error"
    mixed = judge(spec, [seen, replace(changed(seen, facts={"gpu_driver": "575.1"}), node=spec.node[1])])
    assert "gpu driver differs" in of(mixed, "nodes-differ")[0].message


def test_the_gb10_spec_explains_all_that_is_missing_on_this_machine(tmp_path: Path) -> None:
    """Exit 2, a line a finding, each with what to do; nothing is written."""
    result = CliRunner().invoke(cli, ["check", str(GB10), "--nodes", "--data", str(tmp_path / "data")])
    assert result.exit_code == 2, result.output
    for code in (
        "spark-a: no-gpu", "spark-a: memory-short", "spark-a: interface-missing", "spark-a: hca-missing",
        "spark-a: target-missing", "spark-a: drafter-missing", "spark-a: vllm-missing", "spark-b: node-unreachable",
    ):  # fmt: skip
        assert f"ERROR   {code}: " in result.output
    assert "the sweep cannot run as written" in result.output
    assert not (tmp_path / "data").exists()


def test_nodes_are_asked_for_where_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(MINIMAL)

    with pytest.raises(Refused, match=r"names no \[\[node\]\]"):
        check_nodes(load(tmp_path / "spec.toml"), tmp_path)
