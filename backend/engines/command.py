"""Any launch script, container recipe or running endpoint as an engine.

`{k}`, `{k_plus_1}`, `{capture_sizes}` and `{port}` are filled in wherever they stand in argv and env: recipes put the
depth in an environment variable (DSPARK_K, MTP_NUM_TOKENS), in a JSON flag or in a script's argument.
"""

from __future__ import annotations

from pathlib import Path

from backend import probe
from backend.engines.base import Ready
from backend.engines.readiness import wait_ready
from backend.engines.vllm import LocalServer
from backend.engines.vllm_command import capture_sizes
from backend.records import Record, Run
from backend.spec import Server as ServerSpec
from backend.spec import SweepSpec


def fill(text: str, k: int, port: int, concurrency: tuple[int, ...] = (1,)) -> str:
    """Fill the placeholders of a launch template; every other brace (JSON) stays as it is.

    {capture_sizes} is a list with commas (3,6,9), so that it also stands in JSON: [{capture_sizes}]. To have its
    proposer timed a script passes --worker-extension-cls {probe_class}, with {probe_folder} on PYTHONPATH and
    VLLM_SERVER_DEV_MODE=1, on loopback only.
    """
    sizes = ",".join(map(str, capture_sizes(k, concurrency)))
    probing = (("{probe_class}", probe.CLASS), ("{probe_folder}", str(probe.FOLDER)))
    for name, value in (("{k_plus_1}", k + 1), ("{k}", k), ("{capture_sizes}", sizes), ("{port}", port), *probing):
        text = text.replace(name, str(value))
    return text


class CommandEngine:
    """Launches `server.argv` for each depth. It must stay in the foreground: its end is the server's end."""

    def __init__(self, spec: SweepSpec) -> None:
        self._server, self._concurrency = spec.server, spec.concurrency

    def command(self, k: int) -> tuple[tuple[str, ...], dict[str, str]]:
        """argv and environment with the placeholders filled in."""
        port, together = self._server.port, self._concurrency
        return (
            tuple(fill(part, k, port, together) for part in self._server.argv),
            {name: fill(value, k, port, together) for name, value in self._server.env.items()},
        )

    def launch(self, k: int, log_path: Path, lease_path: Path) -> LocalServer:
        """Start the command for depth k."""
        argv, env = self.command(k)
        return LocalServer(argv, env, k, self._server, log_path, lease_path)


class Endpoint:
    """A server that already runs: ours to measure, not to start or stop."""

    command: tuple[str, ...] = ()

    def __init__(self, base_url: str, k: int, settings: ServerSpec) -> None:
        self.base_url, self.k, self._settings = base_url.rstrip("/").removesuffix("/v1"), k, settings
        self.env: dict[str, str] = {}

    def wait_ready(self) -> Ready:
        """See `engines.readiness`."""
        return wait_ready(
            self.base_url,
            self.k,
            process=None,
            ready_timeout_s=self._settings.ready_timeout_s,
            stall_timeout_s=self._settings.stall_timeout_s,
            request_timeout_s=self._settings.request_timeout_s,
        )

    def alive(self) -> bool:
        """Unknown from outside; a dead endpoint shows as failed requests."""
        return True

    def trouble(self) -> str | None:
        """Nothing is known of it."""
        return None

    def records(self, run: Run) -> list[Record]:
        """Nothing is known of it."""
        return []

    def log_tail(self) -> str:
        """Its log is not ours."""
        return ""

    def stop(self) -> float:
        """It lives on."""
        return 0.0


class EndpointEngine:
    """Measures `server.base_url` for the one depth it runs with."""

    def __init__(self, spec: SweepSpec) -> None:
        self._server = spec.server

    def command(self, k: int) -> tuple[tuple[str, ...], dict[str, str]]:
        """Nothing is launched."""
        return (), {}

    def launch(self, k: int, log_path: Path, lease_path: Path) -> Endpoint:
        """Attach."""
        assert self._server.base_url is not None  # engine_for chose this class by it
        return Endpoint(self._server.base_url, k, self._server)
