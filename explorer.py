"""Page config and navigation of the explorer, run for every reader and rerun. app.py serves it."""

from pathlib import Path

import streamlit as st

from pages.parts.menu import MENU

HERE = Path(__file__).parent

st.set_page_config(
    page_title="Sounding",
    page_icon=str(HERE / "pages/parts/icon.png"),
    layout="wide",
    initial_sidebar_state="auto",
)
# The menu is hidden because pages/parts/frame.py draws its own, whose links carry the sweep.
# Each url_path is its file's stem: on a fresh server a deep link is resolved against pages/*.py first.
st.navigation(
    [st.Page(page.path, title=page.title, default=page is MENU[0]) for page in MENU],
    position="hidden",
).run()
