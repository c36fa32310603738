"""The same comparison within each prompt category: throughput per run from that category's requests alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from backend.analysis.compare import MARGIN_PERCENT, compare_cell
from backend.analysis.comparison import Comparison
from backend.analysis.estimate import LEVEL
from backend.analysis.prompts import measured_requests
from backend.analysis.resample import DRAWS
from backend.analysis.selection import arms, by_cell, complete_sums, numbers


def category_run_cell(requests: pd.DataFrame, run_cell: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Category -> rows like `run_cell` (valid arms at concurrency 1), throughput and cycle from its requests.

    decode_tok_s = sum of tokens after the first / sum of windows; cycle_ms = 1000 x sum of windows / decode steps;
    both ratios of sums per run and cell. Above concurrency 1 windows overlap, so those cells are left out.
    """
    single = run_cell[~(numbers(run_cell, "concurrency") > 1)]
    good = measured_requests(requests, single)
    good = good[good["category"].notna()]
    if good.empty:
        return {}
    good = good.assign(tokens_after_first=np.maximum(numbers(good, "output_tokens") - 1, 0.0))
    sums = complete_sums(good, ["category", "run_id", "cell_id"], ["tokens_after_first", "decode_s", "steps"])
    return category_rows(sums.rename(columns={"n": "n_requests"}), run_cell)


def category_rows(sums: pd.DataFrame, run_cell: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The same from sums that are there already: a row per category, run_id and cell_id with tokens_after_first,
    decode_s, steps and n_requests, missing where one of the requests lacks the figure. Counts valid arms only."""
    single = arms(run_cell[~(numbers(run_cell, "concurrency") > 1)])
    sums = sums.astype(dict.fromkeys(("tokens_after_first", "decode_s", "steps"), float))
    sums["decode_tok_s"] = sums["tokens_after_first"] / sums["decode_s"]
    sums["tokens_per_step"] = sums["tokens_after_first"] / sums["steps"]
    sums["cycle_ms"] = 1000 * sums["decode_s"] / sums["steps"]
    kept = [c for c in single.columns if c not in sums.columns or c in ("run_id", "cell_id")]
    rows = sums.merge(single[kept], on=["run_id", "cell_id"], how="inner")
    return {str(category): frame.reset_index(drop=True) for category, frame in rows.groupby("category", sort=True)}


def compare_categories(
    requests: pd.DataFrame,
    run_cell: pd.DataFrame,
    reference_depths: Mapping[str, int] | None = None,
    *,
    level: float = LEVEL,
    margin_percent: float = MARGIN_PERCENT,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, list[Comparison]]:
    """Category -> a comparison per cell."""
    return {
        category: [
            compare_cell(cell, reference_depths, level=level, margin_percent=margin_percent, draws=draws, seed=seed)
            for _, cell in by_cell(rows)
        ]
        for category, rows in category_run_cell(requests, run_cell).items()
    }


def compare_category_rows(
    rows: Mapping[str, pd.DataFrame], reference_depths: Mapping[str, int] | None = None
) -> dict[str, Comparison]:
    """Category -> the comparison of one cell, from `category_rows` of that cell."""
    return {category: compare_cell(cell, reference_depths) for category, cell in rows.items()}
