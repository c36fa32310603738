"""Read a SweepSpec from TOML: unknown keys are refused with the nearest valid one named.

Relative paths in a spec are relative to the spec file. Nothing here touches the machine.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from backend.errors import SpecError
from backend.spec import SweepSpec
from backend.spec_nodes import Ssh

BASE_HEADER = "# paths are relative to: "


def load(path: Path) -> SweepSpec:
    """Read and validate a spec. Raises SpecError with one line per fault: file, key, what to do.

    A first line `# paths are relative to: FOLDER` keeps the folder of a spec that was moved (see worker.py).
    """
    base = path.resolve().parent
    try:
        text = path.read_text(encoding="utf-8")
        raw = tomllib.loads(text)
    except FileNotFoundError:
        raise SpecError("no such spec file", where=str(path), fix="data/specs/ holds examples") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot be read: {error}", where=str(path)) from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"not valid TOML: {error}", where=str(path)) from None
    spec = _validated(raw, where=str(path))
    if text.startswith(BASE_HEADER):
        base = Path(text.partition("\n")[0].removeprefix(BASE_HEADER).strip())
    return _with_resolved_paths(spec, base)


def renamed(spec: SweepSpec, name: str) -> SweepSpec:
    """The same sweep under another name (`sweep --as NAME`)."""
    return _validated({**spec.model_dump(), "name": name}, where="--as")


def _validated(raw: dict[str, Any], *, where: str) -> SweepSpec:
    try:
        return SweepSpec.model_validate(raw)
    except ValidationError as error:
        raise SpecError("; ".join(_fault(fault) for fault in error.errors()), where=where) from None


def _fault(fault: Any) -> str:
    """One pydantic fault in one line; an unknown key comes with the nearest valid one."""
    location = [str(part) for part in fault["loc"]]
    key = ".".join(location)
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(location[-1], _keys_at(location[:-1]), n=1, cutoff=0.5)
        return f"unknown key '{key}'" + (
            f", did you mean '{near[0]}'?" if near else f"; valid here: {', '.join(_keys_at(location[:-1]))}"
        )
    if fault["type"] == "missing":
        return f"'{key}' is missing"
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "string_pattern_mismatch":
        message = "must be lower-case letters, digits, '.', '_' or '-', at most 64, starting with a letter or digit"
    given = "" if isinstance(fault["input"], dict) else f" (given: {fault['input']!r})"
    return f"'{key}': {message}{given}" if key else f"{message}"


def _keys_at(location: list[str]) -> list[str]:
    """The valid keys of the table at `location`."""
    model: Any = SweepSpec
    for part in location:
        if part.isdigit():  # which of several tables ([[node]]): they have the same keys
            continue
        field = model.model_fields.get(part)
        options = [field.annotation, *get_args(field.annotation)] if field else []
        model = next((a for a in options if isinstance(a, type) and issubclass(a, BaseModel)), None)
        if model is None:
            return []
    return list(model.model_fields)


def _with_resolved_paths(spec: SweepSpec, base: Path) -> SweepSpec:
    """Relative paths become absolute, from the spec's folder; model names that are no directory there stay."""

    def model_path(name: str | None) -> str | None:
        return str((base / name).resolve()) if name and (base / name).is_dir() else name

    work, server, python = spec.workload, spec.server, spec.server.python
    return spec.model_copy(
        update={
            "data_dir": (base / spec.data_dir).resolve() if spec.data_dir else None,
            "target": spec.target.model_copy(update={"model": model_path(spec.target.model)}),
            "speculator": spec.speculator.model_copy(update={"model": model_path(spec.speculator.model)}),
            "node": tuple(node.model_copy(update={"ssh": _resolved_ssh(node.ssh, base)}) for node in spec.node),
            "workload": work.model_copy(
                update={
                    "prompts": (base / work.prompts).resolve(),
                    "chat_template": (base / work.chat_template).resolve() if work.chat_template else None,
                }
            ),
            # absolute, not resolved: a virtual environment's python is a symlink that must stay one
            "server": server.model_copy(
                update={"python": Path(os.path.normpath(base / python)) if python.parent != Path() else python}
            ),
        }
    )


def _resolved_ssh(ssh: Ssh, base: Path) -> Ssh:
    """ssh's files from the spec's folder; a leading ~ is the home of whoever runs the sweep."""
    files = ("identity_file", "config_file", "known_hosts_file")
    given = {name: path for name in files if (path := getattr(ssh, name)) is not None}
    return ssh.model_copy(update={name: (base / path.expanduser()).resolve() for name, path in given.items()})
