"""The small reference app of the viewer bench: five pages over the same results, one chart each, nothing else.

It is what a page costs without help, links, intervals and words: every query is cached as the explorer's are, on the
snapshot's inode and time. RESULTS_DB names the snapshot, RESULTS_SWEEP the sweep.
"""

from __future__ import annotations

import streamlit as st

st.set_page_config(page_title="Reference", layout="wide")
st.navigation(
    [
        st.Page("reference_throughput.py", title="Throughput", url_path="throughput", default=True),
        st.Page("reference_steps.py", title="Tokens per step", url_path="steps"),
        st.Page("reference_fit.py", title="Cycle", url_path="fit"),
        st.Page("reference_runs.py", title="Runs", url_path="runs"),
        st.Page("reference_positions.py", title="Positions", url_path="positions"),
    ]
).run()
