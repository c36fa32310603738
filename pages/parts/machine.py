"""The machine over a sweep: canaries and clocks, run by run."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from backend import charts
from backend.charts import Axis
from pages.parts import show, terms
from pages.parts.frame import View
from pages.parts.once import once

CANARY = Axis("Canary", "ms", 2)
CLOCK = Axis("SM clock", "MHz", 0)
Drawn = tuple[show.Chart | None, str]  # with its caption; no chart where nothing was recorded


def over_time(view: View) -> None:
    """Canaries and clocks in run order; a sentence for what was not recorded."""
    st.header("The machine over the sweep", anchor=False)
    for what, drawn in (("canaries", _canaries), ("clocks", _clocks)):
        chart, caption = once(
            view.snapshot,
            what,
            view.name,
            build=lambda what=what, drawn=drawn: drawn(view.snapshot.of_sweep(what, view.name)),
        )
        if chart is not None:
            show.chart(chart, key=what)
        st.caption(caption)


def _canaries(canaries: pd.DataFrame) -> Drawn:
    known = canaries.dropna(subset=["duration_s", "order_index"])
    if known.empty:
        why = sorted(set(canaries["reason"].dropna())) if len(canaries) else []
        said = terms.outside("; ".join(why)) or "the sweep's specification asks for none, or it was not run here"
        return None, f"No canary (a fixed small computation timed around every run) was recorded: {said}."
    known = known.assign(
        value=1000 * known["duration_s"],
        series=known["node"] + ", " + known["kind"] + ", " + known["moment"],
    )
    known["hover"] = [show.run_hover(c, f"{c['series']}: {CANARY.words(c['value'])}") for _, c in known.iterrows()]
    spread = known.groupby(["node", "kind"])["value"].agg(["min", "median", "max"])
    told = "; ".join(
        f"{node} {kind}: median {CANARY.words(row['median'])}, {row['min']:.2f} to {row['max']:.2f}"
        for (node, kind), row in spread.iterrows()
    )
    return (
        show.Chart(charts.over_order(known, CANARY), f"Canaries in run order. {told}"),
        "A canary is a fixed small computation, timed before and after every run. A level that moves is a machine that "
        f"changed, whatever the depth. {terms.outside(told)}.",
    )


def _clocks(clocks: pd.DataFrame) -> Drawn:
    known = clocks.dropna(subset=["order_index"])
    hot = known["temp_c"].dropna()
    heat = f" Highest temperature of a run: {hot.min():.0f} to {hot.max():.0f} °C." if len(hot) else ""
    drawn = known.dropna(subset=["sm_clock_mhz"])
    if drawn.empty:
        return None, f"No clock was recorded: no sensor of this machine tells one, or none was asked.{heat}"
    drawn = drawn.assign(
        value=drawn["sm_clock_mhz"],
        low=drawn["clock_low_mhz"],
        high=drawn["clock_high_mhz"],
        series=drawn["node"],
    )
    drawn["hover"] = [
        show.run_hover(
            c,
            f"{c['node']}: median {CLOCK.words(c['value'])}, 5% to 95% of the samples "
            f"{c['low']:.0f} to {c['high']:.0f}<br>{terms.plural(int(c['samples']), 'sample')}",
        )
        for _, c in drawn.iterrows()
    ]
    told = f"lowest median {CLOCK.words(drawn['value'].min())}, highest {CLOCK.words(drawn['value'].max())}"
    return (
        show.Chart(charts.over_order(drawn, CLOCK), f"SM clock in run order: {told}"),
        f"SM clock while a run measured: median, and 5% to 95% of its samples. Over the runs: {told}.{heat}",
    )
