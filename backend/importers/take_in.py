"""Other tools' files into a sweep of source "imported": all are read before anything is written, then published."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from backend import publish
from backend.analysis.checks import exclusions
from backend.errors import Refused
from backend.importers import files
from backend.importers.found import Found
from backend.records import Environment, Finding, Record, ReportedValue, Request, Run, Sweep
from backend.spec_nodes import NAME_PATTERN
from backend.store import journal
from backend.store.database import Store

DEPTH_IN_NAME = re.compile(r"[-_.]?k=?\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """What became of one run in a file. new: False where the same run was there already, as it is."""

    run: Run
    place: str
    requests: int
    new: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Imported:
    """The sweep that was added to, and its runs from these files, in their order."""

    sweep: str
    runs: tuple[ImportedRun, ...]


def import_files(store: Store, paths: Sequence[Path], *, name: str | None = None, k: int | None = None) -> Imported:
    """Import files into sweep `name` (None: named after the files) and publish. Idempotent.

    k: their K, for files that do not tell it. Raises Refused before anything is written: an unreadable or contradictory
    file, the name of a sweep that was not imported, other models. Raises StoreError where the store fails.
    """
    found = [one for path in paths for one in files.read(path, k)]
    sweep = sweep_name(paths) if name is None else name
    if not re.match(NAME_PATTERN, sweep):
        fix = "up to 64 of a-z, 0-9, '.', '-' and '_', a letter or digit first"
        raise Refused(f"{sweep!r} cannot be a sweep's name", where="--as", fix=fix)
    earlier = _earlier(store, sweep)
    head = _sweep_record(sweep, found, earlier)
    _same_run_otherwise(sweep, found, earlier)
    cells = dict.fromkeys(one.cell(sweep) for one in found)
    records: list[Record] = [head, *cells]
    fresh = [record for record in records if record not in earlier]
    if fresh:
        with store.sweep_journal(sweep) as opened:
            opened.append(*fresh)
    runs = tuple(_write(store, sweep, one) for one in found)
    store.ingest()
    publish.publish(store)
    return Imported(sweep, runs)


def sweep_name(paths: Sequence[Path]) -> str:
    """A name from the files' names: what they have in common, K left out; "imported" where that is nothing."""
    stems = [DEPTH_IN_NAME.sub("", path.stem) for path in paths]
    common = "".join(signs[0] for signs in takewhile(lambda signs: len(set(signs)) == 1, zip(*stems, strict=False)))
    return re.sub(r"[^a-z0-9._-]+", "-", common.lower())[:64].strip("-_.") or "imported"


def _earlier(store: Store, sweep: str) -> list[Record]:
    """The records of an imported sweep so far; empty for a new name. Raises Refused for a sweep of another source."""
    if any((root / sweep).is_dir() for name, root in store.roots.items() if name != "own"):
        raise Refused(f"'{sweep}' is a bundled sweep", fix="give the import a name of its own: --as NAME")
    paths = sorted((store.roots["own"] / sweep).glob("*.jsonl"))
    records = [record for path in paths for record in journal.read(path).records]
    source = next((record.source for record in records if isinstance(record, Sweep)), None)
    if source not in (None, "imported"):
        raise Refused(
            f"'{sweep}' is a {source} sweep, and sources are never pooled",
            fix="give the import a name of its own: --as NAME",
        )
    return records


def _sweep_record(sweep: str, found: Sequence[Found], earlier: Sequence[Record]) -> Sweep:
    """The sweep's record: the one there is, with what these files add. Raises Refused for other models."""
    stored = [record for record in earlier if isinstance(record, Sweep)]
    head = stored[-1] if stored else _new_sweep(sweep)
    for one in found:
        method, model = one.speculator
        for field, value in (("speculator_method", method), ("speculator_model", model)):
            known = getattr(head, field)
            if known is not None and value is not None and value != known:
                raise Refused(
                    f"was measured with {field.replace('_', ' ')} {value!r}, '{sweep}' with {known!r}",
                    where=one.place,
                    fix="a sweep has one speculator: import it under another name by --as NAME",
                )
        if one.models and head.target_model and head.target_model not in one.models:
            raise Refused(
                f"is of model {' or '.join(map(repr, one.models))}, '{sweep}' of {head.target_model!r}",
                where=one.place,
                fix="a sweep has one target: import it under another name by --as NAME",
            )
        head = replace(
            head,
            target_model=head.target_model or (one.models[0] if one.models else ""),
            speculator_method=head.speculator_method or method,
            speculator_model=head.speculator_model or model,
        )
    return head


def _new_sweep(sweep: str) -> Sweep:
    return Sweep(
        sweep=sweep,
        source="imported",
        created_unix_s=time.time(),
        description="Imported from other tools' result files.",
        target_model="",
        target_revision=None,
        speculator_method=None,
        speculator_model=None,
        speculator_revision=None,
        max_depth=None,
        seed=None,
        blocks=None,
        reference_depths={},
        spec_toml=None,
        code_version=publish.code_version(),
    )


def _same_run_otherwise(sweep: str, found: Sequence[Found], earlier: Sequence[Record]) -> None:
    """Raises Refused for a run that was imported at another K (by --k) or concurrency (a log that grew) before."""
    known = {record.run_id: record.cell_id for record in earlier if isinstance(record, Request | ReportedValue)}
    for one in found:
        again = next((run_id for run_id in known if run_id.endswith(f"-{one.identity}")), None)
        if again is not None and (again, known[again]) != (one.run_id(sweep), one.cell(sweep).cell_id):
            raise Refused(
                f"was imported as {again} in cell {known[again]} before, now it is K={one.k} in "
                f"{one.cell(sweep).cell_id}",
                where=one.place,
                fix="import it under another name by --as NAME",
            )


def _write(store: Store, sweep: str, one: Found) -> ImportedRun:
    """Journal one run, its Run record last; nothing where the journal ends with the same records already."""
    run, details = one.run(sweep), one.details(sweep)
    found = {(finding.code, finding.cell_id): finding for finding in publish.findings_of_run(run, details)}
    found |= {(record.code, record.cell_id): record for record in details if isinstance(record, Finding)}
    reason = exclusions(found.values()).get(run.run_id)
    if reason is not None:
        run = replace(run, valid=False, exclusion_reason=reason)
    records = [*(record for record in details if not isinstance(record, Finding)), *found.values(), run]
    path = store.roots["own"] / journal.directory_name(sweep) / journal.run_file(sweep, run.run_id)
    there = journal.read(path).records if path.exists() else []
    new = _told(there[-len(records) :]) != _told(records)
    if new:
        with store.run_journal(sweep, run.run_id) as opened:
            opened.append(*records)
    notes = (*one.notes, *(f"{finding.severity}: {finding.code}: {finding.message}" for finding in found.values()))
    return ImportedRun(run, one.place, len(one.requests), new, notes)


def _told(records: Sequence[Record]) -> list[Record]:
    """Without the facts, where the file's name is: a copy of a file tells the same."""
    return [record for record in records if not isinstance(record, Environment)]
