"""The headline table from the estimates that were stored when the snapshot was published.

The figures are those of `summary.summarise`, which resamples prompts over every step: seconds for a large sweep, and
the same every time. Only what depends on the rows at hand is made here: the number of runs, and the flags.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd

from backend.analysis.estimate import Estimate
from backend.analysis.selection import arms, by_cell
from backend.analysis.summary import FIGURES, KSummary, flags_of

SURVIVAL = "survival_"


def stored_summary(
    estimates: pd.DataFrame, run_cell: pd.DataFrame, findings: pd.DataFrame | None = None
) -> list[KSummary] | None:
    """A row per cell and K, as `summarise` orders them; None where a figure was not stored (older estimates).

    estimates: table `estimate` of one sweep; run_cell: its rows of the view; findings: the table, for `flags`.
    """
    known: dict[tuple[str, int], dict[str, Estimate]] = {}
    for row in estimates[estimates["k"].notna()].to_dict("records"):
        known.setdefault((str(row["cell_id"]), int(row["k"])), {})[str(row["quantity"])] = stored_estimate(row)
    summary = []
    for cell_id, cell in by_cell(run_cell):
        counts = arms(cell)["k"].value_counts()
        for k in sorted({int(k) for k in cell.loc[cell["role"] == "arm", "k"].dropna()}):
            figures = known.get((cell_id, k), {})
            if not set(FIGURES) <= set(figures):
                return None
            runs = int(counts.get(k, 0))
            at_k = cell[(cell["k"] == k) & (cell["role"] == "arm")]
            survival = sorted((name for name in figures if name.startswith(SURVIVAL)), key=lambda n: int(n[9:]))
            flags = flags_of(at_k, cell_id, findings)
            summary.append(
                KSummary(
                    cell_id=cell_id,
                    k=k,
                    n_runs=runs,
                    acceptance=tuple(figures[name] for name in survival),
                    flags=flags if runs else (*flags, "no-valid-run"),
                    **{name: figures[name] for name in FIGURES},
                )
            )
    return summary


def stored_estimate(row: Mapping[Hashable, Any]) -> Estimate:
    """A row of table `estimate` as an Estimate. NULL, NaN here, is None."""
    fields = ("value", "low", "high", "level", "method", "n", "unit", "reason")
    known: dict[str, Any] = {name: None if pd.isna(row[name]) else row[name] for name in fields}
    return Estimate(**known)
