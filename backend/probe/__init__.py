"""What runs inside vLLM's worker processes, as a package of its own; here is only where it lies and how to load it."""

from pathlib import Path

FOLDER = Path(__file__).parent  # goes on PYTHONPATH of the server, on every node
PACKAGE = "sounding_probe"
CLASS = "sounding_probe.stages.StageProbe"  # for --worker-extension-cls
