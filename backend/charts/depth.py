"""A quantity against draft depth K."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from backend.charts.style import (
    COLOURS,
    DASHES,
    MARKERS,
    NEUTRAL,
    Axis,
    depth_axis,
    depth_names,
    error_bars,
    finish,
    point_hover,
)


def depth_curve(
    points: pd.DataFrame,
    axis: Axis,
    *,
    name: str = "",
    runs: pd.DataFrame | None = None,
    reference: float | None = None,
    reference_name: str = "K=0",
    marked: int | None = None,
    marked_name: str = "",
    within: Sequence[int] = (),
    within_name: str = "within 1% of the best",
    about: str = "",
    legend: bool = True,
    height: int = 420,
) -> go.Figure:
    """A quantity against K with intervals; single `runs` (k, value, hover) behind; a dashed `reference` line.

    `points` is an estimate table; `marked` rings one K, `within` those that are as good. Depths without a value are
    gaps, named under the axis. `about`, or a column of that name: the hover's last line (sweep, cell).
    Without `legend`, a chart beside it names the same marks.
    """
    figure = go.Figure()
    points = points.assign(series=points.get("series", name))
    if runs is not None and len(runs):
        figure.add_scatter(
            x=runs["k"],
            y=runs["value"],
            mode="markers",
            name="single runs",
            text=runs["hover"],
            hovertemplate="%{text}<extra></extra>",
            marker={"color": NEUTRAL, "size": 6, "opacity": 0.6},
        )
    gaps: list[str] = []
    groups = list(points.groupby("series", sort=False))
    for index, (series, unsorted) in enumerate(groups):
        rows = unsorted.sort_values("k")
        colour = COLOURS[index % len(COLOURS)]
        figure.add_scatter(
            x=rows["k"],
            y=rows["value"],
            error_y=error_bars(rows, colour),
            mode="lines+markers",
            name=str(series),
            connectgaps=False,
            line={"color": colour, "width": 2, "dash": DASHES[index % len(DASHES)]},
            marker={"color": colour, "size": 9, "symbol": MARKERS[index % len(MARKERS)]},
            text=[point_hover(row, axis, str(series), str(row.get("about", about))) for _, row in rows.iterrows()],
            hovertemplate="%{text}<extra></extra>",
        )
        missing = [int(k) for k in rows.loc[rows["value"].isna(), "k"]]
        if missing:
            gaps.append(f"no value at {depth_names(missing)}" + (f" ({series})" if len(groups) > 1 else ""))
        _ring(figure, rows[rows["k"].isin(within)], within_name, COLOURS[2], "square", 17)
        _ring(figure, rows[rows["k"] == marked], marked_name, COLOURS[1], "circle", 22)
    if reference is not None:
        figure.add_hline(
            y=reference,
            line={"color": NEUTRAL, "dash": "dash", "width": 1.5},
            annotation_text=f"{reference_name}: {axis.words(reference)}",
            annotation_position="bottom right",
        )
    depth_axis(figure, [int(k) for k in points["k"]], "; ".join(gaps))
    figure.update_yaxes(title=axis.title)
    several = len(groups) > 1 or (runs is not None and len(runs) > 0) or marked is not None or len(within) > 0
    return finish(figure, height, legend=legend and several)


def _ring(figure: go.Figure, points: pd.DataFrame, name: str, colour: str, symbol: str, size: int) -> None:
    """Open marks around points; shape and colour both tell one kind from another."""
    there = points.dropna(subset=["value"])
    if len(there):
        figure.add_scatter(
            x=there["k"],
            y=there["value"],
            mode="markers",
            name=name,
            hoverinfo="skip",
            marker={"color": "rgba(0,0,0,0)", "size": size, "symbol": symbol, "line": {"color": colour, "width": 2.5}},
        )
