"""The headline table: a row per cell and K, every figure an Estimate; and the rows of the `estimate` table.

decode_tok_s and tokens_per_joule: geometric mean over runs, Student t on the log. cycle_ms and power_w: mean over
runs, Student t. Counts (tokens_per_step, acceptance) vary over prompts and hardly over runs, because greedy
repeats are copies: their intervals resample prompts, and without the prompts they have none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from backend.analysis.acceptance import DepthAcceptance, acceptance, no_rate, undrafted_length
from backend.analysis.cycle_model import CycleFit, fit_cycle
from backend.analysis.estimate import (
    LEVEL,
    Estimate,
    finite,
    missing,
    point,
    ratio_of_sums,
)
from backend.analysis.resample import DRAWS
from backend.analysis.selection import arms, by_cell, cycle_ms, numbers
from backend.analysis.stopping import run_log_mean, run_mean

NO_PROMPTS = "the counts are not told per prompt"


FIGURES = (
    "decode_tok_s",
    "tokens_per_step",
    "acceptance_length",
    "acceptance_rate",
    "cycle_ms",
    "power_w",
    "tokens_per_joule",
)


@dataclass(frozen=True, slots=True)
class KSummary:
    """One depth of one cell. `acceptance[i]`: survival at position i, so acceptance_length = 1 + their sum."""

    cell_id: str
    k: int
    n_runs: int
    decode_tok_s: Estimate
    tokens_per_step: Estimate
    acceptance_length: Estimate
    acceptance: tuple[Estimate, ...]
    acceptance_rate: Estimate  # accepted / drafted tokens
    cycle_ms: Estimate
    power_w: Estimate
    tokens_per_joule: Estimate
    flags: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """As in `summary --json`."""
        return {
            "cell_id": self.cell_id,
            "k": self.k,
            "n_runs": self.n_runs,
            **{name: estimate.to_dict() for name, estimate in self.figures().items()},
            "acceptance": [a.to_dict() for a in self.acceptance],
            "flags": list(self.flags),
        }

    def figures(self) -> dict[str, Estimate]:
        """The single figures by name."""
        return {name: getattr(self, name) for name in FIGURES}


def summarise(
    run_cell: pd.DataFrame,
    *,
    requests: pd.DataFrame | None = None,
    steps: pd.DataFrame | None = None,
    positions: pd.DataFrame | None = None,
    findings: pd.DataFrame | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    level: float = LEVEL,
) -> list[KSummary]:
    """All depths of all cells of a sweep, one row each, also those without a valid run (n_runs 0).

    requests, steps: the tables, where raw requests exist; positions: view acceptance_by_position, used where
    they do not (published and imported figures); findings: the table, for `flags`.
    """
    by_prompt = (
        {}
        if requests is None or requests.empty
        else {(a.cell_id, a.k): a for a in acceptance(requests, steps, run_cell, draws=draws, seed=seed, level=level)}
    )
    rows = []
    for cell_id, cell in by_cell(run_cell):
        good = arms(cell)
        depths = sorted({int(k) for k in cell.loc[cell["role"] == "arm", "k"].dropna()})
        for k in depths:
            at_k = cell[(cell["k"] == k) & (cell["role"] == "arm")]
            rows.append(
                _row(
                    cell_id,
                    k,
                    good[good["k"] == k],
                    by_prompt.get((cell_id, k)),
                    positions,
                    flags_of(at_k, cell_id, findings),
                    level,
                )
            )
    return rows


def _row(
    cell_id: str,
    k: int,
    runs: pd.DataFrame,
    prompts: DepthAcceptance | None,
    positions: pd.DataFrame | None,
    flags: tuple[str, ...],
    level: float,
) -> KSummary:
    scopes = set(runs["power_scope"].dropna()) if "power_scope" in runs else set()
    if len(scopes) > 1:
        power = joule = missing("W", f"sensors of different scope are not pooled: {', '.join(sorted(scopes))}")
        joule = missing("tok/J", power.reason or "")
    else:
        power = run_mean(runs, numbers(runs, "power_w"), "W", level=level)
        joule = run_log_mean(runs, numbers(runs, "tokens_per_joule"), "tok/J", level=level)
    per_step, length, rate, survival = _counts(k, runs, positions, cell_id)
    if prompts is not None:
        per_step, length, rate = (
            _told(prompts.tokens_per_step, per_step),
            _told(prompts.acceptance_length, length),
            _told(prompts.acceptance, rate),
        )
        if not survival or any(p.survival.value is not None for p in prompts.positions):
            survival = tuple(p.survival for p in prompts.positions)
        flags = tuple(dict.fromkeys((*flags, *prompts.flags)))
    if runs.empty:
        flags = (*flags, "no-valid-run")
    concurrency = numbers(runs, "concurrency")
    cycle = run_mean(runs, cycle_ms(runs), "ms", level=level)
    if cycle.value is None and len(runs) and (concurrency > 1).all():
        cycle = missing("ms", "above concurrency 1 there is no cycle time", n=len(runs))
    return KSummary(
        cell_id,
        k,
        len(runs),
        run_log_mean(runs, numbers(runs, "decode_tok_s"), "tok/s", level=level),
        per_step,
        length,
        survival,
        rate,
        cycle,
        power,
        joule,
        flags,
    )


def _told(by_prompt: Estimate, of_runs: Estimate) -> Estimate:
    """The figure over prompts; where requests do not tell it, the one from the runs' totals, if there is one."""
    return of_runs if by_prompt.value is None and of_runs.value is not None else by_prompt


