"""Sounding's explorer as a server. Start it with: streamlit run app.py

What Streamlit runs for every reader is explorer.py. Here it is run once, before the server takes its first reader, who
would otherwise wait while modules are read, Plotly reads its schema and the newest sweep is analysed.
"""

import contextlib
import logging

import streamlit as st
from streamlit.testing.v1 import AppTest

nobody_reads = logging.getLogger("streamlit.runtime.scriptrunner_utils.script_run_context")
nobody_reads.disabled = True  # it warns that this run has no reader
with contextlib.suppress(RuntimeError):  # it took too long: then the first reader waits for what is left
    AppTest.from_file("explorer.py", default_timeout=60).run()
nobody_reads.disabled = False
app = st.App("explorer.py")
