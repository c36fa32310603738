"""Two columns of any table against each other."""

from __future__ import annotations

from typing import Literal

import pandas as pd
import plotly.graph_objects as go

from backend.charts.style import COLOURS, finish

Look = Literal["points", "line", "bars"]
LOOKS: tuple[Look, ...] = ("points", "line", "bars")


def two_columns(rows: pd.DataFrame, x: str, y: str, look: str = "points", *, height: int = 380) -> go.Figure:
    """Column `y` (numbers) against column `x` (anything), in the order of the rows. Rows without a `y` are gaps.

    The axes are named as the columns are, whose names carry the units.
    """
    figure = go.Figure()
    across = rows[x] if pd.api.types.is_numeric_dtype(rows[x]) else rows[x].map(str, na_action="ignore")
    hover = f"{x}: %{{x}}<br>{y}: %{{y}}<extra></extra>"
    if look == "bars":
        figure.add_bar(x=across, y=rows[y], marker={"color": COLOURS[0]}, hovertemplate=hover)
    else:
        figure.add_scatter(
            x=across,
            y=rows[y],
            mode="markers" if look == "points" else "lines+markers",
            connectgaps=False,
            marker={"color": COLOURS[0], "size": 8, "opacity": 0.85},
            line={"color": COLOURS[0], "width": 2},
            hovertemplate=hover,
        )
    figure.update_xaxes(title=x)
    figure.update_yaxes(title=y)
    return finish(figure, height, legend=False)
