"""Charts and tables as every page shows them."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from pages.parts import link, terms

CHART_CONFIG = {
    "displaylogo": False,
    "scrollZoom": False,
    "doubleClick": "reset",
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
}


def chart(figure: go.Figure, alt: str, *, key: str) -> None:
    """A figure with a text that states what it shows, for screen readers."""
    svg = st.query_params.get(link.IMAGE) == "svg"
    image = {"format": "svg" if svg else "png", "scale": 1 if svg else 2, "filename": f"sounding-{key}"}
    st.plotly_chart(figure, config={**CHART_CONFIG, "toImageButtonOptions": image}, alt=alt, key=key)


def table(frame: pd.DataFrame, alt: str) -> None:
    """A short table that is read, not worked with: plain HTML, no index."""
    told = frame.loc[:, [bool((frame[column].astype(str) != "").any()) for column in frame]]  # no empty columns
    told = told.map(lambda value: terms.outside(value) if isinstance(value, str) else value)
    st.table(told, hide_index=True, border="horizontal", alt=alt)


def run_hover(run: pd.Series, text: str) -> str:
    """The hover of a single run: figure, K, where in the order, and its name."""
    block = "" if pd.isna(run["block"]) else f", block {run['block']:g}"
    order = "" if pd.isna(run["order_index"]) else f", run {run['order_index']:g} in order"
    return f"<b>K={int(run['k'])}</b>{block}{order}<br>{text}<br>{run['run_id']}"
