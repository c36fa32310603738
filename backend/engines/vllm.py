"""vLLM on this machine: one `vllm` API server per depth. K=0 launches without the speculative configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from backend.engines.base import Ready
from backend.engines.process import ManagedProcess
from backend.engines.readiness import wait_ready
from backend.spec import Server as ServerSpec
from backend.spec import SweepSpec

# Nothing leaves the machine, whatever the user's environment says; a spec's env can override.
QUIET_ENV = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


class LocalServer:
    """A server process on this machine, whoever wrote its command line."""

    def __init__(
        self, argv: tuple[str, ...], env: dict[str, str], k: int, settings: ServerSpec, log_path: Path, lease_path: Path
    ) -> None:
        self.command, self.env, self.k, self._settings = argv, env, k, settings
        self.base_url = f"http://{settings.host}:{settings.port}"
        self._process = ManagedProcess(argv, env, log_path, lease_path, host=settings.host, port=settings.port)

    def wait_ready(self) -> Ready:
        """See `engines.readiness`."""
        return wait_ready(
            self.base_url,
            self.k,
            process=self._process,
            ready_timeout_s=self._settings.ready_timeout_s,
            stall_timeout_s=self._settings.stall_timeout_s,
            request_timeout_s=self._settings.request_timeout_s,
        )

    def alive(self) -> bool:
        """Whether its main process runs."""
        return self._process.alive()

    def log_tail(self) -> str:
        """Last lines of its log."""
        return self._process.log_tail()

    def stop(self) -> float:
        """End it and verify the release; seconds taken."""
        return self._process.stop(self._settings.stop_timeout_s, self._settings.release_timeout_s)


class VllmEngine:
    """Launches `python -m vllm.entrypoints.openai.api_server` from the vLLM environment named in the spec."""

    def __init__(self, spec: SweepSpec) -> None:
        self._spec = spec

    def command(self, k: int) -> tuple[tuple[str, ...], dict[str, str]]:
        """argv and environment for depth k; prefix caching off, per-request clocks on, KV size pinned."""
        spec, server = self._spec, self._spec.server
        argv = [
            str(server.python),
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            spec.target.model,
            "--host",
            server.host,
            "--port",
            str(server.port),
            "--no-enable-prefix-caching",
            "--enable-per-request-metrics",
        ]
        if spec.target.revision:
            argv += ["--revision", spec.target.revision]
        if server.kv_cache_bytes:
            argv += ["--kv-cache-memory-bytes", str(server.kv_cache_bytes)]
        if spec.workload.chat_template:
            argv += ["--chat-template", str(spec.workload.chat_template)]
        argv += server.argv
        if k > 0:  # at K=0 vLLM refuses the configuration and the detailed metrics alike
            argv += [
                "--speculative-config",
                json.dumps(self._speculative_config(k)),
                "--per-request-spec-decode-metrics",
                "detailed",
                *server.argv_speculative,
            ]
        return tuple(argv), {**QUIET_ENV, **server.env}

    def _speculative_config(self, k: int) -> dict[str, Any]:
        speculator = self._spec.speculator
        config: dict[str, Any] = {"method": speculator.method, "num_speculative_tokens": k, **speculator.config}
        if speculator.model:
            config["model"] = speculator.model
        if speculator.revision:
            config["revision"] = speculator.revision
        return config

    def launch(self, k: int, log_path: Path, lease_path: Path) -> LocalServer:
        """Start the server for depth k."""
        argv, env = self.command(k)
        return LocalServer(argv, env, k, self._spec.server, log_path, lease_path)
