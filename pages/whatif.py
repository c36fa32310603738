"""What if: throughput by K with the drafter on another host, dearer positions, or another drafter's acceptance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from backend import charts
from backend.analysis.estimate import Estimate, point
from backend.analysis.whatif import WhatIf, what_if
from backend.analysis.whatif_report import Turns, answer, turns
from backend.analysis.whatif_runs import Change, direct_t_draft, fitted_costs, runs_of
from backend.analysis.whatif_search import rates_along
from backend.charts import Axis
from backend.store import queries, queries_timing
from pages.parts import frame, link, numbers, show, terms
from pages.parts.once import once

HERE, APART, BESIDE = "here", "apart", "overlap"
DRAFTER = {
    HERE: "where it is now",
    APART: "on another host",
    BESIDE: "on another host, drafting while the target verifies",
}
FIT, DIRECT, GIVEN = "fit", "direct", "given"
FREED = {FIT: "t_draft of the cycle fit", DIRECT: "direct times of each depth", GIVEN: "a figure of your own"}
OWN = "own"
ALIKE = ("concurrency", "context_tokens", "workload")  # what makes two cells alike, what matters most first
RATE = terms.QUANTITIES["decode_tok_s"]
HOP = Axis("Hop", "ms", 2)
POSITION = Axis("Extra cost of a verify position", "ms", 2)

view = frame.open_page("What if")
frame.source_badge(view.sweep)
cell_id = frame.choose_cell(view)
if cell_id is None:
    frame.no_figures(view)
snapshot = view.snapshot
rows = snapshot.cell_rows(view.name, cell_id)


def direct() -> dict[int, Estimate]:
    """t_draft(K) as timed inside the engine; empty where nothing was timed."""
    con = queries.connect(snapshot.path)
    try:
        timed, totals = queries_timing.timed_requests(con, view.name), queries_timing.stage_totals(con, view.name)
    finally:
        con.close()
    return direct_t_draft(timed[timed["cell_id"] == cell_id], totals[totals["cell_id"] == cell_id])


def held_out() -> show.Table | None:
    """Every inner depth predicted from the others; None where there is none."""
    told = [
        {
            "K": one.k,
            "Predicted (tok/s)": terms.figure(one.predicted_tok_s, RATE),
            "Measured (tok/s)": terms.figure(one.measured_tok_s, RATE),
            "Error (%)": terms.percent(one.error_percent, signed=True),
            "Why no interval": one.error_percent.reason or "",
        }
        for one in snapshot.held_out(view.name, cell_id)
    ]
    return show.Table(pd.DataFrame(told), "Every inner depth predicted from the others") if told else None


timed = once(snapshot, "direct times", view.name, cell_id, build=direct)
every = snapshot.sweeps()
sources = dict(zip(every["sweep"], every["source"], strict=True))

left, right = st.columns(2)
with left:
    drafter = link.one("drafter", "The drafter runs", list(DRAFTER), APART, words=DRAFTER.__getitem__)
    choices = [FIT, *([DIRECT] if timed else []), GIVEN]
    freed, given_ms = FIT, 0.0
    if drafter != HERE:
        freed = link.one("freed", "What it frees", choices, DIRECT if timed else FIT, words=FREED.__getitem__)
        if freed == GIVEN:
            given_ms = numbers.number("t_draft", "t_draft (ms)", 10.0, low=0.0, high=10_000.0, step=0.5)
    hop_ms = numbers.number("hop", "Hop once a step (ms)", 0.0, low=0.0, high=10_000.0, step=0.5)
with right:
    position_ms = numbers.number(
        "verify", "Extra cost of a verify position (ms)", 0.0, low=-1000.0, high=10_000.0, step=0.5
    )
    scale = numbers.number("scale", "Cost of a position, times", 1.0, low=0.0, high=20.0, step=0.1)
    donors = [OWN, *(name for name in sources if name != view.name)]
    donor = link.one(
        "tokens",
        "Tokens per step of",
        donors,
        OWN,
        words=lambda name: "this sweep" if name == OWN else f"{name} ({sources[name]})",
    )

change = Change(
    free_draft=drafter != HERE,
    overlap=drafter == BESIDE,
    hop_ms=hop_ms,
    verify_position_ms=position_ms,
    verify_scale=scale,
)


def cell_of_donor() -> tuple[str, str] | None:
    """The other sweep's cell that is most like this one, and its name; None where it has no tokens per step."""
    there = {row.cell_id for row in snapshot.summary(donor) if row.tokens_per_step.value is not None}
    cells = snapshot.of_sweep("cells", donor)
    cells = cells[cells["cell_id"].isin(there)]
    if cells.empty:
        return None
    every = pd.concat([snapshot.of_sweep("cells", view.name), cells])
    every = every.set_index("cell_id")[list(ALIKE)].astype(str)  # as text, in which missing is like missing
    alike = [tuple(every.loc[cell] == every.loc[cell_id]) for cell in cells["cell_id"]]
    found = str(cells["cell_id"].iloc[max(range(len(alike)), key=alike.__getitem__)])
    return found, terms.cell_names(cells)[found]


def tokens_of_donor() -> dict[int, Estimate] | None:
    """Tokens per step by depth of the other sweep's cell; None: this sweep's own."""
    if not borrowed:
        return None
    return {row.k: row.tokens_per_step for row in snapshot.summary(donor) if row.cell_id == borrowed[0]}


