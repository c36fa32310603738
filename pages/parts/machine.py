"""The machine over a sweep: canaries and clocks, run by run."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from backend import charts
from backend.charts import Axis
from pages.parts import show, terms
from pages.parts.frame import View

CANARY = Axis("Canary", "ms", 2)
CLOCK = Axis("SM clock", "MHz", 0)


def over_time(view: View) -> None:
    """Canaries and clocks in run order; a sentence for what was not recorded."""
    st.header("The machine over the sweep", anchor=False)
    canaries = view.snapshot.of_sweep("canaries", view.name)
    clocks = view.snapshot.of_sweep("clocks", view.name)
    _canaries(canaries)
    _clocks(clocks)


def _canaries(canaries: pd.DataFrame) -> None:
    known = canaries.dropna(subset=["duration_s", "order_index"])
    if known.empty:
        why = sorted(set(canaries["reason"].dropna())) if len(canaries) else []
        st.caption(
            "No canary (a fixed small computation timed around every run) was recorded"
            + (f": {'; '.join(why)}." if why else ": the sweep's specification asks for none, or it was not run here.")
        )
        return
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
    show.chart(charts.over_order(known, CANARY), f"Canaries in run order. {told}", key="canary")
    st.caption(
        "A canary is a fixed small computation, timed before and after every run. A level that moves is a machine that "
        f"changed, whatever the depth. {told}."
    )


def _clocks(clocks: pd.DataFrame) -> None:
    known = clocks.dropna(subset=["order_index"])
    drawn = known.dropna(subset=["sm_clock_mhz"])
    if drawn.empty:
        st.caption("No clock was recorded: no sensor of this machine tells one, or none was asked.")
    else:
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
        show.chart(charts.over_order(drawn, CLOCK), f"SM clock in run order: {told}", key="clocks")
        st.caption(f"SM clock while a run measured: median, and 5% to 95% of its samples. Over the runs: {told}.")
    hot = known.dropna(subset=["temp_c"])
    if len(hot):
        st.caption(f"Highest temperature of a run: {hot['temp_c'].min():.0f} to {hot['temp_c'].max():.0f} °C.")
