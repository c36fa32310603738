"""Which way NCCL went between the nodes, read from a server's log. It falls back to TCP without an error.

Formats: NCCL's own INFO lines (NCCL_DEBUG=INFO): "NET/IB : Using [0]mlx5_0:1/RoCE", "Using network IB" and, a channel
each, "... [send] via NET/IB/0"; with sockets "NET/Socket" in the same places.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from backend.errors import RunFailed

USED = re.compile(r"(?:via|Using network) (?:NET/)?(IB|Socket)\b|NET/(IB|Socket) : Using")
FIX = (
    "check that the HCAs are up on every node (check SPEC --nodes) and that NCCL_IB_HCA, NCCL_IB_GID_INDEX and "
    "NCCL_SOCKET_IFNAME name this node's own link; in containers pass /dev/infiniband and unlimited memlock"
)


def transport(log: str) -> Literal["IB", "Socket"] | None:
    """What NCCL uses by a server's log; Socket as soon as one line says so, None where it says nothing."""
    seen = {first or second for first, second in USED.findall(log)}
    return "Socket" if "Socket" in seen else "IB" if "IB" in seen else None


def check_logs(paths: Mapping[str, Path]) -> None:
    """`require_ib` of log files (node -> path). Raises RunFailed(kind="transport")."""
    logs = {node: path.read_text(errors="replace") if path.is_file() else "" for node, path in paths.items()}
    require_ib(logs)


def require_ib(logs: Mapping[str, str]) -> None:
    """Refuse a launch whose nodes (name -> log) do not all talk by NET/IB. Raises RunFailed(kind="transport")."""
    ways = {node: transport(log) for node, log in logs.items()}
    on_tcp = [node for node, way in ways.items() if way == "Socket"]
    if on_tcp:
        lines = [line for node in on_tcp for line in logs[node].splitlines() if "Socket" in line][:8]
        raise RunFailed(
            f"the spec asks for RoCE, but NCCL fell back to TCP (NET/Socket) on {', '.join(on_tcp)}",
            kind="transport",
            fix=FIX,
            log_tail="\n".join(lines),
        )
    if silent := [node for node, way in ways.items() if way is None]:
        raise RunFailed(
            f"the spec asks for RoCE, but the log of {', '.join(silent)} does not say which network NCCL uses",
            kind="transport",
            fix="set NCCL_DEBUG = 'INFO' in server.env, so that the log tells, or nodes.roce = false",
        )
