"""Runs in order."""

import plotly.graph_objects as go
import streamlit as st
from reference_db import SWEEP, rows

st.title("Runs")
runs = rows("SELECT * FROM run WHERE sweep = ? ORDER BY order_index", SWEEP)
figure = go.Figure()
figure.add_scatter(x=runs["order_index"], y=runs["k"], mode="markers")
st.plotly_chart(figure)
st.dataframe(runs)
