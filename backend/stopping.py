"""Adaptive stopping of a sweep ([stop] in its spec): decided once, after the pilot, and kept in the sweep's journal.

The decision is a Finding, `stop-decided`, about the pilot's last run; its figure is the number of blocks. What is in
the journal is never decided again, so a sweep that was killed goes on to the same number of blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from backend.analysis.stopping import Decision, decide
from backend.records import Finding, Sweep
from backend.schedule import PlannedRun, plan
from backend.spec import SweepSpec
from backend.store import journal, queries
from backend.store.database import Store

DECIDED = "stop-decided"


def planned_now(spec: SweepSpec, store: Store) -> tuple[tuple[PlannedRun, ...], bool]:
    """The runs to make as far as they are known, and whether a decision is still to come after them.

    Before the decision: the pilot, without the anchor that ends the sweep.
    """
    if spec.stop is None:
        return plan(spec), False
    blocks = decided_blocks(spec, store)
    if blocks is not None:
        return plan(with_blocks(spec, blocks)), False
    pilot = plan(spec)
    return (pilot[:-1] if pilot[-1].role == "anchor" else pilot), True


def with_blocks(spec: SweepSpec, blocks: int) -> SweepSpec:
    """The same sweep with so many blocks."""
    return spec.model_copy(update={"blocks": blocks})


def decided_blocks(spec: SweepSpec, store: Store) -> int | None:
    """What was decided before, by the journal; None where nothing was."""
    path = store.roots["own"] / spec.name / journal.SWEEP_FILE
    if not path.is_file():
        return None
    kept = [r for r in journal.read(path).records if isinstance(r, Finding) and r.code == DECIDED and r.figure]
    return int(kept[0].figure or 0) if kept else None


def decide_once(spec: SweepSpec, store: Store) -> tuple[Decision, tuple[PlannedRun, ...]]:
    """Decide from the pilot as it is stored, keep it, and return it with every run of the sweep. Needs [stop]."""
    stop = spec.stop
    if stop is None:
        raise ValueError("a sweep without [stop] decides nothing")
    with store.reading() as con:
        rows = queries.run_cells(con, spec.name)
    decision = decide(
        rows,
        spec.blocks,
        stop.max_blocks,
        decode_tok_s_percent=stop.decode_tok_s_percent,
        t_draft_ms=stop.t_draft_ms,
    )
    path = store.roots["own"] / spec.name / journal.SWEEP_FILE
    head = [record for record in journal.read(path).records if isinstance(record, Sweep)][-1]
    with store.sweep_journal(spec.name) as sweep_journal:
        sweep_journal.append(_finding(spec, decision, rows), replace(head, blocks=decision.blocks))
    return decision, plan(with_blocks(spec, decision.blocks))


def _finding(spec: SweepSpec, decision: Decision, rows: pd.DataFrame) -> Finding:
    ordered = rows.sort_values("order_index") if len(rows) else rows
    last = str(ordered["run_id"].iloc[-1]) if len(ordered) else ""
    advice = "intervals of this sweep are Stein's: they use the pilot's variance and degrees of freedom"
    if decision.cut:
        advice = "its intervals will be wider than asked for; raise stop.max_blocks in a new sweep"
    message = f"{decision.words}."
    return Finding(spec.name, last, "", DECIDED, "info", float(decision.blocks), "blocks", message, advice)


def beyond(runs: Sequence[PlannedRun], done: Sequence[PlannedRun]) -> list[PlannedRun]:
    """The runs that were not planned before."""
    before = set(done)
    return [run for run in runs if run not in before]
