"""Commands about direct times: `timing` answers from a snapshot, `time-proposer` measures them alone."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pandas as pd

from backend import publish
from backend.analysis.cycle_model import fit_cycle
from backend.analysis.selection import by_cell
from backend.analysis.stages import BY_POSITION
from backend.analysis.timing import DepthTimes, StageShare, depth_times, rank_times, run_parts, stage_shares
from backend.analysis.timing_lines import TimingLines, timing_lines
from backend.cli_read import Frames, print_json, read, reader
from backend.spec import TIMED_PROMPTS, SweepSpec, Timing
from backend.spec_file import load, renamed
from backend.store import paths, queries, queries_timing
from backend.store.database import Store
from backend.sweep import run_sweep
from backend.terminal import SweepMonitor, figure, say, show

NOTHING = "nothing was timed: the sweep has no INSTRUMENT phase"


@click.command()
@reader
def timing(sweep: str, as_json: bool, db: Path | None) -> None:
    """Where a cycle of SWEEP goes: proposer, verify step, sampling, host, timed inside the engine, and the books."""
    frames = read(sweep, db)
    con = queries.connect(db or queries.resolve())
    try:
        requests, stages = queries_timing.timed_requests(con, sweep), queries_timing.stage_totals(con, sweep)
        waits, cells = queries_timing.rank_waits(con, sweep), queries.cells(con, sweep)
    finally:
        con.close()
    answers = []
    for cell_id, _ in by_cell(cells):  # not of run_cell: a sweep that was only timed has none there
        rows = frames.run_cells[frames.run_cells["cell_id"] == cell_id]
        timed, totals = (table[table["cell_id"] == cell_id] for table in (requests, stages))
        times, shares = depth_times(timed, totals), stage_shares(timed, totals)
        ranks = rank_times(timed, totals, waits[waits["cell_id"] == cell_id])
        lowest = totals[totals["rank"] == totals["rank"].min()]
        lines = timing_lines(run_parts(timed, lowest)) if times else None
        if not as_json:
            _tables(frames, cell_id, times, shares, lines, rows)
            continue
        fit = fit_cycle(rows) if len(rows) else None
        answers.append(
            {
                "cell_id": cell_id,
                "reason": None if times else NOTHING,
                "by_k": [row.to_dict() for row in times],
                "regressions": lines.to_dict() if lines else None,
                "fit": {
                    "t_draft_ms": fit.windows[-1].t_draft_ms.to_dict(),
                    "t_marginal_ms": fit.windows[-1].t_marginal_ms.to_dict(),
                }
                if fit and fit.windows
                else None,
                "positions": [row.to_dict() for row in shares if row.stage in BY_POSITION],
                "stages": [row.to_dict() for row in shares if row.stage not in BY_POSITION],
                "ranks": [row.to_dict() for row in ranks],
            }
        )
    if as_json:
        first = answers[0] if answers else {"by_k": [], "reason": NOTHING}
        print_json(frames, by_k=first["by_k"], reason=first["reason"], cells=answers)


def _tables(
    frames: Frames,
    cell_id: str,
    times: list[DepthTimes],
    shares: list[StageShare],
    lines: TimingLines | None,
    rows: pd.DataFrame,
) -> None:
    if not times:
        say(f"{frames.title(cell_id)}: {NOTHING}")
        return
    notes = [
        "ms a decode step, on the lowest rank's timeline; [low, high]: 95% intervals over runs (overhead: over pairs)",
        "residual: share of the engine clock's cycle in no stage; overhead: cycle with the probe on against off",
    ]
    gaps = [f"{row.stage} ({row.contains}) at K={row.k}: {figure(row.share_pct)} %" for row in shares if row.large_gap]
    notes += [f"gap above 5% of the cycle: {gap}" for gap in gaps]
    if lines is not None:
        fit = fit_cycle(rows) if len(rows) else None
        window = fit.windows[-1] if fit and fit.windows else None
        inferred = f"; the cycle fit says {figure(window.t_draft_ms)}" if window else ""
        notes.append(f"drafting adds once, timed: {figure(lines.fixed_ms)} ms{inferred}")
        slope = f"; the cycle fit says {figure(window.t_marginal_ms)}" if window else ""
        notes.append(f"one more position adds, timed: {figure(lines.marginal_ms)} ms{slope}")
    show(
        frames.title(cell_id),
        ("K", "runs", "t_draft ms", "t_verify ms", "t_sample ms", "t_host ms", "cycle ms", "residual %", "overhead %"),
        [
            (
                str(row.k),
                str(row.n_runs),
                *(figure(value) for value in (row.t_draft_ms, row.t_verify_ms, row.t_sample_ms, row.t_host_ms)),
                *(figure(value) for value in (row.cycle_ms, row.residual_pct, row.overhead_pct)),
            )
            for row in times
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
    directory = paths.data_directory(data_dir or spec.data_dir)
    with Store(directory, code_version=publish.code_version()) as store, SweepMonitor() as monitor:
        outcome = run_sweep(
            spec,
            spec_path.read_text(encoding="utf-8"),
            store,
            resume=resume,
            listener=monitor.listen,
            say=lambda note: click.echo(f"note: {note}", err=True),
        )
    sys.exit(outcome.exit_code)


COMMANDS = (timing, time_proposer)
