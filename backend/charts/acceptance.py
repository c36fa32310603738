"""Acceptance by draft position, the length of accepted drafts, and what depth does to acceptance."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from backend.charts.style import (
    COLOURS,
    DASHES,
    INK,
    MARKERS,
    NEUTRAL,
    Axis,
    depth_axis,
    error_bars,
    finish,
    point_hover,
    whole_ticks,
)

# Sequential, one hue: pale is rarely accepted. INK is readable (5:1 and more) on all of it, in light and dark themes.
SHADES = [[0.0, "#eef5fb"], [1.0, "#4a9bd4"]]
DODGE = 0.07  # of a position or depth, so that intervals at one place do not cover each other


def _spread(index: int, count: int) -> float:
    return (index - (count - 1) / 2) * min(DODGE, 0.6 / max(count, 1))


def position_lines(points: pd.DataFrame, axis: Axis, *, height: int = 420) -> go.Figure:
    """A rate against draft position, a line a depth: k, position, value, low, high, n, reason."""
    figure = go.Figure()
    groups = list(points.groupby("k", sort=True))
    for index, (k, unsorted) in enumerate(groups):
        rows = unsorted.sort_values("position")
        colour = COLOURS[index % len(COLOURS)]
        figure.add_scatter(
            x=rows["position"] + _spread(index, len(groups)),
            y=rows["value"],
            error_y=error_bars(rows, colour),
            mode="lines+markers",
            name=f"K={k}",
            connectgaps=False,
            line={"color": colour, "width": 2, "dash": DASHES[index % len(DASHES)]},
            # a seventh depth has the first one's colour, so it gets another marker
            marker={"color": colour, "size": 8, "symbol": MARKERS[(index + index // len(COLOURS)) % len(MARKERS)]},
            text=[point_hover(row, axis, f"position {int(row['position'])}") for _, row in rows.iterrows()],
            hovertemplate="%{text}<extra></extra>",
        )
    deepest = int(points["position"].max()) if len(points) else 0
    figure.update_xaxes(title="Draft position (from 0)", **whole_ticks(deepest))
    figure.update_xaxes(range=[-0.4, deepest + 0.4])
    figure.update_yaxes(title=axis.title, rangemode="tozero")
    return finish(figure, height, legend=True).update_layout(margin={"t": 64})  # a legend of two rows


def rate_heat_map(points: pd.DataFrame, axis: Axis, *, height: int = 420) -> go.Figure:
    """The same rate as a map: depth K upwards, draft position to the right; what was not measured stays empty."""
    depths = sorted({int(k) for k in points["k"]})
    positions = list(range(int(points["position"].max()) + 1)) if len(points) else []
    cells = {(int(row["k"]), int(row["position"])): row for _, row in points.iterrows()}

    def value(k: int, position: int) -> float | None:
        row = cells.get((k, position))
        return None if row is None or pd.isna(row["value"]) else float(row["value"])

    def hover(k: int, position: int) -> str:
        row = cells.get((k, position))
        return "" if row is None else point_hover(row, axis, f"position {position}")

    values = [[value(k, i) for i in positions] for k in depths]
    figure = go.Figure(
        go.Heatmap(
            x=positions,
            y=[str(k) for k in depths],
            z=values,
            zmin=0,
            zmax=1,
            colorscale=SHADES,
            showscale=False,
            xgap=2,
            ygap=2,
            hoverongaps=False,
            text=[["" if z is None else f"{z:.{axis.digits - 1}f}" for z in row] for row in values],
            texttemplate="%{text}" if len(positions) <= 12 else None,  # narrower fields have no room for it
            textfont={"color": INK},
            customdata=[[hover(k, i) for i in positions] for k in depths],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    figure.update_xaxes(title="Draft position (from 0)", **whole_ticks(len(positions)), showgrid=False)
    figure.update_yaxes(title="Draft depth K", type="category", showgrid=False)
    return finish(figure, height, legend=False)


def length_histogram(lengths: pd.DataFrame, axis: Axis, *, height: int = 340) -> go.Figure:
    """Share of drafted steps by the number of drafts they accepted: accepted, value, low, high, n, reason, k."""
    figure = go.Figure()
    figure.add_bar(
        x=lengths["accepted"],
        y=lengths["value"],
        error_y=error_bars(lengths, NEUTRAL),
        marker={"color": COLOURS[0]},
        text=[point_hover(row, axis, f"{int(row['accepted'])} accepted") for _, row in lengths.iterrows()],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
    )
    figure.update_xaxes(title="Drafts accepted in a step", **whole_ticks(len(lengths)))
    figure.update_yaxes(title=axis.title, rangemode="tozero")
    return finish(figure, height, legend=False)


def depth_effects(points: pd.DataFrame, axis: Axis, names: Sequence[str], *, height: int = 420) -> go.Figure:
    """Differences against one depth, a mark a K and series in the order of `names`: series, k, value, low, high, n,
    reason. The dotted line is no effect."""
    figure = go.Figure()
    figure.add_hline(y=0, line={"color": NEUTRAL, "width": 1.5, "dash": "dot"})
    there = [name for name in names if (points["series"] == name).any()]
    for index, name in enumerate(there):
        rows = points[points["series"] == name].sort_values("k")
        colour = COLOURS[index]
        figure.add_scatter(
            x=rows["k"] + 1.6 * _spread(index, len(there)),
            y=rows["value"],
            error_y=error_bars(rows, colour),
            mode="markers",
            name=name,
            marker={"color": colour, "size": 9, "symbol": MARKERS[index]},
            text=[point_hover(row, axis, name) for _, row in rows.iterrows()],
            hovertemplate="%{text}<extra></extra>",
        )
    depth_axis(figure, [int(k) for k in points["k"]] or [0, 1])
    figure.update_yaxes(title=axis.title)
    return finish(figure, height, legend=True).update_layout(margin={"l": 76})  # its ticks have a sign
