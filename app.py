"""Sounding's explorer as a server. Start it with: streamlit run app.py

What Streamlit runs for every reader is explorer.py. Here is done, before the server takes its first reader, what it
would otherwise do while that reader waits: on a fresh server this was most of the first page's time.
"""

# ruff: noqa: F401
import inspect

import pandas as pd
import streamlit as st

import backend.analysis.hold_out
import backend.analysis.whatif_report
import backend.charts.acceptance
import backend.charts.power
import backend.charts.timing
import pages.parts.asked
import pages.parts.machine
import pages.parts.planner
import pages.parts.tightening
from backend import charts

inspect.stack()  # Streamlit does that for the first element it draws; what it learns of every module is kept
point = pd.DataFrame([{"k": 0, "value": 1.0, "low": 0.9, "high": 1.1, "n": 2, "reason": None}])
charts.depth_curve(point, charts.Axis("", "1", 1), reference=1.0).to_dict()  # Plotly reads its schema for the first

app = st.App("explorer.py")
