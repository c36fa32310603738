"""How the intervals of a sweep get narrower as its blocks finish, beside what its [stop] asks for."""

from __future__ import annotations

import tomllib

import pandas as pd
import streamlit as st

from backend import charts
from backend.analysis.stopping import tightening, with_pilot
from backend.charts import Axis
from backend.errors import StoreError
from pages.parts import reader, show, terms
from pages.parts.once import once

WIDTH = Axis("Half-width of the 95% interval", "%", 1)
DECIDED = "stop-decided"
EVERY_S = 10


@st.fragment(run_every=EVERY_S)
def follow(sweep: str) -> None:
    """Draw the newest snapshot's intervals; runs again every ten seconds, alone."""
    try:
        snapshot = reader.current()
        rows = snapshot.of_sweep("run_cells", sweep)
        findings = snapshot.of_sweep("findings", sweep)
        every = snapshot.sweeps()
    except StoreError:  # the snapshot is being replaced: the next turn reads it
        return
    spec_toml = every.loc[every["sweep"] == sweep, "spec_toml"].squeeze()
    st.subheader("Intervals so far", anchor=False)
    decided = findings.loc[findings["code"] == DECIDED, "message"]
    if len(decided):
        st.markdown(terms.outside(terms.sentences(str(decided.iloc[0]))))
    cells = terms.cell_names(snapshot.of_sweep("cells", sweep))
    shown = False
    for cell_id, name in cells.items():
        own = rows[rows["cell_id"] == cell_id]
        drawn = once(snapshot, "tightening", sweep, cell_id, build=lambda own=own: _drawn(own, sweep, spec_toml))
        if drawn is None:
            continue
        shown = True
        if len(cells) > 1:
            st.caption(terms.outside(name))
        chart, method = drawn
        show.chart(chart, key=f"tightening-{cell_id}")
        st.caption(f"Decode throughput of each depth, in % of its mean. Last: {method}.")
    if not shown:
        st.caption("No interval yet: it takes two blocks with a throughput of the same depth.")


def _drawn(rows: pd.DataFrame, sweep: str, spec_toml: str) -> tuple[show.Chart, str] | None:
    """The intervals of one cell, and what the last of them are; None where there is none yet."""
    table = tightening(with_pilot(rows, spec_toml))
    if table.empty:
        return None
    widths = table.rename(columns={"half_width_percent": "half_width"})[["k", "blocks", "half_width"]]
    last = widths.groupby("k").last()
    told = "; ".join(
        f"K={int(str(k))}: {WIDTH.words(row['half_width'])} after {row['blocks']:g}" for k, row in last.iterrows()
    )
    about = str(rows["cell_id"].iloc[0])
    alt = f"Half-width of the interval of decode throughput of {sweep} by blocks finished. {told}"
    return show.Chart(charts.tightening(widths, WIDTH, target=_target(spec_toml), about=about), alt), str(
        table["method"].iloc[-1]
    )


def _target(spec_toml: object) -> float | None:
    """The half-width of decode tok/s that [stop] asks for, %; None where it does not."""
    try:
        stop = tomllib.loads(spec_toml).get("stop", {}) if isinstance(spec_toml, str) else {}
    except tomllib.TOMLDecodeError:
        return None
    asked = stop.get("decode_tok_s_percent")
    return float(asked) if isinstance(asked, int | float) else None