def _counts(
    k: int,
    runs: pd.DataFrame,
    positions: pd.DataFrame | None,
    cell_id: str,
) -> tuple[Estimate, Estimate, Estimate, tuple[Estimate, ...]]:
    """tokens_per_step, acceptance_length, acceptance_rate, survival from run totals or reported figures: points."""
    why = "one run" if len(runs) == 1 and not np.isfinite(numbers(runs, "steps")).any() else NO_PROMPTS

    def pooled(top: str, bottom: str, reported: str, unit: str) -> Estimate:
        ratio = ratio_of_sums(numbers(runs, top), numbers(runs, bottom), unit, reason=why)
        if ratio.value is not None:
            return ratio
        values = finite(numbers(runs, reported))
        if not len(values):
            return missing(unit, "not measured", method="mean over runs", n=len(runs))
        return point(float(values.mean()), unit, why, method="mean over runs", n=len(values))

    per_step = pooled("tokens_after_first", "steps", "tokens_per_step", "tokens")
    if k == 0:
        return per_step, undrafted_length(len(runs)), no_rate(), ()
    survival: tuple[Estimate, ...] = ()
    if positions is not None and not positions.empty:
        mine = positions[(positions["cell_id"] == cell_id) & (positions["k"] == k)]
        known = dict(zip(mine["position"].astype(int), numbers(mine, "survival"), strict=True))
        survival = tuple(
            point(known[i], "1", why, method="drafts accepted at the position / drafted steps", n=len(runs))
            if np.isfinite(known.get(i, np.nan))
            else missing("1", "not measured")
            for i in range(max(known, default=-1) + 1)
        )
    values = finite(numbers(runs, "acceptance_length"))
    length = (
        point(float(values.mean()), "tokens", why, method="mean over runs", n=len(values))
        if len(values)
        else missing("tokens", "not measured", method="mean over runs", n=len(runs))
    )
    return per_step, length, pooled("accepted_tokens", "drafted_tokens", "acceptance", "1"), survival


def flags_of(at_k: pd.DataFrame, cell_id: str, findings: pd.DataFrame | None) -> tuple[str, ...]:
    """Codes of warnings and errors about this depth's runs, this cell, or the whole sweep."""
    if findings is None or findings.empty:
        return ()
    mine = findings["severity"].isin(["warning", "error"])
    mine &= findings["cell_id"].fillna("").isin(["", cell_id])
    mine &= findings["run_id"].fillna("").isin(["", *at_k.get("run_id", [])])
    return tuple(sorted(set(findings.loc[mine, "code"])))


def headline_estimates(
    run_cell: pd.DataFrame,
    *,
    sweep: str,
    code_version: str,
    requests: pd.DataFrame | None = None,
    steps: pd.DataFrame | None = None,
    positions: pd.DataFrame | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    level: float = LEVEL,
) -> list[dict[str, object]]:
    """Rows for the table `estimate`: the summary's figures per K and every window's fit, with method, n, version.

    window_k is the list of depths of a fit (K=0 is always in it besides) and None for a figure that is not a fit.
    """
    out: list[dict[str, object]] = []

    def add(
        cell_id: str,
        quantity: str,
        estimate: Estimate,
        k: int | None = None,
        window: list[int] | None = None,
    ) -> None:
        out.append(
            {
                "sweep": sweep,
                "cell_id": cell_id,
                "quantity": quantity,
                "k": k,
                "window_k": window,
                **estimate.to_dict(),
                "code_version": code_version,
            }
        )

    for row in summarise(
        run_cell, requests=requests, steps=steps, positions=positions, draws=draws, seed=seed, level=level
    ):
        for name, estimate in row.figures().items():
            add(row.cell_id, name, estimate, row.k)
        for position, estimate in enumerate(row.acceptance):
            add(row.cell_id, f"survival_{position}", estimate, row.k)
    for cell_id, cell in by_cell(run_cell):
        for name, estimate, window in fit_rows(fit_cycle(cell, level=level, study=True)):
            add(cell_id, name, estimate, None, window)
    return out


def fit_rows(fit: CycleFit) -> list[tuple[str, Estimate, list[int]]]:
    """(quantity, estimate, window) of every window of a fit."""
    rows: list[tuple[str, Estimate, list[int]]] = []
    for window in fit.windows:
        depths = list(window.k)
        rows += [
            ("t_verify_base_ms", fit.t_verify_base_ms, depths),
            ("t_draft_ms", window.t_draft_ms, depths),
            ("t_marginal_ms", window.t_marginal_ms, depths),
            ("residual_ms", window.residual_ms, depths),
            ("t_draft_pooled_ms", window.pooled_t_draft_ms, depths),
            ("t_marginal_pooled_ms", window.pooled_t_marginal_ms, depths),
        ]
        if window.study_t_draft_ms is not None:
            rows.append(("t_draft_study_ms", window.study_t_draft_ms, depths))
    return rows
