"""Specs that sweep the stand-in: a whole sweep of three depths takes about two seconds."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

ENGINE = Path(__file__).with_name("engine.py")
DEPTHS = (0, 1, 3)


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_spec(
    folder: Path,
    *,
    name: str = "quick",
    depths: tuple[int, ...] = DEPTHS,
    blocks: int = 1,
    prompts: int = 4,
    fault: str = "",
    arguments: tuple[str, ...] = (),
    workload: dict[str, Any] | None = None,
    **top: Any,
) -> Path:
    """Write a spec (and its prompts) into `folder`; its path.

    `fault`: STANDIN_FAULT of the engine; `arguments`: more of its options; `workload` changes keys of that table; `top`
    are top-level keys, keys of [target] and [speculator] as dicts, and keys of [server] where they begin with "server_"
    (server_retries=0).
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = ({"id": f"p{i}", "category": "ab"[i % 2], "text": f"def f{i}(x):\n    return x"} for i in range(prompts))
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    server = {
        "launcher": "command",
        "argv": [sys.executable, "-S", "-E", str(ENGINE), "--port", "{port}", "--k", "{k}", *arguments],
        "env": {"STANDIN_FAULT": fault, "STANDIN_STATE": str(folder)},
        "port": free_port(),
        "ready_timeout_s": 20,
        "request_timeout_s": 20,
        "stop_timeout_s": 3,
        "release_timeout_s": 3,
        **{key.removeprefix("server_"): value for key, value in top.items() if key.startswith("server_")},
    }
    work = {"prompts": "prompts.jsonl", "max_tokens": 16, "ignore_eos": True, "warmup_requests": 1, **(workload or {})}
    models = {"target": {"model": "standin"}, "speculator": {"method": "draft_model"}}
    plain = {key: value for key, value in top.items() if not key.startswith("server_") and key not in models}
    lines = [
        f"{key} = {toml(value)}"
        for key, value in {"name": name, "depths": depths, "blocks": blocks, "anchors": False, **plain}.items()
    ]
    for table, keys in {
        **{table: {**keys, **top.get(table, {})} for table, keys in models.items()},
        "workload": work,
        "server": server,
    }.items():
        lines += ["", f"[{table}]", *(f"{key} = {toml(value)}" for key, value in keys.items())]
    path = folder / f"{name}.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def toml(value: Any) -> str:
    """A value as TOML: JSON for scalars and lists of them, inline tables for dicts."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(part)}" for key, part in value.items()) + " }"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value)
