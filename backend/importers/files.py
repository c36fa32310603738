"""Which tool wrote a file, by its content: never by its name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backend.errors import Refused
from backend.importers import bench_serve, server_log
from backend.importers.found import Found

READ = "read are vLLM `bench serve` results (JSON, one or several in a file) and vLLM server logs"
JSON_BEGINS = re.compile(r"\s*(\{|\[\s*[\[{\]])")  # a log may begin with [2026-...]


def read(path: Path, given_k: int | None = None) -> list[Found]:
    """The runs in a file. given_k: K, for files that do not tell it.

    Raises Refused for what is not read (saying what it looks like) and for a file that is broken or contradicts itself.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Refused(f"cannot be read: {error.strerror}", where=str(path)) from error
    text = content.decode("utf-8-sig", errors="replace")
    if not text.strip():
        raise Refused("is empty", where=str(path), fix=READ)
    if b"\0" in content:
        raise Refused("looks like binary data", where=str(path), fix=READ)
    if JSON_BEGINS.match(text):
        results = list(_results(text, path))
        places = [str(path)] if len(results) == 1 else [f"{path}, result {i + 1}" for i in range(len(results))]
        return [bench_serve.parse(result, place, given_k) for result, place in zip(results, places, strict=True)]
    if server_log.LOOKS_LIKE.search(text):
        return [server_log.parse(text, str(path), given_k)]
    begin = text.strip().splitlines()[0][:60]
    kind = "the event stream of a completion" if begin.startswith("data:") else f"text that begins {begin!r}"
    raise Refused(f"looks like {kind}", where=str(path), fix=READ)


def _results(text: str, path: Path) -> Iterator[dict[str, Any]]:
    """Every result in the text: one object, several after each other (--append-result) or a list (bench sweep)."""
    decoder, position, found = json.JSONDecoder(), 0, 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        try:
            value, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            what = f"looks like JSON that is cut off or broken at line {error.lineno}, column {error.colno}"
            raise Refused(what, where=str(path), fix="save the result again; nothing was imported") from error
        for result in value if isinstance(value, list) else [value]:
            if not isinstance(result, dict) or not bench_serve.KEYS.issubset(result):
                shown = ", ".join(sorted(result)[:6]) if isinstance(result, dict) else repr(result)[:40]
                raise Refused(f"looks like other JSON ({shown})", where=str(path), fix=READ)
            found += 1
            yield result
    if not found:
        raise Refused("looks like JSON without a result in it", where=str(path), fix=READ)