def compared(found: WhatIf) -> tuple[show.Chart, show.Table]:
    """Throughput by K, now and then."""
    points = pd.DataFrame(
        [
            terms.estimate_row(getattr(depth, name), k=depth.k, series=series, about=cell_id)
            for series, name in (("now", "now_tok_s"), ("what if", "then_tok_s"))
            for depth in found.depths
        ]
    )
    told = "; ".join(
        f"K={d.k}: {RATE.words(d.now_tok_s.value)} now, {RATE.words(d.then_tok_s.value)} then" for d in found.depths
    )
    table = [
        {
            "K": depth.k,
            "Now (tok/s)": terms.figure(depth.now_tok_s, RATE),
            "What if (tok/s)": terms.figure(depth.then_tok_s, RATE),
            "Change (%)": terms.percent(depth.change_percent, signed=True),
            "Cycle then (ms)": terms.figure(depth.cycle_then_ms, terms.QUANTITIES["cycle_ms"]),
            "n": link.runs_behind(depth.then_tok_s.n, view.name, depth.k, cell_id),
            "Why no interval": depth.then_tok_s.reason or "",
        }
        for depth in found.depths
    ]
    return (
        show.Chart(charts.depth_curve(points, RATE), f"Decode throughput by K now and with {change.words}. {told}"),
        show.Table(pd.DataFrame(table), "Throughput of every depth now and under the change"),
    )


def along_cost(found: WhatIf, turned: Turns, tokens: dict[int, Estimate] | None) -> show.Chart | None:
    """Every depth's throughput along the cost; None where there is nothing to search."""
    searched = turned.hop_range_ms if change.free_draft else turned.position_range_ms
    if searched is None or found.best_then is None:
        return None
    end = searched[1]
    even = turned.break_even_hop_ms.value if change.free_draft else None
    if even is not None:
        end = min(end, max(4 * even, 2 * hop_ms, 1.0))
    best = found.best_now
    _, arrays = runs_of(rows, found.costs, tokens)
    along = "hop_ms" if change.free_draft else "verify_position_ms"
    lines = pd.DataFrame(rates_along(arrays, change, along, np.linspace(searched[0], end, 61)))
    figure = charts.against_cost(
        lines,
        RATE,
        cost=HOP if change.free_draft else POSITION,
        reference=next((d.now_tok_s.value for d in found.depths if d.k == best), None),
        reference_name=f"fastest now, K={best}",
        marked=even,
        marked_name="break-even hop",
        about=cell_id,
    )
    fastest = lines.loc[lines.groupby("cost")["value"].idxmax()]
    turns_at = fastest[fastest["k"] != fastest["k"].shift()]
    axis = HOP if change.free_draft else POSITION
    told = "; ".join(f"K={int(t['k'])} from {axis.words(t['cost'])}" for _, t in turns_at.iterrows())
    crossed = "" if even is None else f" The hop breaks even at {HOP.words(even)}."
    return show.Chart(
        figure, f"Decode throughput of every depth as {axis.label.lower()} grows. Fastest: {told}.{crossed}"
    )


def predicted() -> dict[str, Any]:
    """The what-if, where it turns, and both drawn."""
    own = point(given_ms, "ms", "given, taken as exact", method="given", n=None) if freed == GIVEN else None
    costs = fitted_costs(rows, t_draft_ms=own, by_depth=timed if freed == DIRECT else None)
    tokens = tokens_of_donor()
    found = what_if(rows, change, costs, tokens=tokens, tokens_from="" if donor == OWN else donor, draws=4000)
    if not found.depths:
        return {"reason": found.reason}
    turned = turns(rows, found, tokens)
    chart, table = compared(found)
    methods = list(dict.fromkeys(d.then_tok_s.method for d in found.depths if d.then_tok_s.has_interval))
    return {
        "answer": answer(found, turned),
        "frees the draft": found.change.free_draft,
        "chart": chart,
        "table": table,
        "method": methods[-1] if methods else None,
        "along": along_cost(found, turned, tokens),
    }


borrowed = None if donor == OWN else once(snapshot, "donor", view.name, cell_id, donor, build=cell_of_donor)
if donor != OWN and borrowed is None:
    st.info(f"{terms.outside(donor)} has no tokens per step: none of its runs gave a figure. Choose another sweep.")
    st.stop()
if borrowed:
    st.caption(terms.outside(f"Tokens per step of {donor}: its cell with {borrowed[1]}."))
with st.spinner("Predicting"):
    found = once(snapshot, "whatif", view.name, cell_id, change, freed, given_ms, donor, build=predicted)
if "reason" in found:
    st.info(f"There is no what-if for this cell: {terms.outside(found['reason'])}.")
    st.stop()

st.markdown("\n".join(f"- {terms.outside(sentence)}" for sentence in found["answer"]))
if found["frees the draft"]:
    st.caption(
        "Freed is what drafting costs each step. The fit's t_draft is the part that does not grow with K; direct times "
        "hold all of it. A hop is paid once a step at K ≥ 1, there and back, with the time that the other host drafts: "
        "with a hop of 0 the figures are an upper bound."
    )
show.chart(found["chart"], key="whatif")
show.table(found["table"])
st.caption(
    "Figures in brackets are 95% intervals; n: runs. "
    + (f"{terms.outside(found['method'])}." if found["method"] else "Single figures have no interval.")
)

st.header("Where the answer turns", anchor=False)
if found["along"] is None:
    st.info("Nothing to search: no depth has a figure under this change.")
else:
    show.chart(found["along"], key="turns")
    st.caption("Point figures: geometric means over runs. The dashed level is the fastest depth as measured.")

more = link.more("heldout", "How well are depths predicted from each other?")
if more.open:
    with more:
        st.markdown(
            "Each inner depth is left out and predicted from the others: the cycle by a curve through them, tokens per "
            "step from the survival curve. The error's interval is over blocks."
        )
        held = once(snapshot, "held out", view.name, cell_id, build=held_out)
        if held is None:
            st.info("No depth has a measured depth above 0 on both sides.")
        else:
            show.table(held)
