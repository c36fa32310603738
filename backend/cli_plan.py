"""Commands that look ahead: what a change would give (whatif), and what more runs would tell (plan)."""

from __future__ import annotations

from pathlib import Path

import click
import pandas as pd

from backend.analysis.estimate import Estimate, point
from backend.analysis.hold_out import HeldOut, hold_out, survival_of
from backend.analysis.planner import parse_target, plan_cell, plan_words
from backend.analysis.selection import by_cell
from backend.analysis.summary import summarise
from backend.analysis.whatif import WhatIf, prediction_errors, what_if
from backend.analysis.whatif_report import Turns, answer, turns
from backend.analysis.whatif_runs import Change, direct_t_draft, fitted_costs
from backend.cli_read import Frames, print_json, read, reader
from backend.errors import Refused
from backend.store import queries, queries_timing
from backend.terminal import figure, show

GIVEN = "given, taken as exact"


@click.command()
@reader
@click.option("--free-draft", is_flag=True, help="The drafter runs on another host: t_draft is freed, the hop is paid.")
@click.option("--overlap", is_flag=True, help="With --free-draft: it drafts while the target verifies.")
@click.option("--hop-ms", type=click.FloatRange(min=0), default=0.0, help="Cost of the hop, once a step.")
@click.option("--t-draft-ms", type=float, help="This t_draft instead of direct times, else the fit's.")
@click.option("--verify-position-ms", type=float, default=0.0, help="Every verify position so much dearer (+) or not.")
@click.option("--verify-scale", type=click.FloatRange(min=0), default=1.0, help="t_marginal times this.")
@click.option("--draft-position-ms", type=float, default=0.0, help="Every draft position so much dearer.")
@click.option("--step-ms", type=float, default=0.0, help="Every step so much dearer, K=0 too.")
@click.option("--acceptance-from", "donor", metavar="SWEEP2", help="Tokens per step by depth of that sweep.")
@click.option("--against", metavar="SWEEP2", help="Set the prediction beside that sweep, where the change was made.")
@click.option("--hold-out", "held", is_flag=True, help="Predict each inner depth from the others instead.")
def whatif(
    sweep: str,
    as_json: bool,
    db: Path | None,
    free_draft: bool,
    overlap: bool,
    hop_ms: float,
    t_draft_ms: float | None,
    verify_position_ms: float,
    verify_scale: float,
    draft_position_ms: float,
    step_ms: float,
    donor: str | None,
    against: str | None,
    held: bool,
) -> None:
    """What SWEEP's throughput would be if a cost or the acceptance changed; best K, flips, break-even hop."""
    change = Change(free_draft, overlap, hop_ms, verify_position_ms, verify_scale, draft_position_ms, step_ms)
    if overlap and not free_draft:
        raise Refused("--overlap needs --free-draft", fix="a drafter on this host cannot draft while the target runs")
    if t_draft_ms is not None and not free_draft:
        raise Refused("--t-draft-ms needs --free-draft", fix="it says how much is freed")
    frames = read(sweep, db)
    if held:
        _held_out(frames, as_json)
        return
    if change == Change() and donor is None:
        raise Refused(
            "nothing is changed", where="whatif", fix="give --free-draft, --hop-ms, --verify-position-ms, ..."
        )
    timed = _direct(sweep, db) if free_draft and t_draft_ms is None else (pd.DataFrame(), pd.DataFrame())
    beside = read(against, db) if against else None
    other = read(donor, db) if donor else None
    cells = []
    for cell_id, rows in by_cell(frames.run_cells):
        given = None if t_draft_ms is None else point(t_draft_ms, "ms", GIVEN, method="given", n=None)
        direct = direct_t_draft(*(t[t["cell_id"] == cell_id] if len(t) else t for t in timed))
        costs = fitted_costs(rows, t_draft_ms=given, by_depth=direct)
        tokens = None if other is None else _tokens(other, rows)
        found = what_if(rows, change, costs, tokens=tokens, tokens_from=donor or "")
        errors = None if beside is None else prediction_errors(found, _like(beside, rows))
        cells.append((cell_id, found, turns(rows, found, tokens), errors))
    if as_json:
        print_json(
            frames,
            cells=[
                {
                    **found.to_dict(),
                    **turned.to_dict(),
                    "turns": turned.to_dict(),
                    "answer": answer(found, turned),
                    "against": None if errors is None else {str(k): e.to_dict() for k, e in errors.items()},
                }
                for _, found, turned, errors in cells
            ],
        )
        return
    for cell_id, found, turned, errors in cells:
        _table(frames.title(cell_id), found, turned, errors, against or "")


