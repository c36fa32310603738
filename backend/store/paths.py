"""Where things lie: inside a data directory, and bundled with the code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from backend.errors import StoreError

REPOSITORY = Path(__file__).parents[2]
JOURNALS, LIVE, SNAPSHOT = "journal", "live.duckdb", "results.duckdb"
BUNDLED: Mapping[str, Path] = {  # journals that every data directory's database holds too
    "demo": REPOSITORY / "data" / "demo" / JOURNALS,
    "published": REPOSITORY / "data" / "published" / JOURNALS,
}
BUNDLED_SNAPSHOT = REPOSITORY / "data" / "demo" / SNAPSHOT
DEFAULT_DATA = REPOSITORY / "data" / "local"
NO_RESULTS = "run a sweep, or: python -m backend rebuild"  # what to do where there is no snapshot


def data_directory(data_dir: Path | None = None, *, environment: Mapping[str, str] = os.environ) -> Path:
    """The data directory: the one given, else what SOUNDING_DATA names, else data/local."""
    return data_dir if data_dir is not None else Path(environment.get("SOUNDING_DATA") or DEFAULT_DATA)


def resolve(data_dir: Path | None = None, *, environment: Mapping[str, str] = os.environ) -> Path:
    """The snapshot to read: the data directory's, else the bundled one.

    Without `data_dir` the file that SOUNDING_DB names goes first; if it is missing, `connect` says so.
    """
    if data_dir is None and environment.get("SOUNDING_DB"):
        return Path(environment["SOUNDING_DB"])
    own = data_directory(data_dir, environment=environment) / SNAPSHOT
    return own if own.exists() else BUNDLED_SNAPSHOT


def snapshot_key(path: Path) -> tuple[int, int]:
    """(inode, modification time in ns): changes whenever a new snapshot is published. Raises StoreError."""
    try:
        stat = path.stat()
    except OSError as error:
        raise StoreError("no results here", where=str(path), fix=NO_RESULTS) from error
    return stat.st_ino, stat.st_mtime_ns
