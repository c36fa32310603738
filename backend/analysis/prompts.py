"""Counts per prompt: what acceptance and category analyses resample. One cluster = a prompt with all its repeats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.analysis.estimate import FloatArray
from backend.analysis.selection import arms, numbers

IntArray = npt.NDArray[np.int64]
USED = (
    "request_id",
    "run_id",
    "cell_id",
    "prompt_id",
    "category",
    "output_tokens",
    "decode_s",
    "steps",
    "drafted_steps",
    "drafted_tokens",
    "accepted_tokens",
)  # columns of `request` that are summed


@dataclass(frozen=True, slots=True)
class DepthCounts:
    """Sums per prompt at one depth, summed over its runs. Arrays (prompts,) or (prompts, K); tokens and steps.

    `accepted_at[:, i]`: steps whose draft at position i was accepted; `drafted_at[:, i]`: steps that drafted it.
    NaN throughout where the engine did not report per-step numbers.
    """

    k: int
    emitted: FloatArray  # tokens after the first
    steps: FloatArray
    drafted_steps: FloatArray
    drafted: FloatArray
    accepted: FloatArray
    accepted_at: FloatArray
    drafted_at: FloatArray
    requests: int


@dataclass(frozen=True, slots=True)
class CellCounts:
    """All depths of one cell over the same prompts, so that one resampling of prompts serves every depth (paired)."""

    cell_id: str
    prompts: tuple[str, ...]
    depths: dict[int, DepthCounts]


def measured_requests(requests: pd.DataFrame, run_cell: pd.DataFrame) -> pd.DataFrame:
    """MEASURE requests of valid, finished arms without an error, with their depth `k`."""
    rows = arms(run_cell)[["run_id", "cell_id", "k"]].drop_duplicates()
    keep = requests["phase"] == "measure"
    if "error" in requests:
        keep &= requests["error"].isna()
    good = requests.loc[keep, [c for c in USED if c in requests]]
    return good.merge(rows, on=["run_id", "cell_id"], how="inner")


def cell_counts(requests: pd.DataFrame, steps: pd.DataFrame | None, run_cell: pd.DataFrame) -> list[CellCounts]:
    """Per-prompt sums of every cell. `requests`, `steps`: the tables; `run_cell`: which runs count and their K."""
    good = measured_requests(requests, run_cell)
    out = []
    for cell_id, cell in good.groupby("cell_id", sort=True):
        codes, names = pd.factorize(cell["prompt_id"], sort=True)
        k = np.asarray(cell["k"].to_numpy(), dtype=np.int64)
        inside = _steps_inside(cell, codes, k, steps)
        depths = {int(d): _depth(int(d), cell[k == d], codes[k == d], len(names), inside) for d in np.unique(k)}
        out.append(CellCounts(str(cell_id), tuple(map(str, names)), depths))
    return out


def _steps_inside(cell: pd.DataFrame, codes: IntArray, k: IntArray, steps: pd.DataFrame | None) -> pd.DataFrame:
    """The cell's drafted steps with columns prompt (code), k, drafted, accepted."""
    if steps is None or steps.empty:
        return pd.DataFrame({"prompt": [], "k": [], "drafted": [], "accepted": []})
    place = pd.Index(cell["request_id"]).get_indexer(pd.Index(steps["request_id"]))
    found = place >= 0
    return pd.DataFrame(
        {
            "prompt": codes[place[found]],
            "k": k[place[found]],
            "drafted": np.asarray(steps["drafted_tokens"].to_numpy()[found], dtype=np.int64),
            "accepted": np.asarray(steps["accepted_tokens"].to_numpy()[found], dtype=np.int64),
        }
    )


def _depth(k: int, rows: pd.DataFrame, codes: IntArray, prompts: int, steps: pd.DataFrame) -> DepthCounts:
    def total(values: FloatArray) -> FloatArray:
        return np.bincount(codes, weights=values, minlength=prompts).astype(np.float64)

    inside = steps[steps["k"] == k]
    accepted_at, drafted_at = np.zeros((prompts, k)), np.zeros((prompts, k))
    if len(inside):
        who, drafted, accepted = (inside[name].to_numpy() for name in ("prompt", "drafted", "accepted"))
        for i in range(k):
            accepted_at[:, i] = np.bincount(who, weights=accepted > i, minlength=prompts)
            drafted_at[:, i] = np.bincount(who, weights=drafted > i, minlength=prompts)
    elif k > 0:
        accepted_at[:], drafted_at[:] = np.nan, np.nan
    output = numbers(rows, "output_tokens")
    nothing = output <= 1  # one token out: nothing was decoded

    def column(name: str, drafts: bool = True) -> FloatArray:
        values = numbers(rows, name)
        return np.where(np.isnan(values) & (nothing | (drafts and k == 0)), 0.0, values)

    return DepthCounts(
        k,
        total(np.maximum(output - 1, 0.0)),
        total(column("steps", drafts=False)),
        total(column("drafted_steps")),
        total(column("drafted_tokens")),
        total(column("accepted_tokens")),
        accepted_at,
        drafted_at,
        len(rows),
    )
