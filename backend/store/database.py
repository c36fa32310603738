"""The writer's side of the store: journals in, private live.duckdb, published snapshot results.duckdb out.

Readers never see live.duckdb: they open the snapshot, which is replaced by a rename, so neither waits for the other.
Everything but the estimates can be rebuilt from the journals.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

import duckdb
import pyarrow as pa

from backend import __version__
from backend.errors import StoreError
from backend.records import Finding
from backend.store import connection, ingest, journal
from backend.store.ingest import Ingested
from backend.store.journal import Journal, Torn
from backend.store.lock import WriterLock
from backend.store.paths import BUNDLED, JOURNALS, LIVE, SNAPSHOT
from backend.store.schema import arrow_table
from backend.store.settled import settle_views

TEMPORARY = f"{SNAPSHOT}.tmp-"


@dataclass(frozen=True, slots=True)
class EstimateRow:
    """A row of table `estimate`; `EstimateRow(cell_id=..., quantity=..., k=..., window_k=..., **estimate.to_dict())`.

    quantity: unit in the name. k: None for a fit. window_k: the depths in a fit, else None.
    """

    cell_id: str | None
    quantity: str
    k: int | None
    window_k: tuple[int, ...] | None
    value: float | None
    low: float | None
    high: float | None
    level: float | None
    method: str
    n: int | None
    unit: str
    reason: str | None


ESTIMATE_SCHEMA = pa.schema(
    [
        ("sweep", pa.string()),
        ("ordinal", pa.int64()),
        ("cell_id", pa.string()),
        ("quantity", pa.string()),
        ("k", pa.int64()),
        ("window_k", pa.list_(pa.int32())),
        ("value", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("level", pa.float64()),
        ("method", pa.string()),
        ("n", pa.int64()),
        ("unit", pa.string()),
        ("reason", pa.string()),
        ("code_version", pa.string()),
    ]
)


class Store:
    """A data directory held for writing, from construction to `close` (or the end of the `with` block).

    On opening, torn last lines are cut off the journals (`torn`), leftover temp files removed (`leftovers`) and
    migrations applied. `fresh` drops live.duckdb first. Methods may be called from several threads, one at a time.

    Raises Refused for a second writer, StoreError for a directory or database that cannot be used.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        bundled: Mapping[str, Path] = BUNDLED,
        code_version: str = __version__,
        fresh: bool = False,
    ) -> None:
        self.data_dir, self.code_version = data_dir, code_version
        self.roots: dict[str, Path] = {"own": data_dir / JOURNALS, **bundled}
        self.live, self.snapshot = data_dir / LIVE, data_dir / SNAPSHOT
        self._guard = threading.RLock()
        with _file_faults(data_dir):
            data_dir.mkdir(parents=True, exist_ok=True)
        self._lock = WriterLock(data_dir)
        self._con = connection.memory()
        try:
            self.leftovers = self._sweep_leftovers()
            self.torn = self._recover_journals()
            if fresh:
                self._discard_live()
            connection.attach(self._con, self.live, read_only=False)
            connection.migrate(self._con, self.live)
        except BaseException:  # whatever happened, the lock must not outlive a store that nobody holds
            self.close()
            raise

    # -- journals ---------------------------------------------------------------------------------------------------
    def sweep_journal(self, sweep: str) -> Journal:
        """The journal of a sweep's Sweep and Cell records, and of findings about the whole sweep."""
        return Journal(self.roots["own"] / journal.directory_name(sweep) / journal.SWEEP_FILE)

    def run_journal(self, sweep: str, run_id: str) -> Journal:
        """The journal of one run."""
        directory = self.roots["own"] / journal.directory_name(sweep)
        return Journal(directory / journal.run_file(sweep, run_id))

    def _recover_journals(self) -> list[Torn]:
        found = (journal.recover(path) for path in sorted(self.roots["own"].glob("*/*.jsonl")))
        return [torn for torn in found if torn is not None]

    def _sweep_leftovers(self) -> list[Path]:
        """Remove temp files (and their .wal) that a killed publish left. Returns what was removed."""
        leftovers = sorted(self.data_dir.glob(f"{TEMPORARY}*"))
        with _file_faults(self.data_dir):
            for path in leftovers:
                path.unlink()
        return leftovers

    # -- live database ----------------------------------------------------------------------------------------------
    def ingest(self) -> Ingested:
        """Take in every journal, own and bundled, that is new or has changed. Idempotent.

        A sweep that changed loses its estimates (`stale_sweeps`). Raises StoreError for a corrupt journal (nothing of
        its sweep is taken in, everything else is) and for a full disk.
        """
        with self._guard, _database_faults(self.live):
            return ingest.take_in(self._con, self.roots)

    def replace_estimates(self, sweep: str, rows: Sequence[EstimateRow]) -> None:
        """Put these estimates in place of all that the sweep had, in one transaction. Raises StoreError."""
        columns = [
            {"sweep": sweep, "ordinal": ordinal, "code_version": self.code_version, **asdict(row)}
            for ordinal, row in enumerate(rows)
        ]
        with self._guard, _database_faults(self.live):
            table = pa.Table.from_pylist(columns, schema=ESTIMATE_SCHEMA)
            with connection.transaction(self._con):
                self._con.execute("DELETE FROM estimate WHERE sweep = ?", [sweep])
                ingest.insert(self._con, "estimate", table)

    def replace_findings(self, sweep: str, found: Sequence[Finding], *, comparing: Collection[str]) -> None:
        """Put these findings in place of those about the whole sweep and those that compare its runs.

        Such findings change with every further run, so they are made anew, as estimates are. What the journal says of
        a single run stays, unless `found` has the same key. `comparing`: codes of run findings that compare runs.
        Raises StoreError.
        """
        with self._guard, _database_faults(self.live):
            table = arrow_table(Finding, found)
            with connection.transaction(self._con):
                made_anew = "DELETE FROM finding WHERE sweep = ? AND (run_id = '' OR list_contains(?, code))"
                self._con.execute(made_anew, [sweep, list(comparing)])
                ingest.insert(self._con, "finding", table)

    def stale_sweeps(self) -> list[str]:
        """Sweeps whose estimates are to be computed: none there (new or changed data), or by another code version."""
        with self._guard, _database_faults(self.live):
            rows = self._con.execute(
                "SELECT sweep FROM sweep WHERE sweep NOT IN (SELECT sweep FROM estimate WHERE code_version = ?)"
                " ORDER BY sweep",
                [self.code_version],
            ).fetchall()
        return [sweep for (sweep,) in rows]

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """The live database for `queries`; other threads wait until the block ends."""
        with self._guard:
            yield self._con

    def _discard_live(self) -> None:
        with _file_faults(self.live):
            for path in (self.live, self.live.with_name(f"{LIVE}.wal")):
                path.unlink(missing_ok=True)

    # -- snapshot ---------------------------------------------------------------------------------------------------
    def publish(self) -> Path:
        """Replace the snapshot by the live database's present state; readers see the old or the new one, whole.

        The live file is closed for the copy, so its log is inside it. Raises StoreError (full disk, ...), and then the
        old snapshot stays.
        """
        temporary = self.snapshot.with_name(f"{TEMPORARY}{os.getpid()}")
        with self._guard, _database_faults(self.live):
            row = [uuid.uuid4().hex, time.time(), connection.schema_version(), self.code_version]
            with connection.transaction(self._con):
                self._con.execute("DELETE FROM snapshot")
                self._con.execute("INSERT INTO snapshot VALUES (?, ?, ?, ?)", row)
            connection.detach(self._con)
            try:
                with _file_faults(self.snapshot):
                    self._copy(temporary)
                    temporary.replace(self.snapshot)
                    journal.sync_directory(self.data_dir)
            finally:
                for leftover in (temporary, temporary.with_name(f"{temporary.name}.wal")):
                    leftover.unlink(missing_ok=True)
                connection.attach(self._con, self.live, read_only=False)
        return self.snapshot

    def _copy(self, temporary: Path) -> None:
        if self.live.with_name(f"{LIVE}.wal").exists():
            raise StoreError("still has a write-ahead log after closing, so it cannot be copied", where=str(self.live))
        shutil.copyfile(self.live, temporary)
        settle_views(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())

    def close(self) -> None:
        """Close the live database and let the next writer in."""
        self._con.close()
        self._lock.release()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def rebuild(data_dir: Path, *, bundled: Mapping[str, Path] = BUNDLED, code_version: str = __version__) -> Ingested:
    """Make live database and snapshot anew from all journals, own and bundled. Estimates have to be computed again.

    Raises Refused for a second writer, StoreError for a corrupt journal; the old snapshot then stays.
    """
    with Store(data_dir, bundled=bundled, code_version=code_version, fresh=True) as store:
        taken = store.ingest()
        store.publish()
    return taken


@contextmanager
def _file_faults(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{error.strerror or error}", where=str(error.filename or path)) from error


@contextmanager
def _database_faults(path: Path) -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, pa.ArrowException) as error:
        raise StoreError(
            str(error).splitlines()[0],
            where=str(path),
            fix="make room on the disk; if that is not it: python -m backend rebuild",
        ) from error
