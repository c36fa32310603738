"""Stands where a node's vLLM would: `python -m vllm.entrypoints.cli.main serve ...` of the stand-in engine, as ranks.

Run as `server.python`. The head serves real HTTP (tests/standin/engine.py) and answers only while its workers are
there; each rank has a process with vLLM's titles beside it. What is scripted follows what was measured of vLLM 0.32:
a headless rank never ends by itself, and a head answers on when a worker's main process is killed. RANK_FAULT, of one
rank's environment: freeze (no line more after the first), die_start, ignore_term, waits (only lines that wait).
RANK_NET: which network NCCL takes ("IB", "Socket"), said as NCCL does where NCCL_DEBUG=INFO; after a comma what workers
that Ray started say, whose lines Ray copies to the head.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

STANDIN = Path(__file__).parents[1] / "standin"
HOLD = "import time; time.sleep(3600)"


def option(name: str, default: str = "") -> str:
    """The value of a command line option."""
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def companion(title: str) -> subprocess.Popen[bytes]:
    """A process of this rank under one of vLLM's titles, which outlives it as vLLM's workers do."""
    return subprocess.Popen([title, "-S", "-E", "-c", HOLD], executable=sys.executable, stdin=subprocess.DEVNULL)


def join(rank: int, world: int) -> list[socket.socket]:
    """All ranks meet at the head's master port, as torch does; a head in Ray's cluster is alone."""
    if world == 1:
        return []
    address, port = option("--master-addr"), int(option("--master-port"))
    if rank == 0:
        listener = socket.create_server(("", port))
        return [listener, *(listener.accept()[0] for _ in range(world - 1))]
    while True:
        try:
            return [socket.create_connection((address, port), 5)]
        except OSError:
            print("Waiting for the head: no more nodes or ranks yet", flush=True)
            time.sleep(0.25)


def tell_networks() -> None:
    """NCCL's own lines, and only where it was asked to tell."""
    if os.environ.get("NCCL_DEBUG") != "INFO":
        return
    for number, network in enumerate(os.environ.get("RANK_NET", "").split(",")):
        if network:
            before = f"(RayWorkerProc pid={number}, ip=10.0.0.{number}) " if number else ""
            device = "rocep1s0f0:1/RoCE [RO]; OOB " if network == "IB" else ""
            print(f"{before}node:7:7 [0] NCCL INFO NET/{network} : Using [0]{device}data0:10.0.0.1<0>", flush=True)


def main() -> None:
    """Become rank N of a server."""
    rank, world = int(option("--node-rank", "0")), int(option("--nnodes", "1"))
    print(f"rank {rank} of {world}: loading", flush=True)
    fault = os.environ.get("RANK_FAULT", "")
    if fault == "die_start":
        time.sleep(3)  # as one that loads; at once, the other rank may not have begun its log yet
        sys.exit("RuntimeError: no memory for this rank")
    while fault == "freeze":
        time.sleep(60)
    while fault == "waits":
        print("No available shared memory broadcast block found in 60 seconds.", flush=True)
        time.sleep(0.5)
    if fault == "ignore_term":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    worker = companion(f"VLLM::Worker_TP{rank}")
    held = join(rank, world)
    tell_networks()
    print(f"rank {rank}: joined", flush=True)
    if rank:
        worker.wait()  # a headless rank waits for its worker, and the worker for nobody
        return
    k = json.loads(option("--speculative-config", '{"num_speculative_tokens": 0}'))["num_speculative_tokens"]
    sys.path.insert(0, str(STANDIN))
    import engine  # the stand-in, beside us only by path

    sys.argv = ["engine.py", "--host", option("--host"), "--port", option("--port"), "--k", str(k)]
    engine.main()
    del held  # until here: the workers' connections


if __name__ == "__main__":
    main()
