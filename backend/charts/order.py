"""Runs in the order they were started, and how they ended."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from backend.charts.style import COLOURS, DASHES, MARKERS, NEUTRAL, Axis, error_bars, finish

STATUS = {  # how a run ended -> (marker, colour, words)
    "done": ("circle", COLOURS[0], "done"),
    "excluded": ("circle-open", COLOURS[0], "done, excluded"),
    "running": ("star", COLOURS[2], "running"),
    "failed": ("x", COLOURS[1], "failed"),
    "interrupted": ("triangle-down-open", COLOURS[1], "interrupted"),
}


def over_order(points: pd.DataFrame, axis: Axis, *, height: int = 260) -> go.Figure:
    """A figure of every run in run order: order_index, value, series, hover; optional low, high. A line a series."""
    figure = go.Figure()
    for index, (series, unsorted) in enumerate(points.groupby("series", sort=True)):
        rows = unsorted.sort_values("order_index")
        colour = COLOURS[index % len(COLOURS)]
        figure.add_scatter(
            x=rows["order_index"],
            y=rows["value"],
            error_y=error_bars(rows, colour) if "low" in rows else None,
            mode="lines+markers",
            name=str(series),
            connectgaps=False,
            line={"color": colour, "width": 1.5, "dash": DASHES[index % len(DASHES)]},
            marker={"color": colour, "size": 8, "symbol": MARKERS[index % len(MARKERS)]},
            text=rows["hover"],
            hovertemplate="%{text}<extra></extra>",
        )
    figure.update_xaxes(title="Run order")
    figure.update_yaxes(title=axis.title)
    return finish(figure, height, legend=points["series"].nunique() > 1)


def run_order(runs: pd.DataFrame, *, height: int = 320) -> go.Figure:
    """Runs in the order they were started: order_index, k, block, role, state (a key of STATUS), hover.

    Blocks are shaded; anchors, which no figure counts, have a ring.
    """
    figure = go.Figure()
    for number, (_, rows) in enumerate(runs.dropna(subset=["block"]).groupby("block")):
        if number % 2 == 0:
            figure.add_vrect(
                x0=rows["order_index"].min() - 0.5,
                x1=rows["order_index"].max() + 0.5,
                line_width=0,
                fillcolor=NEUTRAL,
                opacity=0.12,
                layer="below",
            )
        figure.add_annotation(
            x=rows["order_index"].mean(),
            y=1.0,
            yref="paper",
            yanchor="bottom",
            showarrow=False,
            text=f"block {rows['block'].iloc[0]:g}",
        )
    for state, (symbol, colour, words) in STATUS.items():
        rows = runs[runs["state"] == state]
        if len(rows):
            figure.add_scatter(
                x=rows["order_index"],
                y=rows["k"],
                mode="markers",
                name=words,
                text=rows["hover"],
                hovertemplate="%{text}<extra></extra>",
                marker={"symbol": symbol, "color": colour, "size": 11, "line": {"width": 2, "color": colour}},
            )
    anchors = runs[runs["role"] == "anchor"]
    if len(anchors):
        figure.add_scatter(
            x=anchors["order_index"],
            y=anchors["k"],
            mode="markers",
            name="anchor: for drift, in no figure",
            hoverinfo="skip",
            marker={"symbol": "circle-open", "color": NEUTRAL, "size": 20, "line": {"width": 2}},
        )
    figure.update_xaxes(title="Run order")
    figure.update_yaxes(title="Draft depth K", tickmode="linear", tick0=0, dtick=1)
    finish(figure, height, legend=True)
    return figure.update_layout(legend={"y": 1.1}, margin={"t": 64})
