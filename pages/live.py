"""Live: the sweep that is running now, from progress.json, which the sweep replaces by rename."""

from __future__ import annotations

import json
import time

import streamlit as st

from backend.errors import StoreError
from backend.progress import Progress
from pages.parts import frame, order, reader, terms, tightening

STALE_AFTER_S = {"launch": 900.0, "warmup": 300.0}  # a large model loads for minutes without a word
STALE_OTHERWISE_S = 120.0
PHASES = {
    "launch": "starting the server",
    "warmup": "warming up",
    "measure": "measuring",
    "forced": "replaying starts",
    "stop": "stopping the server",
    "store": "storing",
}
ENDS = {"done": st.success, "failed": st.error, "interrupted": st.warning, "idle": st.info}

view = frame.open_page("Live", needs="nothing")
known = set() if view.snapshot is None else set(view.snapshot.sweeps()["sweep"])


def progress() -> Progress | None:
    """The progress file's content; None where there is none or it is not of this version."""
    try:
        return Progress(**json.loads((reader.data_dir() / "progress.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def stored_anew() -> bool:
    """Whether the results were replaced since the page was drawn."""
    try:
        return view.snapshot is not None and reader.current().key != view.snapshot.key
    except StoreError:  # in the middle of being replaced
        return False


@st.fragment(run_every=2)
def follow() -> None:
    """Draw the progress; runs again every two seconds, alone, and the whole page when runs were stored."""
    if stored_anew():
        st.rerun()
    now = progress()
    if now is None:
        st.info("No sweep has reported here yet.")
        st.markdown(
            f"Progress is read from `{reader.data_dir() / 'progress.json'}`. A sweep started with "
            "`python -m backend sweep SPEC` writes it; this page follows it without a reload."
        )
        return
    silent_s = time.time() - now.updated_unix_s
    running = now.state == "running"
    stale = running and silent_s > STALE_AFTER_S.get(str(now.phase), STALE_OTHERWISE_S)
    st.header(terms.outside(now.sweep or "No sweep"), anchor=False)
    if now.sweep in known and now.sweep != view.name:
        here = {"sweep": now.sweep}
        st.page_link("pages/live.py", label=f"What is stored of {now.sweep}", query_params=here)
    if stale:
        st.error(
            f"Stale: it says running, but nothing was written for {terms.lasting(silent_s)}. The sweep was "
            "probably killed; `python -m backend sweep SPEC --resume` goes on from its last finished run."
        )
    elif running:
        arm = "" if now.k is None else f" K={now.k}" + ("" if now.block is None else f", block {now.block}")
        doing = terms.outside(PHASES.get(str(now.phase), now.phase or "between runs"))
        st.info(f"Running{arm}: {doing}.")
    else:
        ENDS.get(now.state, st.info)(terms.outside(f"{now.state.capitalize()}. {now.message}".strip()))
    if now.runs_total:
        ended = now.runs_done + now.runs_failed
        failed = f", {now.runs_failed} failed" if now.runs_failed else ""
        st.progress(min(1.0, ended / now.runs_total), f"Runs: {now.runs_done} of {now.runs_total} done{failed}")
    if running and now.requests_total:
        st.progress(
            min(1.0, now.requests_done / now.requests_total),
            f"Requests of this run: {now.requests_done} of {now.requests_total}",
        )
    facts = {"Last written": f"{terms.lasting(silent_s)} ago"}
    if running and not stale:
        under_way_s = now.updated_unix_s - now.started_unix_s
        facts = {"Under way for": terms.lasting(under_way_s), "Left": terms.lasting(now.eta_s), **facts}
    for place, (label, value) in zip(st.columns(len(facts)), facts.items(), strict=True):
        place.metric(label, value, border=True)
    st.caption(
        " ".join(
            filter(None, (f"Started {terms.when(now.started_unix_s)}.", terms.outside(now.message) if running else ""))
        )
    )
    if now.queue:
        st.markdown("Waiting: " + ", ".join(f"`{terms.outside(name)}`" for name in now.queue))


follow()
if view.sweep is not None:
    st.header(f"Runs stored so far: {terms.outside(view.name)}", anchor=False)
    frame.source_badge(view.sweep)
    order.draw(view, key="live-order")
    tightening.follow(view.name)
    st.page_link("pages/overview.py", label="The answer so far", query_params={"sweep": view.name})