def _direct(sweep: str, db: Path | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Timed requests and stage totals of INSTRUMENT; empty where nothing was timed."""
    con = queries.connect(db or queries.resolve())
    try:
        return queries_timing.timed_requests(con, sweep), queries_timing.stage_totals(con, sweep)
    finally:
        con.close()


def _tokens(other: Frames, rows: pd.DataFrame) -> dict[int, Estimate]:
    """Tokens per step by depth of the other sweep's matching cell."""
    cell = _like(other, rows)["cell_id"].iloc[0]
    summary = summarise(other.run_cells, requests=other.requests, steps=other.steps, positions=other.positions)
    return {row.k: row.tokens_per_step for row in summary if row.cell_id == cell}


def _like(other: Frames, rows: pd.DataFrame) -> pd.DataFrame:
    """The other sweep's cell of the same concurrency, its first one else. Raises Refused where it has none."""
    cells = [frame for _, frame in by_cell(other.run_cells)]
    if not cells:
        raise Refused("has no figures yet", where=other.sweep, fix="name a sweep with finished runs")
    same = [frame for frame in cells if frame["concurrency"].iloc[0] == rows["concurrency"].iloc[0]]
    return (same or cells)[0]


def _table(title: str, found: WhatIf, turned: Turns, errors: dict[int, Estimate] | None, against: str) -> None:
    compared = () if errors is None else (f"against {against} %",)
    show(
        f"{title}: {found.change.words}",
        ("K", "tok/s now", "tok/s then", "change %", "cycle now ms", "cycle then ms", *compared),
        [
            (
                str(depth.k),
                figure(depth.now_tok_s),
                figure(depth.then_tok_s),
                figure(depth.change_percent),
                figure(depth.cycle_now_ms),
                figure(depth.cycle_then_ms),
                *(() if errors is None else (figure(errors[depth.k]),)),
            )
            for depth in found.depths
        ],
        [*answer(found, turned), *([found.reason] if found.reason else [])],
    )


def _held_out(frames: Frames, as_json: bool) -> None:
    """Every inner depth predicted from the others."""
    found = {
        cell_id: hold_out(rows, survival_of(frames.positions, cell_id)) for cell_id, rows in by_cell(frames.run_cells)
    }
    if as_json:
        print_json(frames, held_out={cell: [one.to_dict() for one in all_] for cell, all_ in found.items()})
        return
    for cell_id, depths in found.items():
        show(
            f"{frames.title(cell_id)}: each depth predicted from the others",
            ("K", "predicted tok/s", "measured tok/s", "error %", "cycle error %", "tokens/step error %"),
            [_held_row(one) for one in depths],
            [] if depths else ["no depth has a measured depth above 0 on both sides"],
        )


def _held_row(one: HeldOut) -> tuple[str, ...]:
    return (
        str(one.k),
        figure(one.predicted_tok_s),
        figure(one.measured_tok_s),
        figure(one.error_percent),
        f"{one.cycle_error_percent:+.1f}",
        f"{one.tokens_error_percent:+.1f}",
    )


@click.command("plan")
@reader
@click.option(
    "--for", "targets", required=True, multiple=True, help="t_draft=3ms, loss=1% or tok_s=2%; can be repeated."
)
@click.option("--scatter-ms", type=click.FloatRange(min=0, min_open=True), help="Scatter of one run's cycle, if known.")
def plan_blocks(sweep: str, as_json: bool, db: Path | None, targets: tuple[str, ...], scatter_ms: float | None) -> None:
    """How many blocks SWEEP would take to answer so exactly, their cost, and if requests are the better buy."""
    wanted = [parse_target(text) for text in targets]
    frames = read(sweep, db)
    con = queries.connect(db or queries.resolve())
    try:
        runs = queries.runs(con, sweep)
    finally:
        con.close()
    plans = [
        plan_cell(rows, target, requests=frames.requests, runs=runs, scatter_ms=scatter_ms)
        for _, rows in by_cell(frames.run_cells)
        for target in wanted
    ]
    if as_json:
        print_json(frames, plans=[one.to_dict() for one in plans])
        return
    for one in plans:
        show(
            f"{frames.title(one.cell_id)}: {one.target.words}, over K={','.join(map(str, one.depths))}",
            ("reading of the target", "blocks", "by the scatter's interval", "more hours"),
            [
                (
                    need.meaning,
                    "-" if need.blocks is None else str(need.blocks),
                    f"{need.low or '-'} to {need.high or '-'}",
                    "-" if need.hours_more is None else f"{need.hours_more:.2f}",
                )
                for need in one.needs
            ],
            plan_words(one),
        )


COMMANDS = (whatif, plan_blocks)
