"""Commands about direct times: `timing` answers from a snapshot, `time-proposer` measures them alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import pandas as pd

from backend.analysis.cycle_model import fit_cycle
from backend.analysis.cycle_window import Window
from backend.analysis.selection import by_cell
from backend.analysis.timing_report import NOTHING, TimingReport, timing_report
from backend.cli_read import print_json, read, reader
from backend.cli_sweep import run_and_report
from backend.records import Role
from backend.spec import TIMED_PROMPTS, SweepSpec, Timing
from backend.spec_file import load, renamed
from backend.store import queries, queries_timing
from backend.terminal import figure, say, show

ROLES: tuple[Role, ...] = ("arm", "diagnostic")


@click.command()
@reader
def timing(sweep: str, as_json: bool, db: Path | None) -> None:
    """Where a cycle of SWEEP goes: proposer, verify step, sampling, host, timed inside the engine, and the books."""
    frames = read(sweep, db)
    con = queries.connect(db or queries.resolve())
    try:
        cells = queries.cells(con, sweep)  # not of run_cell: a sweep that was only timed has none there
        tables, eager = (_frames(con, sweep, role) for role in ROLES)
    finally:
        con.close()
    answers: list[dict[str, Any]] = []
    for cell_id, _ in by_cell(cells):
        report, diagnostic = (
            timing_report(*(table[table["cell_id"] == cell_id] for table in found)) for found in (tables, eager)
        )
        window = _widest_fit(frames.run_cells[frames.run_cells["cell_id"] == cell_id])
        if not as_json:
            _tables(frames.title(cell_id), report, window)
            continue
        fit = {"t_draft_ms": window.t_draft_ms, "t_marginal_ms": window.t_marginal_ms} if window else {}
        answers.append(
            {
                "cell_id": cell_id,
                **report.to_dict(),
                "diagnostic": diagnostic.to_dict() if diagnostic.times else None,
                "fit": {name: value.to_dict() for name, value in fit.items()} or None,
            }
        )
    if as_json:
        first = answers[0] if answers else {"by_k": [], "reason": NOTHING}
        print_json(frames, by_k=first["by_k"], reason=first["reason"], cells=answers)


def _frames(con: queries.Connection, sweep: str, role: Role) -> list[pd.DataFrame]:
    """What `timing_report` takes, of every cell."""
    asked = (queries_timing.timed_requests, queries_timing.stage_totals, queries_timing.rank_waits)
    return [ask(con, sweep, role) for ask in asked]


def _widest_fit(rows: pd.DataFrame) -> Window | None:
    fit = fit_cycle(rows) if len(rows) else None
    return fit.windows[-1] if fit and fit.windows else None


def _tables(title: str, report: TimingReport, window: Window | None) -> None:
    if not report.times:
        say(f"{title}: {NOTHING}")
        return
    notes = [
        "ms a decode step, on the lowest rank's timeline; [low, high]: 95% intervals over runs (overhead: over pairs)",
        "residual: share of the engine clock's cycle in no stage; overhead: cycle with the probe on against off",
    ]
    notes += [
        f"gap above 5% of the cycle: {row.stage} ({row.contains}) at K={row.k}: {figure(row.share_pct)} %"
        for row in report.large_gaps
    ]
    if report.hidden:
        notes.append(report.hidden)
    if report.lines is not None:
        for what, timed, inferred in (
            ("drafting adds once", report.lines.fixed_ms, window.t_draft_ms if window else None),
            ("one more position adds", report.lines.marginal_ms, window.t_marginal_ms if window else None),
        ):
            beside = f"; the cycle fit says {figure(inferred)}" if inferred else ""
            notes.append(f"{what}, timed: {figure(timed)} ms{beside}")
    show(
        title,
        ("K", "runs", "t_draft ms", "t_verify ms", "t_sample ms", "t_host ms", "cycle ms", "residual %", "overhead %"),
        [
            (
                str(row.k),
                str(row.n_runs),
                *(figure(value) for value in (row.t_draft_ms, row.t_verify_ms, row.t_sample_ms, row.t_host_ms)),
                *(figure(value) for value in (row.cycle_ms, row.residual_pct, row.overhead_pct)),
            )
            for row in report.times
        ],
        notes,
    )


@click.command("time-proposer")
@click.argument("spec_path", metavar="SPEC", type=click.Path(path_type=Path))
@click.option("--as", "name", metavar="NAME", help="Store under this name instead of <the spec's>-timing.")
@click.option("--resume", is_flag=True, help="Go on with it; finished runs are kept.")
@click.option("--data", "data_dir", type=click.Path(path_type=Path, file_okay=False), help="Data directory.")
def time_proposer(spec_path: Path, name: str | None, resume: bool, data_dir: Path | None) -> None:
    """Time the proposer of SPEC alone: warm-up and INSTRUMENT, no MEASURE, so no throughput."""
    spec = load(spec_path)
    spec = renamed(spec, name or f"{spec.name}-timing")
    spec = SweepSpec.model_validate(
        {**spec.model_dump(), "timing": Timing(prompts=spec.timed_prompts or TIMED_PROMPTS, alone=True).model_dump()}
    )
    note = f"# run by time-proposer: timing.prompts = {spec.timed_prompts}, timing.alone = true\n"
    text = note + spec_path.read_text(encoding="utf-8")
    sys.exit(run_and_report(spec, text, data_dir, resume=resume))


COMMANDS = (timing, time_proposer)
