"""The URL is the state: a widget shows what the link says, and changing it changes the link.

Streamlit's own `bind="query-params"` (1.67) drops defaults from the URL, so a link would mean "whatever the default
is by then", and loses the value between pages. Here the value is always in the link; what a page last showed
is kept for the session, for links that do not say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

ALL, NONE = "all", "none"


def _from_link(key: str, options: Sequence[str], default: str) -> str:
    linked = st.query_params.get(key)
    value = linked if linked in options else st.session_state.get(f"kept:{key}", default)
    if value not in options:
        value = default
    st.session_state[f"kept:{key}"] = value
    st.query_params[key] = value
    return str(value)


def _to_link(key: str) -> None:
    st.query_params[key] = st.session_state[key]


def one(
    key: str, label: str, options: Sequence[str], default: str, *, words: Callable[[str], str] = str,
    place: DeltaGenerator | None = None, help_text: str | None = None,
) -> str:
    """A select box bound to the link."""
    st.session_state[key] = _from_link(key, options, default)
    (place or st).selectbox(label, options, key=key, format_func=words, on_change=_to_link, args=(key,), help=help_text)
    return str(st.session_state[key])


def some(
    key: str, label: str, options: Sequence[str], default: Sequence[str], *, words: Callable[[str], str] = str,
) -> list[str]:
    """A choice of several, bound to the link: `key=a,b`, `key=all`, or `key=none`. No option may hold a comma."""
    text = st.query_params.get(key) or st.session_state.get(f"kept:{key}", "")
    chosen = list(options) if text == ALL else [part for part in text.split(",") if part in options]
    if not chosen and text != NONE:  # not said, or said of another sweep
        chosen = list(default)
    st.session_state[key] = chosen
    st.query_params[key] = st.session_state[f"kept:{key}"] = _several(chosen, options)
    st.multiselect(label, options, key=key, format_func=words, on_change=_some_to_link, args=(key, tuple(options)))
    return chosen


def _several(chosen: Sequence[str], options: Sequence[str]) -> str:
    if not chosen:
        return NONE
    return ALL if len(chosen) == len(options) and len(options) > 1 else ",".join(chosen)


def _some_to_link(key: str, options: Sequence[str]) -> None:
    st.query_params[key] = _several(st.session_state[key], options)
