"""The published study (GLM-5.2 with DSpark on two GB10) as sweep `published-glm52-gb10`, from its printed figures.

A cell of the CSV that is empty was not published and has no row. `python -m backend.importers.published` writes the
bundled journal that every data directory's database takes in; a test holds it equal to what this module reads.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from backend.errors import StoreError
from backend.records import Cell, Record, ReportedValue, Run, Sweep
from backend.store.journal import SWEEP_FILE, Journal

PUBLISHED = Path(__file__).parents[2] / "data" / "published"
FIGURES = PUBLISHED / "glm52-gb10.csv"
JOURNALS = PUBLISHED / "journal"

SWEEP = "published-glm52-gb10"
CELL = f"{SWEEP}:1xtext:unstated"
NOTE = "published figure, July 2026"
# CSV column -> (quantity, unit). Tokens per verify are emitted tokens, so they are no acceptance length.
COLUMNS = {
    "decode_tok_s": ("decode_tok_s", "tok/s"),
    "tokens_per_verify": ("tokens_per_step", "tokens"),
    "power_w": ("power_w", "W"),
    "tokens_per_joule": ("tokens_per_joule", "tok/J"),
    "acceptance_pos0": ("survival_0", "1"),
    "acceptance_pos1": ("survival_1", "1"),
    "acceptance_pos2": ("survival_2", "1"),
}


def read(path: Path = FIGURES) -> list[Record]:
    """All records of the sweep: Sweep, Cell, a Run a depth (block and order were not published), ReportedValues.

    Raises StoreError for a file that is not the study's table: another column, a figure or a depth that is no number.
    """
    records: list[Record] = [_sweep(), _cell()]
    try:
        with path.open(newline="", encoding="utf-8") as file:
            table = csv.DictReader(file)
            if table.fieldnames is None or set(table.fieldnames) != {"k", *COLUMNS}:
                raise StoreError(
                    f"columns are {table.fieldnames}", where=str(path), fix=f"expected k, {', '.join(COLUMNS)}"
                )
            for row in table:
                records += _depth(row)
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except ValueError as error:
        raise StoreError(f"line {table.line_num}: {error}", where=str(path)) from error
    return records


def write_journal(directory: Path = JOURNALS) -> Path:
    """Write the bundled journal anew (one file: nothing here is ever appended). Returns its path."""
    path = directory / SWEEP / SWEEP_FILE
    path.unlink(missing_ok=True)
    with Journal(path) as journal:
        journal.append(*read())
    return path


def _depth(row: dict[str, str]) -> list[Record]:
    """A depth's run and its published figures. Raises ValueError for a cell that is no number."""
    k = int(row["k"])
    run_id = f"{SWEEP}:k{k}"
    figures = {quantity: (float(row[column]), unit) for column, (quantity, unit) in COLUMNS.items() if row[column]}
    values = [ReportedValue(run_id, CELL, quantity, value, unit, NOTE) for quantity, (value, unit) in figures.items()]
    positions = [f"survival_{position}" for position in range(k)]
    if positions and all(position in figures for position in positions):  # K=3 only: all its positions are printed
        length = round(1 + sum(figures[position][0] for position in positions), 6)
        note = "1 + sum of the published acceptance by position"
        values.append(ReportedValue(run_id, CELL, "acceptance_length", length, "tokens", note))
    return [_run(run_id, k), *values]


def _sweep() -> Sweep:
    return Sweep(
        sweep=SWEEP,
        source="published",
        created_unix_s=None,
        description="Published figures: GLM-5.2 with the DSpark speculator on 2 x DGX Spark (GB10), TP2, July 2026.",
        target_model="GLM-5.2",
        target_revision=None,
        speculator_method="dspark",
        speculator_model="DSpark",
        speculator_revision=None,
        max_depth=7,
        seed=None,
        blocks=None,
        reference_depths={"production": 2, "recipe": 3, "native": 7},
        spec_toml=None,
        code_version="published figures",
    )


def _cell() -> Cell:
    return Cell(
        cell_id=CELL,
        sweep=SWEEP,
        concurrency=1,
        context_tokens=None,
        workload="unstated",
        endpoint=None,
        max_tokens=None,
        temperature=None,
        ignore_eos=None,
    )


def _run(run_id: str, k: int) -> Run:
    return Run(
        run_id=run_id,
        sweep=SWEEP,
        k=k,
        block=None,
        order_index=None,
        attempt=1,
        role="arm",
        status="done",
        reason=None,
        valid=True,
        exclusion_reason=None,
        started_unix_s=None,
        ended_unix_s=None,
        server_start_s=None,
        server_stop_s=None,
        reported_k=None,
        command=None,
        env=None,
        log_path=None,
    )


if __name__ == "__main__":
    sys.stdout.write(f"{write_journal()}\n")
