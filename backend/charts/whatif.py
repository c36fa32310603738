"""Throughput of every depth as a cost grows: where lines cross, another depth is the fastest."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from backend.charts.style import COLOURS, DASHES, NEUTRAL, Axis, finish


def against_cost(
    lines: pd.DataFrame,
    axis: Axis,
    *,
    cost: Axis,
    reference: float | None = None,
    reference_name: str = "",
    marked: float | None = None,
    marked_name: str = "",
    about: str = "",
    height: int = 360,
) -> go.Figure:
    """`lines` (k, cost, value) as one line a depth over the cost; a dashed level `reference` and upright `marked`.

    `about`: the hover's last line (sweep, cell).
    """
    figure = go.Figure()
    last = f"<br>{about}" if about else ""
    for index, (k, rows) in enumerate(lines.groupby("k", sort=True)):
        dash = DASHES[(index + index // len(COLOURS)) % len(DASHES)]  # the second round of colours has other dashes
        figure.add_scatter(
            x=rows["cost"],
            y=rows["value"],
            mode="lines",
            name=f"K={int(str(k))}",
            line={"color": COLOURS[index % len(COLOURS)], "width": 2, "dash": dash},
            hovertemplate=(
                f"K={int(str(k))}: %{{y:.{axis.digits}f}} {axis.unit} at %{{x:.2f}} {cost.unit}{last}<extra></extra>"
            ),
        )
    if reference is not None:
        figure.add_hline(
            y=reference,
            line={"color": NEUTRAL, "dash": "dash", "width": 1.5},
            annotation_text=reference_name,
            annotation_position="bottom right",
        )
    if marked is not None:
        figure.add_vline(
            x=marked,
            line={"color": NEUTRAL, "dash": "dot", "width": 1.5},
            annotation_text=marked_name,
            annotation_position="top left",
        )
    figure.update_xaxes(title=cost.title)
    figure.update_yaxes(title=axis.title)
    return finish(figure, height, legend=True)


def tightening(
    widths: pd.DataFrame, axis: Axis, *, target: float | None = None, about: str = "", height: int = 300
) -> go.Figure:
    """Half-width of every depth's interval over the blocks so far: `widths` (k, blocks, half_width).

    `about`: the hover's last line (sweep, cell).
    """
    figure = go.Figure()
    last = f"<br>{about}" if about else ""
    for index, (k, rows) in enumerate(widths.groupby("k", sort=True)):
        dash = DASHES[(index + index // len(COLOURS)) % len(DASHES)]
        figure.add_scatter(
            x=rows["blocks"],
            y=rows["half_width"],
            mode="lines+markers",
            name=f"K={int(str(k))}",
            line={"color": COLOURS[index % len(COLOURS)], "width": 2, "dash": dash},
            hovertemplate=f"K={int(str(k))}, %{{x}} blocks: +/- %{{y:.{axis.digits}f}}{axis.unit}{last}<extra></extra>",
        )
    if target is not None:
        figure.add_hline(
            y=target,
            line={"color": NEUTRAL, "dash": "dash", "width": 1.5},
            annotation_text=f"asked for: {axis.words(target)}",
            annotation_position="top right",
        )
    figure.update_xaxes(title="Blocks finished", tickmode="linear", tick0=0, dtick=max(1, len(widths) // 60))
    figure.update_yaxes(title=axis.title, rangemode="tozero")
    return finish(figure, height, legend=True)
