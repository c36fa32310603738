"""Charts and tables as every page shows them.

Streamlit would convert a figure or a table anew for every reader and every rerun, which takes longer than all else of
a page. A `Chart` and a `Table` hold what is sent: pages make them once for a snapshot and a choice (`once`).
"""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pyarrow as pa
import streamlit as st
from plotly.io.json import to_json_plotly

from pages.parts import link, terms

CHART_CONFIG = {
    "displaylogo": False,
    "scrollZoom": False,
    "doubleClick": "reset",
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
}
# Titles, legend and ticks take the page's colour, which follows the reader's theme at once.
LOOK = """<style>
.js-plotly-plot :is(.infolayer, .xaxislayer-above, .yaxislayer-above) text { fill: currentColor !important; }
</style>"""


class _Sent(go.Figure):
    """What st.plotly_chart gets: it takes figures only, and of a figure only its dict."""

    def __init__(self, spec: dict[str, Any]) -> None:
        super().__init__()
        self._spec = spec

    def to_dict(self) -> dict[str, Any]:
        """The spec as it is; Plotly's own method copies and encodes the figure in every call."""
        return self._spec


class Chart:
    """A figure with a text that states what it shows, for screen readers."""

    def __init__(self, figure: go.Figure, alt: str) -> None:
        spec = {"data": [trace.to_plotly_json() for trace in figure.data], "layout": figure.layout.to_plotly_json()}
        # Streamlit hands each chart to Plotly twice. The second time costs nothing where Plotly can see that nothing
        # changed: with a revision, with plain lists, and without a template, which Streamlit's theme is as well.
        spec["layout"]["datarevision"] = 0
        spec["layout"].pop("template", None)
        self.figure, self.alt = _Sent(json.loads(to_json_plotly(spec))), alt


class Table:
    """A short table that is read, not worked with, and what it shows. It may hold texts of stored data."""

    def __init__(self, frame: pd.DataFrame, alt: str) -> None:
        told = frame.loc[:, [bool((frame[column].astype(str) != "").any()) for column in frame]]  # no empty columns
        told = told.map(lambda value: terms.outside(value) if isinstance(value, str) else value)
        self.rows, self.alt = pa.Table.from_pandas(told, preserve_index=False), alt


def chart(shown: Chart, *, key: str) -> None:
    """Draw a chart."""
    svg = st.query_params.get(link.IMAGE) == "svg"
    image = {"format": "svg" if svg else "png", "scale": 1 if svg else 2, "filename": f"sounding-{key}"}
    config = {**CHART_CONFIG, "toImageButtonOptions": image}
    st.plotly_chart(shown.figure, config=config, alt=shown.alt, key=key, theme=None)


def table(shown: Table) -> None:
    """Draw a table: plain HTML, no index."""
    st.table(shown.rows, hide_index=True, border="horizontal", alt=shown.alt)


def run_hover(run: pd.Series, text: str) -> str:
    """The hover of a single run: figure, K, where in the order, its name, and the cell where the row tells it."""
    block = "" if pd.isna(run["block"]) else f", block {run['block']:g}"
    order = "" if pd.isna(run["order_index"]) else f", run {run['order_index']:g} in order"
    lines = [f"<b>K={int(run['k'])}</b>{block}{order}", text, str(run["run_id"]), terms.known(run.get("cell_id"))]
    return "<br>".join(filter(None, lines))
