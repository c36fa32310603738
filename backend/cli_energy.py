"""`energy`: watts and tokens per joule by depth, with phase, scope and sensor, or why there are none."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from backend.analysis.energy import RunEnergy, energies_of
from backend.analysis.energy_reported import ReportedEnergy, reported_energy
from backend.analysis.estimate import Estimate, missing, student_t_log_mean, student_t_mean
from backend.analysis.selection import arms, by_cell
from backend.cli_read import Frames, print_json, read, reader
from backend.store import queries
from backend.terminal import figure, show

NOTHING = "no power sensor was read, and no power was reported"


@click.command()
@reader
def energy(sweep: str, as_json: bool, db: Path | None) -> None:
    """Watts and tokens per joule of SWEEP by depth: what was measured, over which phase, by which sensor."""
    frames = read(sweep, db)
    con = queries.connect(db or queries.resolve())
    try:
        samples = queries.power_samples(con, sweep)
    finally:
        con.close()
    runs = energies_of(samples, frames.requests)
    reported = {cell: reported_energy(rows) for cell, rows in by_cell(frames.run_cells)} if not runs else {}
    if as_json:
        print_json(
            frames,
            runs=[asdict(run) for run in runs],
            by_k=[row for cell in _cells(frames) for row in _by_k(frames, cell, runs)],
            reported={cell: [row.to_dict() for row in found] for cell, found in reported.items()},
            reason=None if runs or any(reported.values()) else NOTHING,
        )
        return
    for cell in _cells(frames):
        if runs:
            _measured_table(frames, cell, runs)
        else:
            _reported_table(frames, cell, reported.get(cell, []))


def _cells(frames: Frames) -> list[str]:
    return [cell for cell, _ in by_cell(frames.run_cells)]


def _figures(frames: Frames, cell: str, runs: list[RunEnergy]) -> dict[int, tuple[Estimate, Estimate, list[RunEnergy]]]:
    """Depth -> (W, tok/J, its runs' energies) over valid arms."""
    rows = arms(frames.run_cells[frames.run_cells["cell_id"] == cell])
    depth_of = dict(zip(rows["run_id"], rows["k"].astype(int), strict=True))
    mine: dict[int, list[RunEnergy]] = {k: [] for k in sorted(set(depth_of.values()))}
    for run in runs:
        if run.cell_id == cell and run.run_id in depth_of:
            mine[depth_of[run.run_id]].append(run)
    out = {}
    for k, found in mine.items():
        reasons = [run.reason for run in found if run.energy_j is None and run.reason]
        watts = student_t_mean([run.power_w for run in found], "W")
        joule = student_t_log_mean([run.tokens_per_joule for run in found], "tok/J")
        if watts.value is None:
            watts, joule = (missing(unit, reasons[0] if reasons else "no samples") for unit in ("W", "tok/J"))
        out[k] = (watts, joule, found)
    return out


def _by_k(frames: Frames, cell: str, runs: list[RunEnergy]) -> list[dict[str, object]]:
    if not runs:
        return []
    return [
        {"cell_id": cell, "k": k, "power_w": watts.to_dict(), "tokens_per_joule": joule.to_dict(), **_kind(found)}
        for k, (watts, joule, found) in _figures(frames, cell, runs).items()
    ]


def _kind(found: list[RunEnergy]) -> dict[str, object]:
    """What the figures of a depth have in common."""
    known = [run for run in found if run.energy_j is not None]
    first = known[0] if known else found[0] if found else None
    names = ("phase", "scope", "source", "method", "nodes", "sensor_period_s")
    return {name: None if first is None else getattr(first, name) for name in names}


def _measured_table(frames: Frames, cell: str, runs: list[RunEnergy]) -> None:
    rows, notes = [], []
    for k, (watts, joule, found) in _figures(frames, cell, runs).items():
        kind = _kind(found)
        told = [str(kind[name] or "-") for name in ("phase", "scope", "source", "method", "nodes")]
        rows.append((str(k), str(watts.n or 0), figure(watts), figure(joule), *told))
        notes += [f"K={k}: {run.run_id}: {run.reason}" for run in found if run.energy_j is None]
    periods = {run.sensor_period_s for run in runs if run.cell_id == cell and run.sensor_period_s}
    if periods:
        notes.insert(0, f"Sensor period {max(periods):.2g} s: readings lag by up to as much.")
    headers = ("K", "runs", "W", "tok/J", "phase", "scope", "source", "method", "nodes")
    show(frames.title(cell), headers, rows, notes)


def _reported_table(frames: Frames, cell: str, found: list[ReportedEnergy]) -> None:
    show(
        f"{frames.title(cell)}: as reported",
        ("K", "tok/J as printed", "tok/J from tok/s and W", "apart %", "W that follows", "scope"),
        [
            (
                str(row.k),
                figure(row.tokens_per_joule),
                figure(row.follows),
                "-" if row.difference_percent is None else f"{row.difference_percent:+.2f}",
                figure(row.implied_power_w),
                row.scope,
            )
            for row in found
        ],
        ["The publication does not say what its watts cover, so they compare with no other sweep's."]
        if found
        else [NOTHING],
    )


COMMANDS = (energy,)
