"""Raw /metrics samples as changes over a phase, engines summed; and acceptance from counters alone."""

from __future__ import annotations

import numpy as np
import pandas as pd

from backend.analysis.acceptance import DepthAcceptance, from_counts
from backend.analysis.selection import arms, complete_sums, numbers

GENERATED, REQUESTS = "vllm:generation_tokens", "vllm:request_success"
DRAFTS, DRAFTED = "vllm:spec_decode_num_drafts", "vllm:spec_decode_num_draft_tokens"
ACCEPTED, ACCEPTED_AT = "vllm:spec_decode_num_accepted_tokens", "vllm:spec_decode_num_accepted_tokens_per_pos"
PREFIX_QUERIES, PREFIX_HITS = "vllm:prefix_cache_queries", "vllm:prefix_cache_hits"
NAMES = frozenset({GENERATED, REQUESTS, DRAFTS, DRAFTED, ACCEPTED, ACCEPTED_AT, PREFIX_QUERIES, PREFIX_HITS})


def family(name: str) -> str:
    """The counter's name without the `_total` that samples keep and families drop."""
    return name.removesuffix("_total")


def counter_deltas(counters: pd.DataFrame) -> pd.DataFrame:
    """MEASURE-phase changes summed over engines: run_id, cell_id, name (no _total), position (-1: none), delta.

    A series that did not exist before counts from 0. A reset (after < before) makes the sum NaN, never a guess.
    """
    rows = counters[(counters["phase"] == "measure") & (counters["span"] == "phase")]
    names = rows["name"].map(family)
    rows, names = rows[names.isin(NAMES)], names[names.isin(NAMES)]
    before = numbers(rows, "before")
    delta = numbers(rows, "after") - np.where(np.isnan(before), 0.0, before)
    position = rows["labels"].fillna("").astype(str).str.extract(r'position="(\d+)"', expand=False)
    table = pd.DataFrame(
        {
            "run_id": rows["run_id"],
            "cell_id": rows["cell_id"],
            "name": names,
            "position": position.fillna("-1").astype(int),
            "delta": np.where(delta < 0, np.nan, delta),
        }
    )
    return complete_sums(table, ["run_id", "cell_id", "name", "position"], ["delta"])


def counted_acceptance(run_cell: pd.DataFrame, counters: pd.DataFrame) -> list[DepthAcceptance]:
    """Acceptance per cell and K from counters alone, over the runs that count; points, for prompts are not told.

    Used where an engine reports nothing per request. drafts count only steps that carried a draft.
    """
    rows = arms(run_cell)[["run_id", "cell_id", "k"]].drop_duplicates()
    deltas = counter_deltas(counters).merge(rows, on=["run_id", "cell_id"])
    out = []
    for (cell_id, _), table in deltas.groupby(["cell_id", "k"], sort=True):
        total = table.groupby(["name", "position"])["delta"].sum(min_count=1)
        if not np.isfinite(total).all():
            continue  # a reset: see the finding
        depth = int(table["k"].iloc[0])
        at = [float(total.get((ACCEPTED_AT, i), 0.0)) for i in range(depth)]
        served = float(total.get((REQUESTS, -1), 0.0))
        out.append(
            from_counts(
                depth,
                float(total.get((DRAFTS, -1), 0.0)),
                at,
                requests=int(served),
                cell_id=str(cell_id),
                drafted_tokens=float(total.get((DRAFTED, -1), 0.0)),
            )
        )
    return out
