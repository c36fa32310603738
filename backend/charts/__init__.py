"""DataFrame -> Plotly figure. No Streamlit, no statistics: values, bounds and reasons come in, pixels go out.

An estimate table has a row per point: k, value, low, high, n, reason, and optionally series (one line each).
A missing value is a gap that the axis title names; a bound that is missing is never drawn. Backgrounds are
transparent and the page gives text its own colour, so that its theme, light or dark, decides. The trace colours have
at least 3:1 contrast on both, and each series has its own marker and dash, for readers who do not tell colours apart.
"""

from backend.charts.columns import LOOKS, two_columns
from backend.charts.cycle import cycle_fit, drift, residuals
from backend.charts.depth import depth_curve
from backend.charts.order import STATUS, over_order, run_order
from backend.charts.style import COLOURS, NEUTRAL, Axis, depth_names
from backend.charts.whatif import against_cost, tightening

__all__ = [
    "COLOURS",
    "LOOKS",
    "NEUTRAL",
    "STATUS",
    "Axis",
    "against_cost",
    "cycle_fit",
    "depth_curve",
    "depth_names",
    "drift",
    "over_order",
    "residuals",
    "run_order",
    "tightening",
    "two_columns",
]
