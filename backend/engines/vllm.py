"""vLLM on this machine: one `vllm` API server per depth. K=0 launches without the speculative configuration."""

from __future__ import annotations

from pathlib import Path

from backend.engines.base import Ready
from backend.engines.process import ManagedProcess
from backend.engines.readiness import wait_ready
from backend.engines.vllm_command import QUIET_ENV, options, probe_env
from backend.records import Record, Run
from backend.spec import Server as ServerSpec
from backend.spec import SweepSpec


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

    def trouble(self) -> str | None:
        """How its main process ended."""
        return self._process.trouble()

    def records(self, run: Run) -> list[Record]:
        """Nothing beyond its log."""
        return []

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
        """argv and environment for depth k; see `engines.vllm_command` for what the depth decides."""
        spec, server = self._spec, self._spec.server
        argv = [str(server.python), "-m", "vllm.entrypoints.openai.api_server", "--model", spec.target.model]
        argv += ["--host", server.host, "--port", str(server.port), *options(spec, k)]
        return tuple(argv), {**QUIET_ENV, **server.env, **probe_env(spec)}

    def launch(self, k: int, log_path: Path, lease_path: Path) -> LocalServer:
        """Start the server for depth k."""
        argv, env = self.command(k)
        return LocalServer(argv, env, k, self._spec.server, log_path, lease_path)
