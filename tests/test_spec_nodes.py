"""`[nodes]` and `[[node]]`: their order is the rank, their links become environment, what does not fit is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.errors import SpecError
from backend.spec_file import load
from tests.test_spec import MINIMAL, write

PAIR = """
[nodes]
roce = true
[[node]]
name = "spark-a"
address = "10.77.0.1"
interface = "enp1s0f0np0"
hcas = ["rocep1s0f0", "roceP2p1s0f0"]
gid_index = 3
[[node]]
name = "spark-b"
host = "lab@10.77.1.2"
address = "10.77.0.2"
env = { NCCL_SOCKET_IFNAME = "enP2p1s0" }
ssh = { port = 2222, identity_file = "keys/id" }
"""


def test_order_is_rank_and_links_become_environment(tmp_path: Path) -> None:
    spec = load(write(tmp_path, MINIMAL + PAIR))
    assert [(node.name, node.local) for node in spec.node] == [("spark-a", True), ("spark-b", False)]
    assert spec.node[0].network_env() == {
        "VLLM_HOST_IP": "10.77.0.1",
        "NCCL_SOCKET_IFNAME": "enp1s0f0np0",
        "GLOO_SOCKET_IFNAME": "enp1s0f0np0",
        "NCCL_IB_HCA": "rocep1s0f0,roceP2p1s0f0",
        "NCCL_IB_GID_INDEX": "3",
        "UCX_NET_DEVICES": "rocep1s0f0:1,roceP2p1s0f0:1",
    }
    assert spec.node[1].network_env() == {"VLLM_HOST_IP": "10.77.0.2", "NCCL_SOCKET_IFNAME": "enP2p1s0"}
    assert spec.node[1].ssh.identity_file == tmp_path / "keys" / "id"


def test_without_nodes_there_are_none(tmp_path: Path) -> None:
    assert load(write(tmp_path, MINIMAL)).node == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (PAIR.replace("spark-b", "spark-a"), "a name of its own"),
        (PAIR.replace('host = "lab@10.77.1.2"', ""), "only one [[node]] can have host = 'local'"),
        (PAIR.replace('address = "10.77.0.2"', ""), "node spark-b: address is missing"),
        (PAIR.replace("gid_index = 3", "gid_idnex = 3"), "unknown key 'node.0.gid_idnex', did you mean 'gid_index'?"),
        ('[nodes]\nroce = true\n[[node]]\nname = "one"\n', "name at least two [[node]]"),
        (PAIR.replace('"lab@10.77.1.2"', '"-oProxyCommand=x"'), "node.1.host"),  # an option is no destination
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SpecError) as error:
        load(write(tmp_path, MINIMAL + text))
    assert says in str(error.value)
    assert "\n" not in str(error.value)
