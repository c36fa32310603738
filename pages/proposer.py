"""Proposer timing: where a cycle goes, timed inside the engine, and whether the books close."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from backend.analysis.stages import PARTS, stages_of
from backend.analysis.timing_lines import TimingLines
from backend.analysis.timing_report import NOTHING, TimingReport
from backend.charts import Axis
from backend.charts import timing as drawn
from pages.parts import frame, link, show, terms
from pages.parts.once import once

TIME = Axis("Time a decode step", "ms", 3)
PERCENT = Axis("Share", "%", 2)
PART_NAMES = {"draft": "Proposer", "verify": "Verify step", "sample": "Sampling", "host": "Host and gaps"}
POSITION = Axis("Time of a draft position", "ms", 3)

view = frame.open_page("Proposer timing")
frame.source_badge(view.sweep)
cell_id = frame.choose_cell(view, timed=True)
if cell_id is None:
    frame.no_figures(view)
report = view.snapshot.timing(view.name, cell_id)
if not report.times:
    st.info(
        f"No direct times: {NOTHING}. A sweep on vLLM times its proposer unless its spec says `[timing] prompts = 0`; "
        "published and imported figures have none."
    )
    st.stop()

st.markdown(
    "After measuring, some prompts were asked again with timers inside the engine, on and off in turn. "
    "Stages exclude each other, so they add up to the cycle; what they leave is the **residual**. "
    "Throughput never comes from these requests."
)
these = (view.snapshot, "proposer", view.name, cell_id)


def parts() -> show.Chart:
    """Where a decode step goes at every depth."""
    bars = [
        {
            "k": row.k,
            "part": PART_NAMES[part],
            "value": row.part(part).value,
            "hover": f"<b>K={row.k}</b> {PART_NAMES[part]}<br>{words}<br>n={row.part(part).n}<br>{cell_id}",
        }
        for part in PARTS
        for row in report.times
        for words in [TIME.words(row.part(part).value, row.part(part).low, row.part(part).high)]
    ]
    cycle = pd.DataFrame([terms.estimate_row(row.cycle_ms, k=row.k, about=cell_id) for row in report.times])
    deepest = report.times[-1]
    told = ", ".join(f"{PART_NAMES[part].lower()} {TIME.words(deepest.part(part).value)}" for part in PARTS)
    return show.Chart(
        drawn.stacked_parts(pd.DataFrame(bars), TIME, cycle=cycle),
        f"Parts of a decode step by draft depth K. At K={deepest.k} of {TIME.words(deepest.cycle_ms.value)}: {told}.",
    )


def books() -> show.Table:
    """The same in figures, and whether they add up."""
    rows = [
        {
            "K": row.k,
            "Runs": link.runs_behind(row.n_runs, view.name, row.k, cell_id),
            **{f"{PART_NAMES[part]} (ms)": terms.figure(row.part(part), TIME) for part in PARTS},
            "Cycle (ms)": terms.figure(row.cycle_ms, TIME),
            "Residual (%)": terms.figure(row.residual_pct, PERCENT),
            "Overhead of the timers (%)": terms.figure(row.overhead_pct, PERCENT),
        }
        for row in report.times
    ]
    return show.Table(pd.DataFrame(rows), "Times of a decode step by part and depth, with residual and overhead")


def against_fit(lines: TimingLines) -> show.Table:
    """The two costs of drafting as timed and as the cycle fit has them."""
    fit = view.snapshot.cycle_fit(view.name, cell_id)
    window = fit.windows[-1] if fit.windows else None
    rows = [
        {
            "Cost": cost,
            "Timed (ms)": terms.figure(timed, TIME),
            "Cycle fit (ms)": "no fit" if fitted is None else terms.figure(fitted, TIME),
            "Why no interval": timed.reason or "",
        }
        for cost, timed, fitted in (
            ("Drafting, once (t_draft)", lines.fixed_ms, window and window.t_draft_ms),
            ("One more position (t_marginal)", lines.marginal_ms, window and window.t_marginal_ms),
        )
    ]
    return show.Table(
        pd.DataFrame(rows), "Costs of drafting as timed inside the engine and as the cycle fit infers them"
    )


def by_position(report: TimingReport, stage: str) -> show.Chart:
    """What each draft position takes."""
    rows = pd.DataFrame(
        [
            {"k": row.k, "position": row.position, **terms.estimate_row(row.time_ms, about=cell_id)}
            for row in report.positions
            if row.stage == stage
        ]
    )
    deepest = rows[rows["k"] == rows["k"].max()].sort_values("position")
    told = "; ".join(f"{p['position']:g}: {POSITION.words(p['value'])}" for _, p in deepest.iterrows())
    return show.Chart(
        drawn.position_costs(rows, POSITION),
        f"Time of {stage.replace('_', ' ')} by draft position. At K={int(deepest['k'].iloc[0])}: {told}",
    )


def spread_of(part: str) -> show.Chart | None:
    """How far single steps lie apart; None where no step has a time."""
    spread = view.snapshot.step_spread(view.name, cell_id, {name: stages_of(name) for name in PARTS})
    spread = spread[spread["part"] == part]
    if spread.empty:
        return None
    boxes = spread.assign(**{name: 1e3 * spread[f"{name}_s"] for name in ("p05", "p25", "p50", "p75", "p95")})
    medians = "; ".join(f"K={int(row['k'])}: {TIME.words(row['p50'])}" for _, row in boxes.iterrows())
    return show.Chart(
        drawn.step_spread(boxes, TIME, about=cell_id),
        f"{PART_NAMES[part]}: spread of single steps by depth, 5% to 95%. Medians: {medians}",
    )


def every_stage() -> show.Table:
    """All stages with their shares."""
    rows = [
        {
            "K": row.k,
            "Stage": row.stage,
            "Position": "" if row.position < 0 else str(row.position),
            "Part": PART_NAMES[row.part],
            "Time (ms)": terms.figure(row.time_ms, TIME),
            "Share (%)": terms.figure(row.share_pct, PERCENT),
            "What runs in it": row.contains,
        }
        for row in report.shares
    ]
    return show.Table(pd.DataFrame(rows), "Every stage by depth and draft position")


def by_rank() -> show.Table | None:
    """What each rank takes; None with one rank."""
    rows = [
        {
            "K": row.k,
            "Rank": row.rank,
            "Proposer (ms)": terms.figure(row.t_draft_ms, TIME),
            "Verify step (ms)": terms.figure(row.t_verify_ms, TIME),
            "Waiting for slower ranks (ms)": terms.figure(row.wait_ms, TIME),
        }
        for row in report.ranks
    ]
    return show.Table(pd.DataFrame(rows), "Times by rank, and how long each waits in collectives") if rows else None


show.chart(once(*these, "parts", build=parts), key="parts")

st.header("The books", anchor=False)
show.table(once(*these, "books", build=books))
st.caption(
    "95% intervals in brackets, over runs; of the overhead over pairs of a run and a prompt. Cycle: the engine's clock "
    "of the same requests, asked after measuring and fewer than those, so not Overview's cycle. Residual: its share "
    "in no stage. Overhead: the cycle with timers on against off."
)
for gap in report.large_gaps:
    share = PERCENT.words(gap.share_pct.value)
    st.markdown(f"- At K={gap.k}, {terms.outside(gap.contains)} takes {share} of the cycle.")

st.header("Timed against inferred", anchor=False)
lines = report.lines
if lines is None:
    st.info("A line over depths needs at least two drafted depths in a block.")
else:
    show.table(once(*these, "against the fit", build=lambda: against_fit(lines)))
    st.caption(
        f"Timed: in every block a line over K={min(lines.k)} to {max(lines.k)}, for the proposer "
        f"({terms.figure(lines.draft_intercept_ms, TIME)} + K × {terms.figure(lines.draft_slope_ms, TIME)} ms) and for "
        f"the rest, whose step from K=0 to its line is {terms.figure(lines.step_ms, TIME)} ms. "
        "Student t over blocks. The fit has to find the same from whole cycles."
    )

if report.hidden:
    st.info(terms.outside(terms.sentences(report.hidden)))
inside = view.snapshot.timing(view.name, cell_id, "diagnostic") if report.hidden else report
stages = list(dict.fromkeys(row.stage for row in inside.positions))
if stages:
    st.header("Draft positions", anchor=False)
    if report.hidden:
        st.caption("From diagnostic runs without CUDA graphs: shares are telling, times are not those of serving.")
    stage = link.one("stage", "Stage", stages, stages[0], words=lambda name: name.replace("_", " "))
    show.chart(once(*these, "positions", stage, build=lambda: by_position(inside, stage)), key="positions")

st.header("Single steps", anchor=False)
part = link.one("part", "Part", list(PARTS), "draft", words=PART_NAMES.__getitem__)
spread = once(*these, "spread", part, build=lambda: spread_of(part))
if spread is None:
    st.info(f"No step has a time for: {PART_NAMES[part]}.")
else:
    show.chart(spread, key="spread")

more = link.more("stages", "Every stage")
if more.open:
    with more:
        show.table(once(*these, "every stage", build=every_stage))
ranks = once(*these, "ranks", build=by_rank)
if ranks:
    st.header("Ranks", anchor=False)
    show.table(ranks)
    st.caption("Everything above is the lowest rank's timeline; maxima over ranks are never added.")
st.caption(f"Clock of the stages: {'CUDA events' if report.source == 'cuda_event' else 'perf_counter'} in the worker.")
