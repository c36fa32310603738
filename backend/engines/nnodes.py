"""vLLM over several nodes, one `vllm serve` a node (`--nnodes`): rank 0 is the head, the others are `--headless`.

Nothing but sshd and vLLM is needed on a node. `vllm serve` and not the api_server module, which has no --headless.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Sequence
from pathlib import Path

from backend import probe
from backend.engines.keeper import FOLDER_HERE
from backend.engines.nodes_server import NodesServer
from backend.engines.rank import Place, Rank
from backend.engines.vllm_command import QUIET_ENV, options
from backend.measure import nccl
from backend.spec import SweepSpec
from backend.spec_nodes import Node

SERVE = ("-m", "vllm.entrypoints.cli.main", "serve")
FOLDER = "~/.cache/sounding"


def serve(spec: SweepSpec, node: Node, k: int) -> list[str]:
    """`vllm serve MODEL` with the options that the depth decides, as this node has programs and models."""
    python = str(node.vllm_python or spec.server.python)
    model = node.target_model or spec.target.model
    return [python, *SERVE, model, *options(spec, k, speculator_model=node.speculator_model)]


def environment(spec: SweepSpec, node: Node) -> dict[str, str]:
    """What is set on a node: the spec's, then what names this node's links, then its own; and where the probe lies."""
    told = {"NCCL_DEBUG": "INFO"} if spec.nodes.roce else {}  # then its log says which network it uses
    env = {**QUIET_ENV, **told, **spec.server.env, **node.network_env()}
    if spec.timed_prompts:
        folder = str(probe.FOLDER) if node.local else f"{FOLDER_HERE}/probe"
        path = env.get("PYTHONPATH")
        env |= {"VLLM_SERVER_DEV_MODE": "1", "PYTHONPATH": f"{folder}:{path}" if path else folder}
    return env


def probe_files(spec: SweepSpec, node: Node) -> dict[str, str]:
    """The probe's modules for a node that has no checkout: path below the place's folder -> text."""
    if node.local or not spec.timed_prompts:
        return {}
    paths = sorted((probe.FOLDER / probe.PACKAGE).glob("*.py"))
    return {f"probe/{probe.PACKAGE}/{path.name}": path.read_text(encoding="utf-8") for path in paths}


def place_on(node: Node, lease_path: Path) -> Place:
    """Where a rank keeps lease and log: at home the sweep's own lease, elsewhere a folder named after it."""
    if node.local:
        return Place(node, str(lease_path.parent), lease_path.name)
    key = hashlib.sha256(str(lease_path).encode()).hexdigest()[:12]
    return Place(node, f"{node.log_dir or FOLDER}/{socket.gethostname()}-{key}", "server.json")


def log_of(log_path: Path, node: Node, number: int) -> Path:
    """Where a rank's log is read here: the head's is the run's, the others stand beside it."""
    return log_path if number == 0 else log_path.with_name(f"{log_path.stem}.{node.name}.log")


class NnodesEngine:
    """Launches one rank a node, the last first."""

    def __init__(self, spec: SweepSpec) -> None:
        self._spec = spec

    def command(self, k: int) -> tuple[tuple[str, ...], dict[str, str]]:
        """The head's argv and environment for depth k."""
        return self.rank_command(k, 0)

    def rank_command(self, k: int, number: int) -> tuple[tuple[str, ...], dict[str, str]]:
        """argv and environment of one rank for depth k."""
        spec, nodes = self._spec, self._spec.node
        argv = serve(spec, nodes[number], k)
        if not any(part.startswith(("--tensor-parallel-size", "-tp")) for part in spec.server.argv):
            argv += ["--tensor-parallel-size", str(len(nodes))]
        argv += ["--nnodes", str(len(nodes)), "--node-rank", str(number), "--distributed-executor-backend", "mp"]
        argv += ["--master-addr", str(nodes[0].address), "--master-port", str(spec.nodes.master_port)]
        argv += ["--headless"] if number else ["--host", spec.server.host, "--port", str(spec.server.port)]
        return tuple(argv), environment(spec, nodes[number])

    def launch(self, k: int, log_path: Path, lease_path: Path) -> NodesServer:
        """Start all ranks for depth k. Raises RunFailed(kind="launch"); then nothing of it runs."""
        ranks: Sequence[Rank] = [
            Rank(
                number,
                place_on(node, lease_path),
                *self.rank_command(k, number),
                log_of(log_path, node, number),
                [self._spec.server.port, self._spec.nodes.master_port] if number == 0 else [],
                probe_files(self._spec, node),
            )
            for number, node in enumerate(self._spec.node)
        ]
        return NodesServer(self._spec, k, ranks, lease_path, nccl.check_logs if self._spec.nodes.roce else None)
