"""Power and clocks of a run over time, a line a node and sensor; what was measured is shaded."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from backend.charts.style import COLOURS, DASHES, NEUTRAL, Axis, finish


def over_time(points: pd.DataFrame, spans: pd.DataFrame, axis: Axis, *, height: int = 320) -> go.Figure:
    """A quantity over a run: points (series, t_s, value; a gap where it is missing), spans (begin_s, end_s, name)."""
    figure = go.Figure()
    for _, span in spans.iterrows():
        figure.add_vrect(
            x0=span["begin_s"],
            x1=span["end_s"],
            line_width=0,
            fillcolor=NEUTRAL,
            opacity=0.12,
            layer="below",
            annotation_text=span["name"],
            annotation_position="bottom left",
        )
    for index, (series, rows) in enumerate(points.groupby("series", sort=False)):
        figure.add_scatter(
            x=rows["t_s"],
            y=rows["value"],
            mode="lines+markers" if len(rows) <= 60 else "lines",
            name=str(series),
            connectgaps=False,
            line={"color": COLOURS[index % len(COLOURS)], "width": 1.6, "dash": DASHES[index % len(DASHES)]},
            marker={"size": 4},
            hovertemplate=f"{series}<br>%{{x:.1f}} s: %{{y:.{axis.digits}f}} {axis.unit}<extra></extra>",
        )
    figure.update_xaxes(title="Time since the first measured request (s)")
    figure.update_yaxes(title=axis.title, rangemode="tozero")
    finish(figure, height, legend=points["series"].nunique() > 1)
    return figure.update_layout(margin={"t": 48})
