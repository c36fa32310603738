"""Where a cycle goes: stacked parts by depth, the spread of single steps, and direct times with their line."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from backend.charts.style import COLOURS, NEUTRAL, Axis, depth_axis, error_bars, finish, point_hover, whole_ticks

PATTERNS = ("", "/", "x", ".", "\\", "-", "|", "+")  # beside the colours, for readers who do not tell them apart


def stacked_parts(parts: pd.DataFrame, axis: Axis, *, cycle: pd.DataFrame, height: int = 440) -> go.Figure:
    """Bars of `parts` (k, part, value, hover) on each other by depth; `cycle` (an estimate table) marks the whole.

    A part without a value is no bar. Where the marks stand above the bars, the books do not close.
    """
    figure = go.Figure()
    for index, (part, rows) in enumerate(parts.groupby("part", sort=False)):
        figure.add_bar(
            x=rows["k"],
            y=rows["value"],
            name=str(part),
            text=rows["hover"],
            textposition="none",
            hovertemplate="%{text}<extra></extra>",
            marker={
                "color": COLOURS[index % len(COLOURS)],
                # "overlay": the pattern lies on the colour; by default it replaces it, white on the page's white
                "pattern": {
                    "shape": PATTERNS[index % len(PATTERNS)],
                    "fillmode": "overlay",
                    "fgcolor": "rgba(255,255,255,0.55)",
                    "size": 7,
                },
                "line": {"width": 0},
            },
            width=0.62,
        )
    figure.add_scatter(
        x=cycle["k"],
        y=cycle["value"],
        error_y=error_bars(cycle, NEUTRAL),
        mode="markers",
        name="cycle, engine's clock",
        marker={"color": NEUTRAL, "size": 10, "symbol": "line-ew-open", "line": {"width": 3}},
        text=[point_hover(row, axis, "cycle, engine's clock") for _, row in cycle.iterrows()],
        hovertemplate="%{text}<extra></extra>",
    )
    figure.update_layout(barmode="stack")
    depth_axis(figure, [int(k) for k in cycle["k"]])
    figure.update_yaxes(title=axis.title, rangemode="tozero")
    return finish(figure, height, legend=True)


def step_spread(quantiles: pd.DataFrame, axis: Axis, *, about: str = "", height: int = 360) -> go.Figure:
    """Boxes of single steps by depth: k, p05, p25, p50, p75, p95, steps. Whiskers end at 5% and 95%, so no outliers.

    `about`: the end of the hover (sweep, cell).
    """
    figure = go.Figure()
    for _, row in quantiles.iterrows():
        figure.add_box(
            x=[row["k"]],
            q1=[row["p25"]],
            median=[row["p50"]],
            q3=[row["p75"]],
            lowerfence=[row["p05"]],
            upperfence=[row["p95"]],
            name=", ".join(filter(None, (f"K={int(row['k'])}", f"n={int(row['steps'])} steps", about))),
            marker_color=COLOURS[0],
            fillcolor="rgba(43, 123, 186, 0.25)",
            width=0.5,
            hoverinfo="y+name",
            hoverlabel={"namelength": -1},
            showlegend=False,
        )
    depth_axis(figure, [int(k) for k in quantiles["k"]])
    figure.update_yaxes(title=axis.title, rangemode="tozero")
    return finish(figure, height, legend=False)


def position_costs(positions: pd.DataFrame, axis: Axis, *, height: int = 360) -> go.Figure:
    """What every draft position costs, a line a depth: k, position, value, low, high, n, reason."""
    figure = go.Figure()
    for index, (k, unsorted) in enumerate(positions.groupby("k", sort=True)):
        rows, colour = unsorted.sort_values("position"), COLOURS[index % len(COLOURS)]
        figure.add_scatter(
            x=rows["position"],
            y=rows["value"],
            error_y=error_bars(rows, colour),
            mode="lines+markers",
            name=f"K={k}",
            line={"color": colour, "width": 2},
            marker={"color": colour, "size": 8},
            text=[point_hover(row, axis, f"position {int(row['position'])}") for _, row in rows.iterrows()],
            hovertemplate="%{text}<extra></extra>",
        )
    deepest = int(positions["position"].max()) if len(positions) else 0
    figure.update_xaxes(title="Draft position (from 0)", **whole_ticks(deepest))
    figure.update_yaxes(title=axis.title, rangemode="tozero")
    return finish(figure, height, legend=True)
