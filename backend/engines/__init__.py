"""Engines: how one server for one draft depth is launched, known to be ready, and ended."""

from backend.engines.base import Engine
from backend.engines.command import CommandEngine, EndpointEngine
from backend.engines.nnodes import NnodesEngine
from backend.engines.ray import RayEngine
from backend.engines.vllm import VllmEngine
from backend.engines.vllm_command import EAGER
from backend.spec import SweepSpec


def engine_for(spec: SweepSpec, *, eager: bool = False) -> Engine:
    """The engine that a spec asks for; `eager`: the one of a diagnostic run, whose stages no CUDA graph hides."""
    if eager and EAGER not in spec.server.argv:
        server = spec.server.model_copy(update={"argv": (*spec.server.argv, EAGER)})
        spec = spec.model_copy(update={"server": server})
    if spec.server.base_url is not None:
        return EndpointEngine(spec)
    engines: dict[str, type[CommandEngine | NnodesEngine | RayEngine | VllmEngine]] = {
        "command": CommandEngine,
        "nnodes": NnodesEngine,
        "ray": RayEngine,
        "vllm": VllmEngine,
    }
    return engines[spec.server.launcher](spec)
