"""Decode throughput against depth."""

import plotly.graph_objects as go
import streamlit as st
from reference_db import SWEEP, rows

st.title("Throughput")
points = rows("SELECT * FROM estimate WHERE sweep = ? AND quantity = 'decode_tok_s' ORDER BY k", SWEEP)
runs = rows("SELECT * FROM run_cell WHERE sweep = ? ORDER BY order_index", SWEEP)
figure = go.Figure()
figure.add_scatter(x=runs["k"], y=runs["decode_tok_s"], mode="markers", name="runs")
figure.add_scatter(
    x=points["k"],
    y=points["value"],
    error_y={"array": points["high"] - points["value"], "arrayminus": points["value"] - points["low"]},
    name="mean",
)
st.plotly_chart(figure)
st.dataframe(points[["k", "value", "low", "high", "n"]])
