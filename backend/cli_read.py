"""Commands that answer from a snapshot: each gives its JSON object and a way to print it as tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from backend.analysis.cycle_model import CycleFit, fit_cycle, fit_json
from backend.analysis.selection import by_cell
from backend.analysis.summary import KSummary, summarise
from backend.store import queries
from backend.terminal import figure, show

Answer = tuple[Any, Callable[[], None]]


@dataclass(frozen=True, slots=True)
class _Frames:
    """What one sweep's answers are computed from."""

    source: str
    run_cells: pd.DataFrame
    requests: pd.DataFrame
    steps: pd.DataFrame
    positions: pd.DataFrame
    findings: pd.DataFrame


def _frames(sweep: str, db: Path | None) -> _Frames:
    con = queries.connect(db or queries.resolve())
    try:
        source = str(queries.require_sweep(con, sweep)["source"])
        return _Frames(
            source,
            queries.run_cells(con, sweep),
            queries.requests(con, sweep),
            queries.steps(con, sweep),
            queries.positions(con, sweep),
            queries.findings(con, sweep),
        )
    finally:
        con.close()


def summary(sweep: str, db: Path | None) -> Answer:
    """`summary SWEEP`: a row per K and cell. Raises Refused for an unknown sweep, StoreError for a bad snapshot."""
    frames = _frames(sweep, db)
    rows = summarise(
        frames.run_cells,
        requests=frames.requests,
        steps=frames.steps,
        positions=frames.positions,
        findings=frames.findings,
    )
    answer = {"sweep": sweep, "source": frames.source, "rows": [row.to_dict() for row in rows]}
    return answer, lambda: _print_summary(sweep, frames, rows)


def _print_summary(sweep: str, frames: _Frames, rows: list[KSummary]) -> None:
    notes = []
    for cell_id, _ in by_cell(frames.run_cells):
        mine = [row for row in rows if row.cell_id == cell_id]
        show(
            f"{sweep} ({frames.source}), cell {cell_id.split(':', 1)[-1]}",
            ("K", "runs", "tok/s", "tokens/step", "acceptance length", "cycle ms", "W", "tok/J", "flags"),
            [
                (
                    str(row.k),
                    str(row.n_runs),
                    figure(row.decode_tok_s),
                    figure(row.tokens_per_step),
                    figure(row.acceptance_length),
                    figure(row.cycle_ms),
                    figure(row.power_w),
                    figure(row.tokens_per_joule),
                    " ".join(row.flags),
                )
                for row in mine
            ],
        )
        notes += [row.decode_tok_s.reason for row in mine if row.decode_tok_s.reason]
    print("[low, high] are 95% intervals; - is not measured")
    for note in dict.fromkeys(notes):
        print(f"no interval for tok/s: {note}")
    for finding in frames.findings.itertuples():
        print(f"{finding.severity}: {finding.code}: {finding.message}")


def fit(sweep: str, db: Path | None) -> Answer:
    """`fit SWEEP`: the cycle model, window by window. Raises Refused, StoreError."""
    frames = _frames(sweep, db)
    fits = [fit_cycle(cell, study=True) for _, cell in by_cell(frames.run_cells)]
    answer = {"sweep": sweep, "source": frames.source, **fit_json(frames.run_cells, study=True)}
    return answer, lambda: _print_fit(sweep, frames.source, fits)


def _print_fit(sweep: str, source: str, fits: list[CycleFit]) -> None:
    for one in fits:
        show(
            f"{sweep} ({source}), cell {one.cell_id.split(':', 1)[-1]}: "
            f"t_verify_base = {figure(one.t_verify_base_ms)} ms",
            ("window", "runs", "t_draft ms", "t_marginal ms", "residual ms", "flags"),
            [
                (
                    f"K={','.join(map(str, window.k))}",
                    str(window.n),
                    figure(window.t_draft_ms),
                    figure(window.t_marginal_ms),
                    figure(window.residual_ms),
                    " ".join(window.flags),
                )
                for window in one.windows
            ],
            [f"- {line}" for line in one.diagnosis],
        )
