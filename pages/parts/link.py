"""The link is the state: a widget shows what the link says, and changing it changes the link.

Streamlit's own `bind="query-params"` (1.67) drops defaults from the link, so a link would mean "whatever the default
is by then", and loses the value between pages. Here one change is one entry in the browser's history, and the
sidebar's links carry what each page last showed (`of_page`). What a link does not say, or says wrongly, is the
default; a name of stored data that is not there (a sweep, a cell, a run) is told, as another is shown in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import streamlit as st

from pages.parts import terms
from pages.parts.menu import Page

if TYPE_CHECKING:
    from streamlit.elements.lib.mutable_expander_container import ExpanderContainer

ALL, NONE = "all", "none"
OPEN, CLOSED = "open", "closed"
IMAGE = "image"  # what a chart's own button saves: a PNG, or with image=svg in the link an SVG
OF_ONE_SWEEP = ("cell", "cells", "run", "depth", "ended")  # names of parts of a sweep: they mean nothing in another
BESIDE = ("with", "tokens")  # names of other sweeps
STORED = (*OF_ONE_SWEEP, *BESIDE)


def of_page(page: Page, sweep: str | None, here: Page, cells: Collection[str]) -> dict[str, str]:
    """The link to a page: the sweep, and what the page showed last. What the page `here` shows is in its own link:
    the menu is drawn before the page has remembered it. `cells`: all of the sweep, as no other is passed on."""
    kept = {}
    for key in (*page.keys, *page.more):
        own = key in (*here.keys, *here.more)
        if own and key in OF_ONE_SWEEP and st.query_params.get("sweep") not in (None, sweep):
            continue  # of a sweep that is not here
        value = st.query_params.get(key) if own else st.session_state.get(f"kept:{key}")
        if value is not None and (key != "cell" or value in cells):
            kept[key] = value
    if st.query_params.get(IMAGE) == "svg":
        kept[IMAGE] = "svg"
    return kept if sweep is None else {"sweep": sweep, **kept}


def to_runs(words: str, sweep: str, **filters: object) -> str:
    """A number in a table as a link (Markdown) to the runs behind it: `depth`, `cell`, `ended` of the page Runs."""
    said = urlencode({"sweep": sweep, **{name: str(value) for name, value in filters.items()}})
    return f"[{words}](runs?{said})"


def runs_behind(count: int | None, sweep: str, k: int, cell: str) -> str:
    """A count of what a figure is made of, as a link to the runs behind it; "" where it is not known."""
    if count is None:
        return ""
    ended = {"ended": "done"} if count else {}  # where none is, why is the question
    return to_runs(str(count), sweep, depth=k, cell=cell, **ended)


def sweep(names: Sequence[str], default: str) -> str:
    """The choice of a sweep, on every page. It is always in the link, so that a link keeps its meaning."""
    said = st.query_params.get("sweep")
    chosen = said if said in names else default
    if said is None:
        st.query_params["sweep"] = chosen
    st.session_state["sweep"] = chosen
    st.selectbox("Sweep", names, key="sweep", on_change=_to_another_sweep)
    return chosen


def svg() -> bool:
    """Whether charts are saved as SVG; the switch for it is drawn on every page."""
    said = st.query_params.get(IMAGE) == "svg"
    st.session_state["image-svg"] = said
    st.toggle(
        "Save charts as SVG", key="image-svg", on_change=_image_to_link, help="Else the camera button saves a PNG."
    )
    return said


def _image_to_link() -> None:
    if st.session_state["image-svg"]:
        st.query_params[IMAGE] = "svg"
    else:
        st.query_params.pop(IMAGE, None)


def _to_another_sweep() -> None:
    for key in OF_ONE_SWEEP:
        st.session_state.pop(f"kept:{key}", None)
    chosen = st.session_state["sweep"]
    rest = {key: value for key, value in st.query_params.to_dict().items() if key not in OF_ONE_SWEEP}
    for key in BESIDE:  # a sweep is not beside itself
        left = [name for name in (rest.pop(key, None) or "").split(",") if name not in ("", chosen)]
        kept = [name for name in st.session_state.pop(f"kept:{key}", "").split(",") if name not in ("", chosen)]
        if left:
            rest[key] = ",".join(left)
        if kept:
            st.session_state[f"kept:{key}"] = ",".join(kept)
    st.query_params.from_dict({**rest, "sweep": chosen})


def tell_unknown(key: str, label: str, known: Sequence[str], shown: str) -> None:
    """Say so where the link names something stored that is not there, and what is shown in its place."""
    said = st.query_params.get(key)
    of_another = key in OF_ONE_SWEEP and st.query_params.get("sweep") != st.session_state.get("sweep")
    if key not in STORED or said in (None, ALL, NONE) or of_another:
        return
    gone = [part for part in (said.split(",") if key in ("cells", "with") else [said]) if part not in known]
    if gone:
        st.warning(terms.outside(f"{label}: the link says {', '.join(gone)}, which is not here. Shown: {shown}."))


def one(
    key: str,
    label: str,
    options: Sequence[str],
    default: str,
    *,
    words: Callable[[str], str] = str,
    known: Sequence[str] = (),
) -> str:
    """A choice of one. `known`: what a link may name too, though it is not to choose now."""
    said = st.query_params.get(key)
    chosen = said if said in options else default
    keep(key, said if said in options else None)
    st.session_state[key] = chosen
    st.selectbox(label, options, key=key, format_func=words, on_change=_one_to_link, args=(key,))
    tell_unknown(key, label, [*options, *known], words(chosen))
    return chosen


def some(
    key: str,
    label: str,
    options: Sequence[str],
    default: Sequence[str],
    *,
    words: Callable[[str], str] = str,
    drops: str | None = None,
) -> list[str]:
    """A choice of several: `key=a,b`, `key=all` or `key=none`. No option may hold a comma. `drops`: another choice,
    whose options are others when this one changes."""
    said = st.query_params.get(key, "")
    chosen = list(options) if said == ALL else [part for part in said.split(",") if part in options]
    keep(key, said if chosen or said == NONE else None)
    if not chosen and said != NONE:
        chosen = list(default)
    st.session_state[key] = chosen
    st.multiselect(
        label, options, key=key, format_func=words, on_change=_some_to_link, args=(key, tuple(options), drops)
    )
    tell_unknown(key, label, options, ", ".join(map(words, chosen)) or "none")
    return chosen


def more(key: str, label: str, *, at_first: bool = False, holds: Sequence[str] = ()) -> ExpanderContainer:
    """A part that readers open, `key=open` in the link, and so does a link with a choice that the part `holds`. Write
    into it only while it is `.open`: what is closed is not made, sent, or built up by the browser."""
    said = st.query_params.get(key)
    at_first = at_first or any(name in st.query_params for name in holds)
    keep(key, said if said in (OPEN, CLOSED) else None)
    st.session_state[key] = at_first if said not in (OPEN, CLOSED) else said == OPEN
    return st.expander(label, key=key, on_change=_more_to_link, args=(key,))


def keep(key: str, said: str | None) -> None:
    """Remember what a page's link said, for the menu's link back to it; None forgets."""
    if said is None:
        st.session_state.pop(f"kept:{key}", None)
    else:
        st.session_state[f"kept:{key}"] = said


def _one_to_link(key: str) -> None:
    st.query_params[key] = st.session_state[key]


def _more_to_link(key: str) -> None:
    st.query_params[key] = OPEN if st.session_state[key] else CLOSED


def _some_to_link(key: str, options: Sequence[str], drops: str | None) -> None:
    if drops is not None:
        st.query_params.pop(drops, None)
        keep(drops, None)
    chosen = st.session_state[key]
    whole = len(chosen) == len(options) and len(options) > 1
    st.query_params[key] = ALL if whole else ",".join(chosen) or NONE
