"""A number in the link: the widget shows what the link says, and changing it changes the link (see `link`)."""

from __future__ import annotations

import math

import streamlit as st

from pages.parts import link


def number(key: str, label: str, default: float, *, low: float, high: float, step: float) -> float:
    """A number input between `low` and `high`; what the link does not say, or says wrongly, is the default."""
    said = st.query_params.get(key)
    value = _inside(said, low, high)
    link.keep(key, None if value is None else said)
    chosen = default if value is None else value
    widget = f"number-{key}"
    st.session_state[widget] = chosen
    st.number_input(label, low, high, step=step, key=widget, on_change=_to_link, args=(key,), format="%.4g")
    return chosen


def _inside(said: str | None, low: float, high: float) -> float | None:
    try:
        value = float(said or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and low <= value <= high else None


def _to_link(key: str) -> None:
    st.query_params[key] = f"{st.session_state[f'number-{key}']:g}"
