"""DataFrame -> Plotly figure. No Streamlit, no statistics: values, bounds and reasons come in, pixels go out.

An estimate table has a row per point: k, value, low, high, n, reason, and optionally series (one line each).
A missing value is a gap that the axis title names; a bound that is missing is never drawn. Backgrounds are
transparent and text carries no colour, so that the page's theme, light or dark, decides. The trace colours have
at least 3:1 contrast on both, and each series has its own marker and dash, for readers who do not tell colours apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

COLOURS = ("#2b7bba", "#d55e00", "#129a73", "#b565a7", "#8a7f00", "#7d6bd6")
MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "star")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
NEUTRAL = "#82898f"
GRID = "rgba(130, 137, 143, 0.28)"
STATUS = {  # how a run ended -> (marker, colour, words)
    "done": ("circle", COLOURS[0], "done"),
    "excluded": ("circle-open", COLOURS[0], "done, excluded"),
    "running": ("star", COLOURS[2], "running"),
    "failed": ("x", COLOURS[1], "failed"),
    "interrupted": ("triangle-down-open", COLOURS[1], "interrupted"),
}


@dataclass(frozen=True, slots=True)
class Axis:
    """What a value axis shows: the term, its unit ("1" for a plain ratio), and how many decimals readers get."""

    label: str
    unit: str
    digits: int

    @property
    def title(self) -> str:
        """The axis title, with the unit where there is one."""
        return self.label if self.unit == "1" else f"{self.label} ({self.unit})"

    def words(self, value: float | None, low: float | None = None, high: float | None = None) -> str:
        """A value with its interval as readers see it everywhere: "24.05 [23.10, 25.00] tok/s"."""
        if value is None or pd.isna(value):
            return "not measured"
        text = self.figure(value, low, high)
        if self.unit == "1":
            return text
        return f"{text}{self.unit}" if self.unit == "%" else f"{text} {self.unit}"

    def figure(self, value: float | None, low: float | None = None, high: float | None = None) -> str:
        """The same without its unit, for columns and axes that name it; breaks only before the interval."""
        if value is None or pd.isna(value):
            return "not measured"
        text = f"{value:.{self.digits}f}"
        if low is not None and high is not None and not pd.isna(low) and not pd.isna(high):
            text += f" [{low:.{self.digits}f},\N{NO-BREAK SPACE}{high:.{self.digits}f}]"
        return text


def _layout(figure: go.Figure, height: int, *, legend: bool) -> go.Figure:
    figure.update_layout(
        height=height,
        margin={"l": 8, "r": 12, "t": 34 if legend else 16, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hovermode="closest",
        showlegend=legend,
        dragmode=False,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.01, "xanchor": "left", "x": 0, "title": None},
    )
    figure.update_xaxes(gridcolor=GRID, zeroline=False, automargin=True)
    figure.update_yaxes(gridcolor=GRID, zeroline=False, automargin=True)
    return figure


def depth_names(depths: Sequence[int]) -> str:
    """Depths for a sentence: "K=4", "K=4, 5 and 7"."""
    names = [str(k) for k in sorted(depths)]
    return "K=" + (names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]) if names else ""


def _depth_axis(figure: go.Figure, depths: Sequence[int], note: str = "") -> None:
    title = "Draft depth K" + (f"<br><sub>{note}</sub>" if note else "")
    low, high = (min(depths), max(depths)) if depths else (0, 1)
    figure.update_xaxes(title=title, tickmode="linear", tick0=0, dtick=1, range=[low - 0.4, high + 0.4])


def _hover(row: pd.Series, axis: Axis, name: str) -> str:
    n = row.get("n")
    lines = [f"<b>K={int(row['k'])}</b> {name}".rstrip(), axis.words(row["value"], row.get("low"), row.get("high"))]
    lines.append(f"n={int(n)}" if n is not None and not pd.isna(n) else "n not known")
    reason = row.get("reason")
    if (row.get("low") is None or pd.isna(row.get("low"))) and isinstance(reason, str) and reason:
        lines.append(f"no interval: {reason}")
    return "<br>".join(lines)


def _bars(points: pd.DataFrame, colour: str) -> dict[str, object] | None:
    """Error bars where both bounds are there; None where no point has an interval."""
    there = points["low"].notna() & points["high"].notna() & points["value"].notna()
    if not there.any():
        return None
    up = (points["high"] - points["value"]).where(there)
    down = (points["value"] - points["low"]).where(there)
    return {
        "type": "data",
        "symmetric": False,
        "array": up,
        "arrayminus": down,
        "color": colour,
        "thickness": 1.6,
        "width": 5,
    }


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
    height: int = 420,
) -> go.Figure:
    """A quantity against K with intervals; single `runs` (k, value, hover) behind; a dashed `reference` line.

    `points` is an estimate table; `marked` rings one K. Depths without a value are gaps, named under the axis.
    """
    figure = go.Figure()
    points = points.assign(series=points.get("series", name)).sort_values(["series", "k"])
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
    for index, (series, rows) in enumerate(groups):
        colour = COLOURS[index % len(COLOURS)]
        figure.add_scatter(
            x=rows["k"],
            y=rows["value"],
            error_y=_bars(rows, colour),
            mode="lines+markers",
            name=str(series),
            connectgaps=False,
            line={"color": colour, "width": 2, "dash": DASHES[index % len(DASHES)]},
            marker={"color": colour, "size": 9, "symbol": MARKERS[index % len(MARKERS)]},
            text=[_hover(row, axis, str(series)) for _, row in rows.iterrows()],
            hovertemplate="%{text}<extra></extra>",
        )
        missing = [int(k) for k in rows.loc[rows["value"].isna(), "k"]]
        if missing:
            gaps.append(f"no value at {depth_names(missing)}" + (f" ({series})" if len(groups) > 1 else ""))
        ringed = rows[(rows["k"] == marked) & rows["value"].notna()]
        if len(ringed):
            figure.add_scatter(
                x=ringed["k"],
                y=ringed["value"],
                mode="markers",
                name=marked_name,
                hoverinfo="skip",
                marker={
                    "color": "rgba(0,0,0,0)",
                    "size": 19,
                    "symbol": "circle",
                    "line": {"color": COLOURS[1], "width": 2.5},
                },
            )
    if reference is not None:
        figure.add_hline(
            y=reference,
            line={"color": NEUTRAL, "dash": "dash", "width": 1.5},
            annotation_text=f"{reference_name}: {axis.words(reference)}",
            annotation_position="bottom right",
        )
    _depth_axis(figure, [int(k) for k in points["k"]], "; ".join(gaps))
    figure.update_yaxes(title=axis.title)
    several = len(groups) > 1 or (runs is not None and len(runs) > 0) or marked is not None
    return _layout(figure, height, legend=several)


def cycle_fit(
    runs: pd.DataFrame,
    line: pd.DataFrame,
    axis: Axis,
    *,
    t_draft: float | None,
    window: str,
    height: int = 460,
) -> go.Figure:
    """Cycle time of every run (k, value, hover) and the fitted `line` (k, value, low, high) over one window.

    The line is drawn from K=0 on: its height above the K=0 runs is t_draft, shown as a bracket at K=0. The band
    is left out where the fit has no residual degrees of freedom.
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
        hovertemplate="K=%{x}: %{y:.2f} ms<extra>line</extra>",
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
            x=0, y=base + t_draft / 2, text=f"t_draft {axis.words(t_draft)}", xanchor="left", xshift=9, showarrow=False
        )
    _depth_axis(figure, [int(k) for k in runs["k"]] or [0, 1])
    figure.update_yaxes(title=axis.title)
    return _layout(figure, height, legend=True)


