"""The cycle fit: the line over one window, and how the fit drifts with the window."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from backend.charts.style import COLOURS, NEUTRAL, Axis, depth_axis, error_bars, finish


def cycle_fit(
    runs: pd.DataFrame,
    line: pd.DataFrame,
    axis: Axis,
    *,
    t_draft: float | None,
    window: str,
    about: str = "",
    height: int = 460,
) -> go.Figure:
    """Cycle time of every run (k, value, hover) and the fitted `line` (k, value, low, high) over one window.

    The line is drawn from K=0 on: its height above the K=0 runs is t_draft, shown as a bracket at K=0. The band
    is left out where the fit has no residual degrees of freedom. `about`: the hover's last line (sweep, cell).
    """
    figure = go.Figure()
    band = line.dropna(subset=["low", "high"])
    if len(band):
        figure.add_scatter(
            x=pd.concat([band["k"], band["k"][::-1]]),
            y=pd.concat([band["high"], band["low"][::-1]]),
            fill="toself",
            fillcolor="rgba(213, 94, 0, 0.16)",
            line={"width": 0},
            hoverinfo="skip",
            name="95% band of the line",
        )
    inside = line[line["k"] >= 1]
    figure.add_scatter(
        x=inside["k"],
        y=inside["value"],
        mode="lines",
        name=f"fit over {window}",
        line={"color": COLOURS[1], "width": 2.5},
        hovertemplate="K=%{x}: %{y:.2f} ms, on the line" + (f"<br>{about}" if about else "") + "<extra></extra>",
    )
    start = line[line["k"] <= 1]
    figure.add_scatter(
        x=start["k"],
        y=start["value"],
        mode="lines",
        name="extended to K=0",
        hoverinfo="skip",
        line={"color": COLOURS[1], "width": 2, "dash": "dot"},
    )
    figure.add_scatter(
        x=runs["k"],
        y=runs["value"],
        mode="markers",
        name="runs",
        text=runs["hover"],
        hovertemplate="%{text}<extra></extra>",
        marker={"color": COLOURS[0], "size": 9, "opacity": 0.85},
    )
    at_zero = runs.loc[runs["k"] == 0, "value"]
    if t_draft is not None and len(at_zero) and len(start):
        base = float(at_zero.mean())
        figure.add_scatter(
            x=[0, 0],
            y=[base, base + t_draft],
            mode="lines",
            hoverinfo="skip",
            name="t_draft",
            line={"color": COLOURS[2], "width": 4},
        )
        figure.add_annotation(
            x=0,
            y=base + t_draft / 2,
            text=f"t_draft {axis.words(t_draft)}",
            xanchor="left",
            ax=38,
            ay=34,
            arrowcolor=NEUTRAL,
            arrowwidth=1.2,
            arrowhead=0,
            standoff=4,
        )
    depth_axis(figure, [int(k) for k in runs["k"]] or [0, 1])
    figure.update_yaxes(title=axis.title)
    return finish(figure, height, legend=True)


def residuals(runs: pd.DataFrame, axis: Axis, *, height: int = 240) -> go.Figure:
    """What the line leaves of every run (k, value, hover): a pattern over K is a cycle that is not a line."""
    figure = go.Figure()
    figure.add_hline(y=0, line={"color": COLOURS[1], "width": 2})
    figure.add_scatter(
        x=runs["k"],
        y=runs["value"],
        mode="markers",
        text=runs["hover"],
        hovertemplate="%{text}<extra></extra>",
        marker={"color": COLOURS[0], "size": 9, "opacity": 0.85},
    )
    depth_axis(figure, [int(k) for k in runs["k"]] or [0, 1])
    figure.update_yaxes(title=axis.title)
    return finish(figure, height, legend=False)


def drift(windows: pd.DataFrame, quantities: dict[str, Axis], *, height: int = 560) -> go.Figure:
    """How each fitted quantity and its interval move as the window grows: a panel a quantity.

    `windows` has a row per window and quantity: quantity, window, value, low, high, n, reason, about. A window without
    an interval is an open marker with the words "no interval", never a bar of length zero.
    """
    figure = make_subplots(rows=len(quantities), cols=1, shared_xaxes=True, vertical_spacing=0.09)
    for place, (quantity, axis) in enumerate(quantities.items(), start=1):
        rows = windows[windows["quantity"] == quantity]
        colour = COLOURS[(place - 1) % len(COLOURS)]
        sure = rows["low"].notna() & rows["high"].notna()
        hover = [
            f"<b>{row['window']}</b><br>{axis.words(row['value'], row['low'], row['high'])}<br>n={row['n']}"
            + (f"<br>no interval: {row['reason']}" if pd.isna(row["low"]) else "")
            + (f"<br>{row['about']}" if "about" in row else "")
            for _, row in rows.iterrows()
        ]
        figure.add_scatter(
            x=rows["window"],
            y=rows["value"],
            error_y=error_bars(rows, colour),
            mode="markers",
            name=axis.label,
            marker={
                "color": colour,
                "size": 10,
                "symbol": ["circle" if s else "circle-open" for s in sure],
                "line": {"width": 2, "color": colour},
            },
            text=hover,
            hovertemplate="%{text}<extra></extra>",
            row=place,
            col=1,
        )
        for _, row in rows[~sure & rows["value"].notna()].iterrows():
            figure.add_annotation(
                x=row["window"],
                y=row["value"],
                text="no interval",
                showarrow=False,
                xanchor="left",
                xshift=9,
                yshift=11 if row["value"] >= 0 else -11,
                row=place,
                col=1,
            )
        figure.add_hline(y=0, line={"color": NEUTRAL, "width": 1, "dash": "dot"}, row=place, col=1)
        figure.update_yaxes(title=axis.title, row=place, col=1)
    figure.update_xaxes(title="Depths in the fit (K=0 always in)", row=len(quantities), col=1)
    return finish(figure, height, legend=False)
