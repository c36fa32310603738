"""The nodes of a sweep, as frozen models: how each is reached, what its links are called, what is watched there."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,63}$"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Ssh(_Part):
    """How to reach a node; what is left out is ssh's own default. Relative paths are relative to the spec."""

    port: int | None = Field(default=None, ge=1, le=65535)
    identity_file: Path | None = None
    config_file: Path | None = None  # ssh -F: a configuration of this sweep's own
    known_hosts_file: Path | None = None
    connect_timeout_s: PositiveInt = 10
    alive_interval_s: PositiveInt = 5  # a cut link is noticed after alive_interval_s x alive_count
    alive_count: PositiveInt = 3


class Node(_Part):
    """One machine of the sweep, `[[node]]`. Their order is their rank: the first is the head.

    `address` is where the other nodes reach it (data link); `interface` and `hcas` name that link as this node does,
    which may differ between nodes. `env` goes on top of `server.env` and of `network_env` here only.
    """

    name: str = Field(pattern=NAME_PATTERN)
    host: str = Field(default="local", pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:@%-]*$")  # "local" or an ssh destination
    address: str | None = Field(default=None, pattern=r"^[0-9A-Za-z_.:%-]+$")
    ssh: Ssh = Ssh()
    interface: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.:@-]+$")
    hcas: tuple[str, ...] = ()  # names under /sys/class/infiniband
    gid_index: int | None = Field(default=None, ge=0)
    env: dict[str, str] = {}
    python: str = "python3"  # runs the agent; it needs nothing but its standard library
    wall_meter: tuple[str, ...] = ()  # a program on this node that prints "WATTS" or "WATTS JOULES" a line
    vllm_python: Path | None = None  # else server.python
    target_model: str | None = None  # where this node keeps it; else target.model
    speculator_model: str | None = None
    log_dir: str | None = None  # where the launcher logs on this node; else a folder of its own under ~/.cache

    @property
    def local(self) -> bool:
        """Whether it is the machine that the sweep runs on."""
        return self.host == "local"

    def network_env(self) -> dict[str, str]:
        """Environment that names this node's link to vLLM, NCCL, Gloo and UCX; only what the spec gives."""
        env = {}
        if self.address:
            env["VLLM_HOST_IP"] = self.address
        if self.interface:  # GLOO's is not implied by NCCL's
            env |= {"NCCL_SOCKET_IFNAME": self.interface, "GLOO_SOCKET_IFNAME": self.interface}
            env["UCX_NET_DEVICES"] = ",".join(f"{hca}:1" for hca in self.hcas) or self.interface
        if self.hcas:
            env["NCCL_IB_HCA"] = ",".join(self.hcas)
        if self.gid_index is not None:
            env["NCCL_IB_GID_INDEX"] = str(self.gid_index)
        return {**env, **self.env}


class Agent(_Part):
    """The program that watches each node during a run (`[nodes.agent]`): power, clocks, memory, canary."""

    on: bool = True
    period_s: float = Field(default=1.0, ge=0.05, le=60)  # sampling; below the sensor's own period it adds nothing
    canary: bool = True  # before and after each run
    deadman_s: float = Field(default=60, ge=2)  # it ends itself after so long without a word from us


class Nodes(_Part):
    """What holds for all nodes together (`[nodes]`). Without `[[node]]` none of it is used.

    `roce`: NCCL must use NET/IB between the nodes; a fall-back to NET/Socket fails the run.
    Bytes not given are read from the model folders on the nodes.
    """

    roce: bool = False
    master_port: int = Field(default=29577, ge=1024, le=65535)
    checkpoint_bytes: PositiveInt | None = None  # whole; each node holds its share
    drafter_bytes: PositiveInt | None = None  # each node is counted with all of it
    reserve_bytes: int = Field(default=6 << 30, ge=0)  # what system, CUDA context and page cache need on each node
    log_bytes: PositiveInt = 1 << 30  # free disk that logs and journals need on each node
    memory_slack_bytes: int = Field(default=4 << 30, ge=0)  # so much may be missing after a stop, against before
    clock_offset_s: float = Field(default=0.5, gt=0)  # a larger offset to the sweep's clock is a warning
    agent: Agent = Agent()


def fault_of_nodes(nodes: Nodes, node: tuple[Node, ...]) -> str | None:
    """What does not fit together in a spec's nodes, as one sentence; None when all does."""
    names = [each.name for each in node]
    if len(set(names)) != len(names):
        return "every [[node]] needs a name of its own"
    if sum(each.local for each in node) > 1:
        return "only one [[node]] can have host = 'local'; give the others their ssh destination"
    if len(node) > 1 and (missing := [each.name for each in node if each.address is None]):
        return f"node {', '.join(missing)}: address is missing (where the other nodes reach it)"
    if nodes.roce and len(node) < 2:
        return "nodes.roce asks for a link between nodes; name at least two [[node]]"
    return None