def drift(windows: pd.DataFrame, quantities: dict[str, Axis], *, height: int = 560) -> go.Figure:
    """How each fitted quantity and its interval move as the window grows: a panel a quantity.

    `windows` has a row per window and quantity: quantity, window, value, low, high, n, reason. A window without
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
            for _, row in rows.iterrows()
        ]
        figure.add_scatter(
            x=rows["window"],
            y=rows["value"],
            error_y=_bars(rows, colour),
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
                x=row["window"], y=row["value"], text="no interval", showarrow=False, yshift=-17, row=place, col=1
            )
        figure.add_hline(y=0, line={"color": NEUTRAL, "width": 1, "dash": "dot"}, row=place, col=1)
        figure.update_yaxes(title=axis.title, row=place, col=1)
    figure.update_xaxes(title="Depths in the fit (K=0 always in)", row=len(quantities), col=1)
    return _layout(figure, height, legend=False)


def run_order(runs: pd.DataFrame, *, height: int = 320) -> go.Figure:
    """Runs in the order they were started: order_index, k, block, state (a key of STATUS), hover. Blocks are shaded."""
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
    figure.update_xaxes(title="Run order")
    figure.update_yaxes(title="Draft depth K", tickmode="linear", tick0=0, dtick=1)
    _layout(figure, height, legend=True)
    return figure.update_layout(legend={"y": 1.1}, margin={"t": 56})
