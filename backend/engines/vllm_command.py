"""The command line of one vLLM server for one depth: what every launcher of vLLM passes, whatever starts it where.

K=0 launches without the speculative configuration. Options that the depth decides are here and nowhere else.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from backend import probe
from backend.spec import SweepSpec

# Nothing leaves the machine, whatever the user's environment says; a spec's env can override.
QUIET_ENV = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
EAGER = "--enforce-eager"
SIZES_FLAG = "--cudagraph-capture-sizes"


def options(spec: SweepSpec, k: int, *, speculator_model: str | None = None) -> list[str]:
    """Options for depth k without model, host and port: prefix caching off, per-request clocks on, KV size pinned.

    `speculator_model`: where this node keeps the drafter, else as the spec says.
    """
    server = spec.server
    argv = ["--no-enable-prefix-caching", "--enable-per-request-metrics"]
    if spec.target.revision:
        argv += ["--revision", spec.target.revision]
    if server.kv_cache_bytes:
        argv += ["--kv-cache-memory-bytes", str(server.kv_cache_bytes)]
    if spec.timed_prompts:
        argv += ["--worker-extension-cls", probe.CLASS]
    if spec.workload.chat_template:
        argv += ["--chat-template", str(spec.workload.chat_template)]
    argv += server.argv
    if captures_graphs(server.argv):
        argv += [SIZES_FLAG, *map(str, capture_sizes(k, spec.concurrency))]
    if k > 0:  # at K=0 vLLM refuses the configuration and the detailed metrics alike
        argv += [
            "--speculative-config",
            json.dumps(speculative_config(spec, k, speculator_model)),
            "--per-request-spec-decode-metrics",
            "detailed",
            *server.argv_speculative,
        ]
    return argv


def probe_env(spec: SweepSpec, folder: Path = probe.FOLDER) -> dict[str, str]:
    """Environment that lets a server be timed: where the probe lies on its node, and vLLM's /collective_rpc."""
    if not spec.timed_prompts:
        return {}
    path = spec.server.env.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    return {"VLLM_SERVER_DEV_MODE": "1", "PYTHONPATH": f"{folder}:{path}" if path else str(folder)}


def speculative_config(spec: SweepSpec, k: int, speculator_model: str | None = None) -> dict[str, Any]:
    """The value of --speculative-config for depth k >= 1."""
    speculator = spec.speculator
    config: dict[str, Any] = {"method": speculator.method, "num_speculative_tokens": k, **speculator.config}
    if speculator.model:
        config["model"] = speculator_model or speculator.model
    if speculator.revision:
        config["revision"] = speculator.revision
    return config


def captures_graphs(argv: tuple[str, ...]) -> bool:
    """Whether vLLM would capture CUDA graphs of sizes that nobody has chosen: not eager, no sizes of the spec's own."""
    own = ("cudagraph_capture_size", "cudagraph-capture-size")
    return EAGER not in argv and not any(name in part for part in argv for name in own)


def capture_sizes(k: int, concurrency: tuple[int, ...]) -> tuple[int, ...]:
    """CUDA graph sizes (tokens in a batch) for depth k: multiples of K+1, as each request verifies K+1 tokens a step.

    For each number of requests up to 8, then every eighth up to the largest concurrency, and each concurrency asked
    for. With sizes that are no multiples the verify step is padded, or runs without a graph: 10-24 % slower on GB10.
    The same rule for every K, so that depths stay comparable.
    """
    most = max(concurrency)
    requests = {*range(1, min(most, 8) + 1), *range(8, most + 1, 8), *concurrency}
    return tuple((k + 1) * count for count in sorted(requests))
