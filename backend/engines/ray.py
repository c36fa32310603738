"""vLLM on a Ray cluster that already runs: only the head is launched; Ray starts the workers on the other nodes.

The cluster is not ours: it is neither started nor stopped, and nothing of it is ever signalled. Its workers are looked
at by their process titles: those that came with the launch must live while it is measured, and must be gone before the
next.
"""

from __future__ import annotations

from pathlib import Path

from backend.engines.nnodes import environment, log_of, place_on, probe_files, serve
from backend.engines.nodes_server import NodesServer
from backend.engines.rank import Rank
from backend.measure import nccl
from backend.spec import SweepSpec


class RayEngine:
    """Launches the head on the first node with `--distributed-executor-backend ray`, and without --nnodes.

    Which cluster is Ray's own matter: RAY_ADDRESS in the spec's env, else the one that runs on the head's node.
    """

    def __init__(self, spec: SweepSpec) -> None:
        self._spec = spec

    def command(self, k: int) -> tuple[tuple[str, ...], dict[str, str]]:
        """The head's argv and environment for depth k."""
        spec, head = self._spec, self._spec.node[0]
        argv = [*serve(spec, head, k), "--distributed-executor-backend", "ray"]
        argv += ["--host", spec.server.host, "--port", str(spec.server.port)]
        return tuple(argv), environment(spec, head)

    def launch(self, k: int, log_path: Path, lease_path: Path) -> NodesServer:
        """Start the head for depth k. Raises RunFailed(kind="launch"); then nothing of it runs."""
        ranks = [
            Rank(
                number,
                place_on(node, lease_path),
                *(self.command(k) if number == 0 else ((), {})),
                log_of(log_path, node, number),
                [self._spec.server.port] if number == 0 else [],
                probe_files(self._spec, node) if number == 0 else {},
                by_title=True,
            )
            for number, node in enumerate(self._spec.node)
        ]
        return NodesServer(self._spec, k, ranks, lease_path, nccl.check_logs if self._spec.nodes.roce else None)
