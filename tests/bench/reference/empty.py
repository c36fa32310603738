"""The least that a Streamlit page costs in this browser on this machine: a title, no query, no chart."""

import streamlit as st

st.title("Empty")
