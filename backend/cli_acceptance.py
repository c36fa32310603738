"""`acceptance`: rates by draft position, and with --against what depth itself does to them. JSON by --json."""

from __future__ import annotations

from pathlib import Path

import click
import pandas as pd

from backend.analysis.acceptance import DepthAcceptance, acceptance
from backend.analysis.depth_effect import REMAINDER, DepthEffect, depth_effects
from backend.analysis.depth_words import effect_words
from backend.analysis.gain_report import gain_reports
from backend.cli_read import Frames, print_json, read, reader
from backend.errors import Refused
from backend.store import queries, queries_acceptance
from backend.terminal import figure, say, show

NO_STEPS = "what each step drafted and accepted is not stored (reported figures, or an engine that does not tell)"


@click.command("acceptance")
@reader
@click.option("--against", type=int, metavar="K", help="Compare every depth with this one on equal starts instead.")
def acceptance_rates(sweep: str, as_json: bool, db: Path | None, against: int | None) -> None:
    """Survival, conditional and per-drafted rates of SWEEP by draft position, with intervals over prompts.

    --against K tells an effect of depth on acceptance from steps that start at different places: depths are compared on
    starts they share, and on forced starts where the sweep has them ([forced] in its spec).
    """
    frames = read(sweep, db)
    depths = acceptance(frames.requests, frames.steps, frames.run_cells) if len(frames.requests) else []
    gains = gain_reports(frames.run_cells, requests=frames.requests, steps=frames.steps, positions=frames.positions)
    effects = {} if against is None else _effects(sweep, db, against)
    if as_json:
        reported = frames.positions.astype(object).where(frames.positions.notna(), None).to_dict("records")
        print_json(
            frames,
            depths=[depth.to_dict() for depth in depths],
            reported=reported,
            gains=[report.to_dict() for report in gains],
            **{f"depth_effect_{phase}": [effect.to_dict() for effect in found] for phase, found in effects.items()},
            **({} if against is None else {"depth_effect_reason": None if any(effects.values()) else NO_STEPS}),
        )
        return
    if against is None:
        _print_rates(frames, depths)
        for words in (words for report in gains for words in report.words):
            say(words)
    elif not any(effects.values()):
        say(f"Depths cannot be compared on equal starts: {NO_STEPS}.")
    for found in effects.values():
        for cell_id in dict.fromkeys(effect.cell_id for effect in found):
            _effect_table(frames.title(cell_id), [effect for effect in found if effect.cell_id == cell_id])


def _effects(sweep: str, db: Path | None, against: int) -> dict[str, list[DepthEffect]]:
    """Phase -> depth effects; "forced" only where there are forced starts. Raises Refused where K drafted nothing."""
    con = queries.connect(db or queries.resolve())
    try:
        cells = queries.cells(con, sweep)
        starts = {phase: queries_acceptance.starts(con, sweep, phase=phase) for phase in ("measure", "forced")}
        outputs = queries_acceptance.outputs(con, sweep)
    finally:
        con.close()
    drafted = sorted({int(k) for k in starts["measure"]["k"]})
    if drafted and against not in drafted:
        raise Refused(
            f"no drafted step of K={against} is stored",
            where=f"sweep {sweep}",
            fix=f"depths with steps are {', '.join(map(str, drafted))}",
        )
    return {
        phase: depth_effects(starts[phase], outputs, cells, against=against, phase=phase)
        for phase in starts
        if phase == "measure" or len(starts[phase])
    }


def _effect_table(title: str, effects: list[DepthEffect]) -> None:
    forced = effects[0].phase == "forced"
    show(
        f"{title}: survival less that of K={effects[0].against}, " + ("forced starts" if forced else "by starts"),
        ("K", "position", "starts", "differ", "difference on them")
        + (() if forced else ("raw difference", REMAINDER))
        + ("shared", "verdict"),
        [
            (
                str(effect.k),
                str(at.position),
                str(at.shared_starts),
                str(at.discordant_starts),
                figure(at.difference),
                *(() if forced else (figure(at.raw), figure(at.remainder))),
                f"{figure(effect.shared_share, 3)} / {figure(effect.shared_share_against, 3)}",
                at.verdict,
            )
            for effect in effects
            for at in effect.positions
        ],
        [
            "starts: distinct prefixes that both depths drafted the position from; shared: their share of all starts "
            f"at K / at K={effects[0].against}; intervals over prompts",
            *effect_words(effects),
        ],
    )


def _print_rates(frames: Frames, depths: list[DepthAcceptance]) -> None:
    if not any(depth.positions for depth in depths):
        _reported_table(frames)
    for cell_id in dict.fromkeys(depth.cell_id for depth in depths):
        _acceptance_table(frames.title(cell_id), [depth for depth in depths if depth.cell_id == cell_id])


def _acceptance_table(title: str, depths: list[DepthAcceptance]) -> None:
    positions = max((len(depth.positions) for depth in depths), default=0)
    show(
        f"{title}: survival by draft position",
        ("K", "acceptance length", "tokens/step", "overshoot", *map(str, range(positions))),
        [
            (
                str(depth.k),
                figure(depth.acceptance_length),
                figure(depth.tokens_per_step),
                "-" if depth.overshoot_tokens is None else f"{depth.overshoot_tokens:.0f}",
                *(
                    f"{position.survival.value:.3f}" if position.survival.value is not None else "-"
                    for position in depth.positions
                ),
                *[""] * (positions - len(depth.positions)),
            )
            for depth in depths
        ],
        ["survival: drafts accepted at the position / steps that carried a draft; all three rates: --json"],
    )


def _reported_table(frames: Frames) -> None:
    rows = frames.positions
    columns = [list(rows[name]) for name in ("k", "position", "survival", "conditional")]
    show(
        f"{frames.sweep} ({frames.source}): survival by draft position, as reported",
        ("K", "position", "survival", "conditional"),
        [
            (str(k), str(position), f"{survival:.3f}", "-" if pd.isna(conditional) else f"{conditional:.3f}")
            for k, position, survival, conditional in zip(*columns, strict=True)
        ],
        [] if len(rows) else ["no acceptance by position was reported"],
    )


COMMANDS = (acceptance_rates,)
