"""The runs of a sweep in the order they were started."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from backend import charts
from pages.parts import show, terms
from pages.parts.frame import View
from pages.parts.once import once


def state_of(runs: pd.DataFrame) -> pd.Series:
    """A run's end as the chart tells them apart: its status, or "excluded" where it is done but not valid."""
    return runs["status"].where(runs["valid"] | (runs["status"] != "done"), "excluded")


def draw(view: View, *, key: str) -> None:
    """The chart; a sentence where runs have no order (published figures) or there are none."""
    runs = view.snapshot.of_sweep("runs", view.name)
    ordered = runs.dropna(subset=["order_index"])
    if ordered.empty:
        st.caption(
            "These figures have no run order: they were published, not run here."
            if len(runs)
            else "No run has been stored yet."
        )
        return
    show.chart(once(view.snapshot, "order", view.name, build=lambda: _drawn(ordered)), key=key)


def names(view: View) -> dict[str, str]:
    """Every run's id, and its name for a select box: order, K, block, end."""
    return once(view.snapshot, "run names", view.name, build=lambda: _names(view.snapshot.of_sweep("runs", view.name)))


def _names(runs: pd.DataFrame) -> dict[str, str]:
    return {
        str(run["run_id"]): ("" if pd.isna(run["order_index"]) else f"{run['order_index']:g}: ")
        + f"K={run['k']}"
        + ("" if pd.isna(run["block"]) else f", block {run['block']:g}")
        + f", {state}"
        for (_, run), state in zip(runs.iterrows(), state_of(runs), strict=True)
    }


def _drawn(ordered: pd.DataFrame) -> show.Chart:
    ordered = ordered.assign(state=state_of(ordered))
    ordered["hover"] = [
        show.run_hover(
            run,
            charts.STATUS[run["state"]][2]
            + (", anchor" if run["role"] == "anchor" else "")
            + (f": {run['reason']}" if isinstance(run["reason"], str) else ""),
        )
        for _, run in ordered.iterrows()
    ]
    ends = ", ".join(f"{count} {charts.STATUS[state][2]}" for state, count in ordered["state"].value_counts().items())
    return show.Chart(charts.run_order(ordered), f"{terms.plural(len(ordered), 'run')} in order: {ends}")
