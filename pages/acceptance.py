"""Acceptance: how many drafts survive at which position, and whether depth itself changes that."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from backend.charts import Axis
from backend.charts import acceptance as drawn
from pages.parts import depth_effect, frame, link, show, terms
from pages.parts.once import once

RATES = {  # attribute of PositionRates -> (axis, what it is)
    "survival": (Axis("Survival", "1", 3), "Drafts accepted at the position, over the steps that carried a draft."),
    "conditional": (Axis("Conditional acceptance", "1", 3), "Survival over the survival of the position before."),
    "per_drafted": (Axis("Acceptance where drafted", "1", 3), "Accepted over the steps that drafted the position."),
}
MOST_LINES = 8  # of a chart at first: more lie over each other
LENGTH = Axis("Acceptance length", "tokens", 3)
SHARE = Axis("Share of drafted steps", "1", 3)

view = frame.open_page("Acceptance")
frame.source_badge(view.sweep)
cell_id = frame.choose_cell(view)
if cell_id is None:
    frame.no_figures(view)
these = (view.snapshot, "acceptance", view.name, cell_id)
depths = {found.k: found for found in view.snapshot.accepted(view.name, cell_id)}
if not depths:
    st.info(
        "No acceptance by draft position is known here: no depth above 0 was measured, or the engine did not report "
        "what its steps accepted."
    )
    st.stop()

left, right = st.columns(2)
with left:
    rate = link.one("rate", "Rate", list(RATES), "survival", words=lambda name: RATES[name][0].label)
with right:
    names = [str(k) for k in depths]
    at_first = names if len(names) <= MOST_LINES else names[:: -(-len(names) // MOST_LINES)]
    chosen = link.some("k", "Depths K", names, at_first)
axis, meaning = RATES[rate]


def rates() -> dict[str, Any]:
    """The chosen rate by position as lines and as a map; why there is none."""
    points = pd.DataFrame(
        [
            terms.estimate_row(getattr(position, rate), k=k, position=position.position, about=cell_id)
            for k, found in depths.items()
            for position in found.positions
        ]
    )
    shown = points[points["k"].astype(str).isin(chosen)]
    if shown["value"].isna().all():
        return {"missing": "" if shown.empty else str(shown["reason"].iloc[0])}
    first = shown[(shown["position"] == 0) & shown["value"].notna()]
    told = "; ".join(f"K={int(p['k'])}: {axis.words(p['value'], p['low'], p['high'])}" for _, p in first.iterrows())
    lines = f"{axis.label} by draft position. At position 0: {told or 'not known'}. The table has every figure."
    known = shown.dropna(subset=["value"]).sort_values(["k", "position"])
    ends = known.groupby("k").agg(last=("position", "last"), first=("value", "first"), value=("value", "last"))
    falls = "; ".join(
        f"K={k} {axis.words(e['first'])} to {axis.words(e['value'])} at {int(e['last'])}" for k, e in ends.iterrows()
    )
    heat = f"{axis.label} by depth K and draft position, from position 0 to the last: {falls}."
    return {
        "lines": show.Chart(drawn.position_lines(shown, axis), lines),
        "heat": show.Chart(drawn.rate_heat_map(shown, axis), heat),
    }


def every_rate() -> show.Table:
    """All rates, whatever is chosen."""
    rows = [
        {
            "K": k,
            "Position": position.position,
            **{shape.label: terms.figure(getattr(position, name), shape) for name, (shape, _) in RATES.items()},
            "n": link.runs_behind(position.survival.n, view.name, k, cell_id),
            "Why no interval": position.survival.reason or "",
        }
        for k, found in depths.items()
        for position in found.positions
    ]
    return show.Table(pd.DataFrame(rows), "Survival, conditional and per-drafted rates of every depth and position")


st.caption(f"{axis.label}: {meaning} Positions count from 0.")
by_position = once(*these, "rates", rate, tuple(chosen), build=rates)
if "missing" in by_position:
    why = by_position["missing"]
    st.info(f"{axis.label} is not known: {terms.outside(why)}." if why else "Choose at least one depth.")
else:
    for place, name in zip(st.columns([3, 2], gap="medium"), ("lines", "heat"), strict=True):
        with place:
            show.chart(by_position[name], key=name)

more = link.more("rates", "Every rate as a table")
if more.open:
    with more:
        show.table(once(*these, "every rate", build=every_rate))
        st.caption(
            "95% intervals in brackets, over prompts (n): greedy repeats of a prompt are copies, not observations. "
            "n leads to the runs."
        )

counted = {k: found for k, found in depths.items() if found.lengths}
st.header("How many drafts a step accepts", anchor=False)


def lengths() -> show.Chart:
    """How many drafts the steps of one depth accept."""
    rows = pd.DataFrame(
        [terms.estimate_row(share, k=deep, accepted=j, about=cell_id) for j, share in enumerate(found.lengths)]
    )
    shares = "; ".join(f"{j}: {SHARE.words(share.value)}" for j, share in enumerate(found.lengths))
    return show.Chart(drawn.length_histogram(rows, SHARE), f"Share of steps by accepted drafts at K={deep}. {shares}")


if counted:
    deep = int(link.one("length", "Depth", [str(k) for k in counted], str(max(counted)), words=lambda k: f"K={k}"))
    found = counted[deep]
    show.chart(once(*these, "lengths", deep, build=lengths), key="hist")
    length = found.acceptance_length
    st.caption(
        f"Acceptance length {LENGTH.words(length.value, length.low, length.high)}: 1 + accepted drafts per drafted "
        f"step, over {terms.plural(found.drafted_steps, 'step')} of {terms.plural(length.n, 'prompt')}."
    )
else:
    told = "; ".join(
        f"K={k}: {LENGTH.words(found.acceptance_length.value)}"
        for k, found in depths.items()
        if found.acceptance_length.value is not None
    )
    st.info(f"Only rates were reported, not steps. Acceptance length: {told or 'not known'}.")

more = link.more("effect", "Does depth itself change acceptance?", holds=("against", "position"))
if more.open:
    with more:
        depth_effect.draw(view, cell_id, depths)
