"""Look before the launch: does what the spec names exist on this machine, and how long will it take?

Nothing is written and no server is started. What cannot work is refused with one line per fault.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from backend.engines.process import port_in_use
from backend.errors import Refused, SpecError
from backend.measure.forced import ASKED_TOKENS
from backend.measure.instrument import REQUESTS_A_PROMPT
from backend.measure.workload import read_prompts
from backend.schedule import plan
from backend.spec import SweepSpec

# Where drafters' config.json states their native depth; nested *_config tables as vLLM 0.32 reads them.
DEPTH_KEYS = (
    "dspark_block_size",
    "block_size",
    "num_speculative_tokens",
    "speculative_tokens",
    "num_lookahead_tokens",
)


def check(spec: SweepSpec) -> None:
    """Refuse what cannot run here: missing files, interpreter or models, a depth too deep. Raises Refused."""
    read_prompts(spec.workload.prompts)
    if found := faults(spec):
        raise SpecError("; ".join(found), where=spec.name)


def faults(spec: SweepSpec) -> list[str]:
    """What cannot run here, one clause each. Nodes have a check of their own: preflight_nodes.py."""
    faults = [*_model_faults(spec), *_launcher_faults(spec)]
    if spec.workload.chat_template and not spec.workload.chat_template.is_file():
        faults.append(f"workload.chat_template {spec.workload.chat_template} does not exist")
    return faults


def check_port(spec: SweepSpec) -> None:
    """Refuse when something already listens where the server is to be. Raises Refused."""
    server = spec.server
    if server.base_url is None and port_in_use(server.host, server.port):
        raise Refused(
            f"port {server.port} on {server.host} is in use",
            where=spec.name,
            fix="end what listens there or give server.port another value",
        )


def native_depth(model_dir: Path) -> tuple[int, str] | None:
    """`native_depth_of` a model folder; None where there is no config.json. Raises SpecError where it is broken."""
    try:
        config: dict[str, Any] = json.loads((model_dir / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, json.JSONDecodeError) as error:
        raise SpecError(f"cannot read the drafter's config.json: {error}", where=str(model_dir)) from None
    return native_depth_of(config)


def native_depth_of(config: dict[str, Any]) -> tuple[int, str] | None:
    """The deepest K a drafter drafts, by its config.json, and the key that says so; None when it does not say.

    An autoregressive drafter has no such limit. Where several keys stand, the smallest counts: drafting deeper
    than a block collapses all positions and vLLM 0.33 has no guard on it.
    """
    tables = [
        config,
        *(value for name, value in config.items() if isinstance(value, dict) and name.endswith("_config")),
    ]
    stated = [
        (table[key], key)
        for table in tables
        for key in DEPTH_KEYS
        if isinstance(table.get(key), int) and not isinstance(table[key], bool) and table[key] > 0
    ]
    return min(stated) if stated else None


def notes(spec: SweepSpec) -> list[str]:
    """What works but should be known: drafts trimmed below the block, sampling that hides equal outputs."""
    found = []
    limit = native_depth(Path(spec.speculator.model)) if spec.speculator.model else None
    trimmed = [k for k in spec.depths if limit is not None and 0 < k < limit[0]]
    if limit is not None and trimmed:
        found.append(f"K = {', '.join(map(str, trimmed))} trims the drafter's block of {limit[0]}")
    if spec.workload.temperature > 0:
        found.append("temperature above 0: outputs differ between depths, so matched starts are not available")
    if spec.blocks < 3:
        found.append(f"{spec.blocks} block(s): intervals need replication; 3 blocks give every depth three launches")
    if spec.stop is not None:
        most_hours = predicted_hours(spec) * spec.stop.max_blocks / spec.blocks
        most = f"at most {spec.stop.max_blocks} blocks, about {most_hours:.1f} h"
        found.append(f"[stop]: the hours are those of the pilot of {spec.blocks} blocks; {most}")
    if spec.forced.starts:
        asked = spec.forced.starts * len(read_prompts(spec.workload.prompts))
        found.append(f"forced.starts sends up to {asked} short requests more in every run above K=0; not in the hours")
    if 0 not in spec.depths:
        found.append("depth 0 is not swept: no baseline, no break-even depth, no t_verify_base")
    return found


def predicted_hours(spec: SweepSpec) -> float:
    """Rough duration from the spec's `expect` figures: starts, settle times and every request's tokens."""
    prompts = len(read_prompts(spec.workload.prompts))
    work = spec.workload
    measured = 0 if spec.timing.alone else prompts * work.repeats
    timed = REQUESTS_A_PROMPT * min(spec.timed_prompts, prompts)
    per_run_s = spec.expect.server_start_s + spec.server.settle_s
    for cell in spec.cells():
        alone = timed if cell.concurrency == 1 else 0
        tokens = work.max_tokens * ((work.warmup_requests + measured) / cell.concurrency + alone)
        tokens += ASKED_TOKENS * spec.forced.starts * prompts
        per_run_s += tokens / spec.expect.decode_tok_s
    return per_run_s * len(plan(spec)) / 3600


def _model_faults(spec: SweepSpec) -> list[str]:
    if spec.server.launcher in ("nnodes", "ray"):
        return []  # the models are on the nodes
    faults = []
    for key, model in (("target.model", spec.target.model), ("speculator.model", spec.speculator.model)):
        # a local launch needs local files, as nothing is fetched here; a name without a slash is the server's own
        looks_local = model is not None and (model.startswith((".", "/", "~")) or Path(model).is_dir())
        if looks_local and model is not None and not (Path(model) / "config.json").is_file():
            faults.append(f"{key} {model} holds no config.json (is the path relative to the spec file?)")
    limit = native_depth(Path(spec.speculator.model)) if spec.speculator.model else None
    deepest = max(spec.depths)
    if limit is not None and deepest > limit[0]:
        faults.append(
            f"depth {deepest} is above the drafter's native depth {limit[0]} ({limit[1]} in its config.json): "
            "deeper drafts collapse every position; lower depths"
        )
    return faults


def _launcher_faults(spec: SweepSpec) -> list[str]:
    server = spec.server
    if server.base_url is not None or server.launcher in ("nnodes", "ray"):
        return []  # what runs on nodes is looked at there
    if server.launcher == "vllm":
        if shutil.which(str(server.python)) is None:
            return [f"server.python {server.python} is not there (make the vLLM environment with: make .venv-vllm)"]
        return []
    if shutil.which(server.argv[0]) is None:
        return [f"server.argv starts {server.argv[0]}, which is not an executable here"]
    return []
