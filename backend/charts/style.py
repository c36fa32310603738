"""What all charts share: axes in the field's terms, colours for light and dark, error bars that exist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

# Eight of each: K=0..7 of a usual sweep are told apart without colour too.
COLOURS = ("#2b7bba", "#d55e00", "#129a73", "#b565a7", "#8a7f00", "#7d6bd6", "#d0345f", "#00838f")
MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "star", "triangle-down", "pentagon")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "2px,8px", "12px,3px,3px,3px")
NEUTRAL = "#82898f"
INK = "#10202e"  # of a chart's text where it is saved; on a page it has the page's colour (pages/parts/show.py)
FONT = '"Source Sans", "Source Sans 3", "DejaVu Sans", sans-serif'
GRID = "rgba(130, 137, 143, 0.28)"


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
            return "not known"
        text = self.figure(value, low, high)
        if self.unit == "1":
            return text
        return f"{text}{self.unit}" if self.unit == "%" else f"{text} {self.unit}"

    def figure(self, value: float | None, low: float | None = None, high: float | None = None) -> str:
        """The same without its unit, for columns and axes that name it; breaks only before the interval."""
        if value is None or pd.isna(value):
            return "not known"
        text = f"{value:.{self.digits}f}"
        if low is not None and high is not None and not pd.isna(low) and not pd.isna(high):
            text += f" [{low:.{self.digits}f},\N{NO-BREAK SPACE}{high:.{self.digits}f}]"
        return text


def finish(figure: go.Figure, height: int, *, legend: bool) -> go.Figure:
    """Look and margins of every chart.

    Margins are what labels usually need, and grow for those that need more: Plotly draws a chart again when one grows.
    """
    figure.update_layout(
        height=height,
        margin={"l": 64, "r": 12, "t": 48 if legend else 20, "b": 60},
        font={"family": FONT, "size": 12, "color": INK},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hovermode="closest",
        hoverlabel={"bgcolor": INK, "bordercolor": NEUTRAL, "font": {"color": "#ffffff"}},
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": NEUTRAL, "activecolor": COLOURS[0]},
        showlegend=legend,
        dragmode=False,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.01, "xanchor": "left", "x": 0, "title": None},
    )
    axes = {"gridcolor": GRID, "zeroline": False, "ticks": "", "automargin": True}
    figure.update_xaxes(**axes, title={"font": {"size": 14}, "standoff": 14})
    figure.update_yaxes(**axes, title={"font": {"size": 14}, "standoff": 16})
    return figure


def depth_names(depths: Sequence[int]) -> str:
    """Depths for a sentence: "K=4", "K=4, 5 and 7"."""
    names = [str(k) for k in sorted(depths)]
    return "K=" + (names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]) if names else ""


def depth_axis(figure: go.Figure, depths: Sequence[int], note: str = "") -> None:
    title = "Draft depth K" + (f"<br><sub>{note}</sub>" if note else "")
    low, high = (min(depths), max(depths)) if depths else (0, 1)
    figure.update_xaxes(title=title, **whole_ticks(high - low), range=[low - 0.4, high + 0.4])


def whole_ticks(span: int) -> dict[str, object]:
    """Ticks of an axis of whole numbers: each, or every fourth where they would lie over each other."""
    return {"tickmode": "linear", "tick0": 0, "dtick": 1 if span <= 16 else 4}


def point_hover(row: pd.Series, axis: Axis, name: str, about: str = "") -> str:
    """K and series, figure with interval and unit, n, why there is no interval, and what it is `about`: the argument,
    else the row's."""
    n = row.get("n")
    lines = [f"<b>K={int(row['k'])}</b> {name}".rstrip(), axis.words(row["value"], row.get("low"), row.get("high"))]
    lines.append(f"n={int(n)}" if n is not None and not pd.isna(n) else "n not known")
    reason = row.get("reason")
    if (row.get("low") is None or pd.isna(row.get("low"))) and isinstance(reason, str) and reason:
        lines.append(f"no interval: {reason}")
    about = about or str(row.get("about") or "")
    return "<br>".join([*lines, *filter(None, [about])])


def error_bars(points: pd.DataFrame, colour: str) -> dict[str, object] | None:
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
