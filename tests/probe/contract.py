"""What the probe needs of vLLM's source, and which of it a version lacks: read with ast, nothing is imported.

`python -m tests.probe.contract WHEEL_OR_FOLDER [GOLDEN]` prints what is missing; with GOLDEN it also keeps the names
it looked at, so that a version nobody can install here stays under test.
"""

from __future__ import annotations

import ast
import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from backend.probe.sounding_probe.hooks import HOOKS

Names = dict[str, list[str]]  # "file:Class" -> its functions


def functions(read: Callable[[str], str | None]) -> Names:
    """The functions of every class that a hook names; a class that is not there is absent."""
    found: Names = {}
    for source in sorted({hook.source for hook in HOOKS if hook.source}):
        file, _, name = source.partition(":")
        text = read(file)
        if text is None:
            continue
        body = ast.parse(text).body
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                found[source] = sorted(part.name for part in node.body if isinstance(part, ast.FunctionDef))
    return found


def missing(names: Names) -> list[str]:
    """Hooks whose function is gone from the class that should define it."""
    return [
        f"{hook.source}.{hook.attribute} (stage {hook.stage})"
        for hook in HOOKS
        if hook.source and hook.attribute not in names.get(hook.source, ())
    ]


def of_folder(site_packages: Path) -> Names:
    """Names in an installed vLLM."""
    return functions(lambda file: (site_packages / file).read_text() if (site_packages / file).is_file() else None)


def of_wheel(wheel: Path) -> Names:
    """Names in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        known = set(archive.namelist())
        return functions(lambda file: archive.read(file).decode() if file in known else None)


if __name__ == "__main__":
    where = Path(sys.argv[1])
    names = of_folder(where) if where.is_dir() else of_wheel(where)
    print("\n".join(missing(names)) or "every hook is there")
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(json.dumps(names, indent=1) + "\n")
