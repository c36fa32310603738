"""The cycle of every run, and the windows of the fit."""

import plotly.graph_objects as go
import streamlit as st
from reference_db import SWEEP, rows

st.title("Cycle")
runs = rows("SELECT * FROM run_cell WHERE sweep = ? ORDER BY order_index", SWEEP)
figure = go.Figure()
figure.add_scatter(x=runs["k"], y=runs["cycle_ms"], mode="markers")
st.plotly_chart(figure)
st.dataframe(rows("SELECT * EXCLUDE (window_k) FROM cycle_fit WHERE sweep = ? ORDER BY len(window_k)", SWEEP))
