"""Which rows of `run_cell` an analysis may use: valid, finished arms, one cell at a time; anchors never."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from backend.analysis.estimate import FloatArray


def arms(run_cell: pd.DataFrame) -> pd.DataFrame:
    """Rows that count in fits and n_runs: role 'arm', status 'done', valid. Sorted by K and order."""
    keep = (run_cell["role"] == "arm") & (run_cell["status"] == "done") & run_cell["valid"].fillna(False).astype(bool)
    order = ["k", *(name for name in ("block", "order_index") if name in run_cell)]
    return run_cell[keep].sort_values(order, kind="stable").reset_index(drop=True)


def by_cell(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """(cell_id, its rows), concurrency 1 and short context first where the columns are there."""
    order = [name for name in ("concurrency", "context_tokens", "workload", "cell_id") if name in frame]
    cells = frame[order].drop_duplicates("cell_id").sort_values(order, na_position="first", kind="stable")
    for cell_id in cells["cell_id"]:
        yield str(cell_id), frame[frame["cell_id"] == cell_id]


def numbers(frame: pd.DataFrame, column: str) -> FloatArray:
    """A column as floats, missing as NaN; all NaN where the column is absent."""
    if column not in frame:
        return np.full(len(frame), np.nan)
    return np.asarray(pd.to_numeric(frame[column], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan))


def cycle_ms(frame: pd.DataFrame) -> FloatArray:
    """Cycle time in ms: the column, else tokens_per_step / decode_tok_s x 1000 at concurrency 1 (published figures).

    Above concurrency 1 the throughput is an aggregate over slots, so there is no cycle time (NaN).
    """
    measured = numbers(frame, "cycle_ms")
    concurrency = numbers(frame, "concurrency")
    single = ~(concurrency > 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        derived = 1000 * numbers(frame, "tokens_per_step") / numbers(frame, "decode_tok_s")
    filled = np.where(np.isfinite(measured), measured, derived)
    return np.where(single & np.isfinite(filled), filled, np.nan)


def block_codes(frame: pd.DataFrame) -> FloatArray | None:
    """Block of every row as a number; None where any row has none."""
    blocks = numbers(frame, "block")
    return blocks if len(blocks) and bool(np.isfinite(blocks).all()) else None


def complete_sums(frame: pd.DataFrame, keys: list[str], columns: list[str]) -> pd.DataFrame:
    """Sums of columns by keys, NaN as soon as one row lacks the figure; `n`: rows. Keys become columns again."""
    table = pd.DataFrame({key: frame[key] for key in keys} | {column: numbers(frame, column) for column in columns})
    groups = table.groupby(keys, sort=True)
    sizes = groups.size()
    sums = groups.sum(min_count=1).where(groups.count().eq(sizes, axis=0))
    return sums.assign(n=sizes).reset_index()
