"""Tokens per step against depth."""

import plotly.graph_objects as go
import streamlit as st
from reference_db import SWEEP, rows

st.title("Tokens per step")
points = rows("SELECT * FROM estimate WHERE sweep = ? AND quantity = 'tokens_per_step' ORDER BY k", SWEEP)
figure = go.Figure()
figure.add_scatter(
    x=points["k"],
    y=points["value"],
    error_y={"array": points["high"] - points["value"], "arrayminus": points["value"] - points["low"]},
)
st.plotly_chart(figure)
st.dataframe(rows("SELECT * FROM k_summary WHERE sweep = ? ORDER BY k", SWEEP))
