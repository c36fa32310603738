"""Commands that answer from a snapshot: summary, fit, compare, and what all such share. JSON by --json, else tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pandas as pd

from backend.analysis.categories import compare_categories
from backend.analysis.compare import compare
from backend.analysis.comparison import Comparison
from backend.analysis.cycle_model import CycleFit, fit_cycle, fit_json
from backend.analysis.energy import with_energy
from backend.analysis.export import per_batch_size, static_depth
from backend.analysis.selection import by_cell
from backend.analysis.sentence import answer_sentence
from backend.analysis.stopping import with_pilot
from backend.analysis.summary import KSummary, summarise
from backend.analysis.trend import implied_power_w, trend
from backend.store import queries
from backend.terminal import figure, say, show


@dataclass(frozen=True, slots=True)
class Frames:
    """What one sweep's answers are computed from."""

    sweep: str
    source: str
    reference_depths: dict[str, int]
    run_cells: pd.DataFrame
    requests: pd.DataFrame
    steps: pd.DataFrame
    positions: pd.DataFrame
    findings: pd.DataFrame

    def title(self, cell_id: str) -> str:
        """Heading of a cell's table."""
        return f"{self.sweep} ({self.source}), cell {cell_id.split(':', 1)[-1]}"


def read(sweep: str, db: Path | None) -> Frames:
    """Read one sweep. Raises Refused for an unknown sweep, StoreError for a snapshot that cannot be read."""
    con = queries.connect(db or queries.resolve())
    try:
        row = queries.require_sweep(con, sweep)
        requests = queries.requests(con, sweep)
        return Frames(
            sweep,
            str(row["source"]),
            json.loads(row["reference_depths"]),
            with_pilot(
                with_energy(queries.run_cells(con, sweep), queries.power_samples(con, sweep), requests),
                row["spec_toml"],
            ),
            requests,
            queries.steps(con, sweep),
            queries.positions(con, sweep),
            queries.findings(con, sweep),
        )
    finally:
        con.close()


def reader(command: Callable[..., None]) -> Callable[..., None]:
    """The argument and options that every reading command has."""
    command = click.option("--db", type=click.Path(path_type=Path), help="Snapshot to read.")(command)
    command = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)
    return click.argument("sweep", metavar="SWEEP")(command)


def print_json(frames: Frames, **answer: Any) -> None:
    """One JSON object: the sweep, its source, and the answer. Missing is null; NaN cannot be written."""
    click.echo(json.dumps({"sweep": frames.sweep, "source": frames.source, **answer}, indent=2, allow_nan=False))


@click.command()
@reader
def summary(sweep: str, as_json: bool, db: Path | None) -> None:
    """A row per draft depth and cell of SWEEP, every figure with its interval."""
    frames = read(sweep, db)
    rows = summarise(
        frames.run_cells,
        requests=frames.requests,
        steps=frames.steps,
        positions=frames.positions,
        findings=frames.findings,
    )
    if as_json:
        print_json(frames, rows=[row.to_dict() for row in rows])
        return
    for cell_id in dict.fromkeys(row.cell_id for row in rows):
        _summary_table(frames, cell_id, [row for row in rows if row.cell_id == cell_id])
    for finding in frames.findings.itertuples():
        if finding.severity != "info":  # those are in the snapshot and on page Runs
            say(f"{finding.severity} {finding.code} {finding.run_id}: {finding.message}".replace(" :", ":"))


def _summary_table(frames: Frames, cell_id: str, rows: list[KSummary]) -> None:
    reasons = [
        row.decode_tok_s.reason for row in rows if row.decode_tok_s.value is not None and row.decode_tok_s.reason
    ]
    show(
        frames.title(cell_id),
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
            for row in rows
        ],
        ["[low, high]: 95% intervals, over runs for tok/s and cycle, over prompts for tokens; -: not measured"]
        + [f"no interval for tok/s: {reason}" for reason in dict.fromkeys(reasons)],
    )


@click.command()
@reader
@click.option("--assumed-ms", type=float, help="Test this assumed cost of a verify position against the measured one.")
def fit(sweep: str, as_json: bool, db: Path | None, assumed_ms: float | None) -> None:
    """The cycle model of SWEEP: cycle(K) = t_verify_base + t_draft + K t_marginal, window by window."""
    frames = read(sweep, db)
    if as_json:
        print_json(frames, **fit_json(frames.run_cells, study=True, assumed_ms=assumed_ms))
        return
    for cell_id, cell in by_cell(frames.run_cells):
        _fit_table(frames.title(cell_id), fit_cycle(cell, study=True, assumed_ms=assumed_ms))


def _fit_table(title: str, one: CycleFit) -> None:
    show(
        f"{title}: t_verify_base = {figure(one.t_verify_base_ms)} ms",
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
        [*one.diagnosis, *([one.assumed.words] if one.assumed else [])],
    )


@click.command("compare")
@reader
@click.option("--categories", is_flag=True, help="Also compare within each prompt category.")
def compare_depths(sweep: str, as_json: bool, db: Path | None, categories: bool) -> None:
    """Which depth of SWEEP is best, how sure, what the others lose, and what to give the server."""
    frames = read(sweep, db)
    cells = compare(frames.run_cells, frames.reference_depths)
    inside = compare_categories(frames.requests, frames.run_cells, frames.reference_depths) if categories else {}
    if as_json:
        print_json(
            frames,
            cells=[{**cell.to_dict(), "answer": answer_sentence(cell, source=frames.source)} for cell in cells],
            categories={name: [cell.to_dict() for cell in found] for name, found in inside.items()},
            static=[static_depth(cell) for cell in cells],
            power_trend=[trend(implied_power_w(rows)).to_dict() for _, rows in by_cell(frames.run_cells)],
            per_batch_size=per_batch_size(cells),
        )
        return
    for cell in cells:
        _comparison_table(frames.title(cell.cell_id), cell, answer_sentence(cell, source=frames.source))
    for _, rows in by_cell(frames.run_cells):
        if rows["power_w"].notna().any():
            say(trend(implied_power_w(rows)).words)
    for name, found in inside.items():
        for cell in found:
            _comparison_table(f"{frames.title(cell.cell_id)}, category {name}", cell, answer_sentence(cell))


def _comparison_table(title: str, cell: Comparison, answer: str) -> None:
    against_0 = {pair.k: pair for pair in cell.pairs if pair.against == 0}
    notes = [answer]
    if cell.break_even and cell.break_even.k is not None:
        notes.append(f"Break-even depth: {figure(cell.break_even.estimate)} (the deepest K above no speculation).")
    show(
        title,
        ("K", "runs", "tok/s", "loss against the best %", "verdict", "P(best)", "against K=0 %"),
        [
            (
                str(depth.k),
                str(depth.runs),
                f"{depth.decode_tok_s:.4g}",
                figure(depth.loss_percent),
                depth.verdict,
                _probability(depth.p_best),
                figure(against_0[depth.k].change_percent) if depth.k in against_0 else "-",
            )
            for depth in cell.depths
        ],
        notes + ([cell.reason] if cell.reason else []),
    )


def _probability(p: float | None) -> str:
    """Two digits; never the 0 or 1 that a number of draws cannot give."""
    if p is None:
        return "-"
    return "<0.01" if p < 0.01 else ">0.99" if p > 0.99 else f"{p:.2f}"


COMMANDS = (summary, fit, compare_depths)
