"""Acceptance from grouped steps: rates by draft position, and how many drafts a step accepts; intervals over prompts.

The same definitions and figures as `acceptance.py`, from `queries_acceptance.accepted_lengths` instead of a row a step,
so that a page stays quick on a huge sweep. Steps that carried no draft are in neither.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from backend.analysis.acceptance import PositionRates
from backend.analysis.estimate import LEVEL, Estimate, FloatArray, missing, point
from backend.analysis.resample import DRAWS, cluster_ratio

REPORTED = "a reported figure carries no interval"


@dataclass(frozen=True, slots=True)
class AcceptedLengths:
    """One depth of one cell. lengths[j]: share of drafted steps that accepted exactly j drafts, j = 0..K; () where only
    rates were reported. drafted_steps: None where not known."""

    cell_id: str
    k: int
    positions: tuple[PositionRates, ...]
    lengths: tuple[Estimate, ...]
    acceptance_length: Estimate
    drafted_steps: int | None


def accepted_lengths(
    lengths: pd.DataFrame, *, draws: int = DRAWS, seed: int = 0, level: float = LEVEL
) -> list[AcceptedLengths]:
    """Every cell and depth with drafted steps; a row of `lengths`: cell_id, k, prompt_id, drafted_tokens,
    accepted_tokens, steps. n counts prompts."""
    found = []
    for cell_id, cell in lengths[lengths["drafted_tokens"] > 0].groupby("cell_id", sort=True):
        codes, names = pd.factorize(cell["prompt_id"], sort=True)
        for k, rows in cell.assign(prompt=codes).groupby("k", sort=True):
            found.append(_depth(str(cell_id), int(str(k)), rows, len(names), draws, seed, level))
    return found


def _depth(
    cell_id: str, k: int, rows: pd.DataFrame, prompts: int, draws: int, seed: int, level: float
) -> AcceptedLengths:
    who, drafted, accepted = (rows[c].to_numpy(dtype=np.int64) for c in ("prompt", "drafted_tokens", "accepted_tokens"))
    steps = rows["steps"].to_numpy(dtype=np.float64)

    def by_prompt(weights: FloatArray) -> FloatArray:
        return np.bincount(who, weights=weights, minlength=prompts).astype(np.float64)

    def ratio(top: FloatArray, bottom: FloatArray, *, unit: str = "1", offset: float = 0.0) -> list[Estimate]:
        return cluster_ratio(
            top, bottom, unit, draws=draws, seed=seed, level=level, rate=unit == "1", offset=offset
        )  # a rate of 0 or 1 has a one-sided bound

    accepted_at = np.column_stack([by_prompt(steps * (accepted > i)) for i in range(k)])
    drafted_at = np.column_stack([by_prompt(steps * (drafted > i)) for i in range(k)])
    exactly = np.column_stack([by_prompt(steps * (accepted == j)) for j in range(k + 1)])
    every = by_prompt(steps)[:, None]
    rates = zip(
        ratio(accepted_at, np.repeat(every, k, axis=1)),
        ratio(accepted_at, np.column_stack([every, accepted_at[:, :-1]])),
        ratio(accepted_at, drafted_at),
        strict=True,
    )
    return AcceptedLengths(
        cell_id,
        k,
        tuple(PositionRates(i, *three) for i, three in enumerate(rates)),
        tuple(ratio(exactly, np.repeat(every, k + 1, axis=1))),
        ratio(accepted_at.sum(axis=1)[:, None], every, unit="tokens", offset=1.0)[0],
        int(steps.sum()),
    )


def reported_lengths(positions: pd.DataFrame) -> list[AcceptedLengths]:
    """The same from view `acceptance_by_position`, for figures that were reported: values without intervals."""
    found = []
    for (cell_id, k), rows in positions.sort_values("position").groupby(["cell_id", "k"], sort=True):
        rates = tuple(
            PositionRates(
                int(row["position"]), *(_reported(row[name]) for name in ("survival", "conditional", "per_drafted"))
            )
            for _, row in rows.iterrows()
        )
        whole = [rate.position for rate in rates] == list(range(int(str(k)))) and rows["survival"].notna().all()
        length = (
            point(1 + float(rows["survival"].sum()), "tokens", REPORTED, method="1 + sum of survival", n=None)
            if whole
            else missing("tokens", "not every position was reported")
        )
        found.append(AcceptedLengths(str(cell_id), int(str(k)), rates, (), length, None))
    return found


def _reported(value: float) -> Estimate:
    if pd.isna(value):
        return missing("1", "not reported")
    return point(float(value), "1", REPORTED, method="as reported", n=None)
