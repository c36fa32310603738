"""Survival by draft position."""

import plotly.graph_objects as go
import streamlit as st
from reference_db import SWEEP, rows

st.title("Positions")
points = rows("SELECT * FROM acceptance_by_position WHERE sweep = ? ORDER BY k, position", SWEEP)
figure = go.Figure()
for k, group in points.groupby("k"):
    figure.add_scatter(x=group["position"], y=group["survival"], name=f"K={k}")
st.plotly_chart(figure)
st.dataframe(points)
