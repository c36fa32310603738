"""Commands of ranks: what each node is told, by launcher and depth."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backend import probe
from backend.engines import engine_for
from backend.engines.keeper import FOLDER_HERE
from backend.engines.nnodes import NnodesEngine, log_of, place_on, probe_files
from backend.engines.ray import RayEngine
from backend.errors import SpecError
from backend.spec import SweepSpec
from backend.spec_file import load

Write = Callable[..., Path]
HEAD = {"name": "spark-a", "address": "10.0.0.1", "interface": "enp1s0f0np0"}
OTHER = {
    "name": "spark-b",
    "host": "lab@spark-b",
    "address": "10.0.0.2",
    "interface": "enp1s0f1np1",
    "vllm_python": "/opt/b/bin/python",
    "target_model": "/b/target",
    "speculator_model": "/b/draft",
    "env": {"ONLY_B": "1"},
}


@pytest.fixture
def two_nodes(standin_spec: Write) -> Callable[..., SweepSpec]:
    """A spec over two nodes, the head at home."""

    def build(**changes: Any) -> SweepSpec:
        defaults: dict[str, Any] = {
            "server_launcher": "nnodes",
            "server_argv": ["--enforce-eager"],
            "server_env": {"EVERYWHERE": "1"},
            "speculator": {"model": "draft"},
            "node": [HEAD, OTHER],
        }
        return load(standin_spec(**{**defaults, **changes}))

    return build


def value(argv: tuple[str, ...], option: str) -> str:
    return argv[argv.index(option) + 1]


def test_each_rank_is_told_its_own(two_nodes: Callable[..., SweepSpec]) -> None:
    engine = NnodesEngine(two_nodes())
    (head, head_env), (other, other_env) = engine.rank_command(3, 0), engine.rank_command(3, 1)
    assert engine.command(3) == (head, head_env)
    for number, argv in enumerate((head, other)):
        assert value(argv, "--nnodes") == "2"
        assert value(argv, "--node-rank") == str(number)
        assert value(argv, "--master-addr") == "10.0.0.1"
        assert value(argv, "--tensor-parallel-size") == "2"
        assert value(argv, "--distributed-executor-backend") == "mp"
        assert json.loads(value(argv, "--speculative-config"))["num_speculative_tokens"] == 3
    assert ("--headless" in head, "--headless" in other) == (False, True)
    assert ("--port" in head, "--port" in other) == (True, False)
    assert (other[0], other[other.index("serve") + 1]) == ("/opt/b/bin/python", "/b/target")
    assert json.loads(value(other, "--speculative-config"))["model"] == "/b/draft"
    assert json.loads(value(head, "--speculative-config"))["model"] == "draft"
    assert (head_env["VLLM_HOST_IP"], other_env["VLLM_HOST_IP"]) == ("10.0.0.1", "10.0.0.2")
    assert (head_env["GLOO_SOCKET_IFNAME"], other_env["GLOO_SOCKET_IFNAME"]) == ("enp1s0f0np0", "enp1s0f1np1")
    assert (head_env["EVERYWHERE"], other_env["EVERYWHERE"], other_env["ONLY_B"]) == ("1", "1", "1")
    assert "ONLY_B" not in head_env


def test_a_tensor_parallel_size_of_the_spec_stays(two_nodes: Callable[..., SweepSpec]) -> None:
    argv, _ = NnodesEngine(two_nodes(server_argv=["--tensor-parallel-size", "4"])).rank_command(0, 1)
    assert argv.count("--tensor-parallel-size") == 1
    assert value(argv, "--tensor-parallel-size") == "4"


def test_the_probe_lies_where_each_node_looks_for_it(two_nodes: Callable[..., SweepSpec]) -> None:
    """At home in the checkout; elsewhere its modules are put into the rank's folder, with nothing installed."""
    spec = two_nodes(timing={"prompts": 2}, server_env={"PYTHONPATH": "/mine"})
    engine = NnodesEngine(spec)
    assert engine.rank_command(1, 0)[1]["PYTHONPATH"] == f"{probe.FOLDER}:/mine"
    assert engine.rank_command(1, 1)[1]["PYTHONPATH"] == f"{FOLDER_HERE}/probe:/mine"
    assert probe_files(spec, spec.node[0]) == {}
    files = probe_files(spec, spec.node[1])
    module, _, _ = probe.CLASS.rpartition(".")
    assert f"class {probe.CLASS.rpartition('.')[2]}" in files[f"probe/{module.replace('.', '/')}.py"]
    assert probe_files(two_nodes(timing={"prompts": 0}), spec.node[1]) == {}


def test_places_and_logs(two_nodes: Callable[..., SweepSpec], tmp_path: Path) -> None:
    head, other = two_nodes().node
    here, there = (place_on(node, tmp_path / "server.json") for node in (head, other))
    assert (here.folder, here.lease) == (str(tmp_path), "server.json")  # the sweep's own lease
    assert there.folder != place_on(other, tmp_path / "other" / "server.json").folder  # two sweeps, two places
    assert log_of(tmp_path / "r000b0k3a1.log", head, 0).name == "r000b0k3a1.log"
    assert log_of(tmp_path / "r000b0k3a1.log", other, 1).name == "r000b0k3a1.spark-b.log"


def test_ray_launches_the_head_without_nnodes(two_nodes: Callable[..., SweepSpec]) -> None:
    spec = two_nodes(server_launcher="ray")
    engine = engine_for(spec)
    assert isinstance(engine, RayEngine)
    argv, _ = engine.command(2)
    assert value(argv, "--distributed-executor-backend") == "ray"
    assert not {"--nnodes", "--node-rank", "--headless"} & set(argv)
    assert spec.timed_prompts == 0  # Ray's workers find the probe only where somebody put it


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"node": [HEAD]}, "needs a [[node]] for every machine"),
        ({"node": [OTHER, HEAD]}, "cannot be reached from here, as the head is spark-b"),
        ({"server_launcher": "ray", "node": []}, "needs a [[node]] for every machine"),
    ],
)
def test_nodes_that_do_not_fit_the_launcher(
    two_nodes: Callable[..., SweepSpec], changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(SpecError) as caught:
        two_nodes(**changes)
    assert says in str(caught.value)
