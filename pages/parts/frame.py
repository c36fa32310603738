"""What every page starts with: the way in, the host guard, navigation, the sweep in the link, and help where there is
nothing to show yet."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import pandas as pd
import streamlit as st
from streamlit.runtime.pages_manager import PagesManager

from backend.errors import StoreError
from backend.store import paths
from pages.parts import host, link, reader, show, terms
from pages.parts.menu import MENU, Page
from pages.parts.once import once
from pages.parts.reader import Snapshot

FIRST_STEPS = """
- `make demo` sweeps a small model on this machine's CPU and opens the explorer on it;
- `python -m backend sweep data/specs/demo-vllm-cpu.toml` runs a specification of your own the same way;
- `python -m backend rebuild` makes the results anew from the journals in the data directory.
"""


@dataclass(frozen=True, slots=True)
class View:
    """What a page shows: a snapshot and one sweep of it (a row of `queries.sweeps`); None where a page allows it."""

    snapshot: Snapshot | None
    sweep: pd.Series | None

    @property
    def name(self) -> str:
        """The sweep's name."""
        return "" if self.sweep is None else str(self.sweep["sweep"])


def open_page(title: str, *, needs: Literal["sweep", "snapshot", "nothing"] = "sweep") -> View:
    """Draw the frame and return what to show; stops the page, with help, where what it needs is not there."""
    if PagesManager.uses_pages_directory:  # a deep link on a fresh server came in past explorer.py: go through it
        PagesManager.uses_pages_directory = False
        st.rerun()
    if not host.admitted(st.context.headers.get("Host"), st.get_option("server.allowedHosts")):
        st.error(
            "This explorer does not answer to the name in your address bar, as a protection of lab networks against "
            "DNS rebinding. Use the machine's address, or start it with "
            "`STREAMLIT_SERVER_ALLOWED_HOSTS='that.name localhost'`."
        )
        st.stop()
    st.title(title, anchor=False)
    st.html(show.LOOK)
    snapshot, trouble = _snapshot()
    sweep = _sidebar(snapshot, next(page for page in MENU if page.title == title))
    if snapshot is None and needs != "nothing":
        st.warning(f"The results cannot be shown: {terms.outside(trouble)}")
        st.markdown(FIRST_STEPS)
        st.stop()
    if sweep is None and needs == "sweep":
        st.info("There is no sweep in these results yet.")
        st.markdown(FIRST_STEPS)
        st.stop()
    asked = st.query_params.get("sweep")
    if sweep is not None and asked not in (None, sweep["sweep"]):
        st.warning(terms.outside(f"The link's sweep {asked} is not in these results. Shown is {sweep['sweep']}."))
    return View(snapshot, sweep)


def _snapshot() -> tuple[Snapshot | None, str]:
    """The snapshot, or why there is none."""
    try:
        snapshot = reader.current()
        snapshot.sweeps()
    except StoreError as error:
        return None, str(error)
    return snapshot, ""


def _by_name(sweeps: pd.DataFrame) -> tuple[dict[str, pd.Series], str]:
    """The sweeps by name, newest first, and the one to show first: the newest that has a finished run."""
    done = sweeps[sweeps["runs_done"] > 0]
    first = "" if sweeps.empty else str((done if len(done) else sweeps)["sweep"].iloc[0])
    return {str(row["sweep"]): row for _, row in sweeps.iterrows()}, first


def _sidebar(snapshot: Snapshot | None, here: Page) -> pd.Series | None:
    """Navigation, whose links carry the sweep; the choice of a sweep; which snapshot this is. Returns the sweep."""
    chosen = None
    with st.sidebar:
        st.markdown("**Sounding**  \nHow deep to speculate")
        links = st.container(gap="xxsmall")
        sweeps, first = (
            ({}, "") if snapshot is None else once(snapshot, "sweeps", build=lambda: _by_name(snapshot.sweeps()))
        )
        if sweeps:
            chosen = sweeps[link.sweep(list(sweeps), first)]
            st.caption(f"Source: {terms.outside(chosen['source'])}")
        cells = () if chosen is None else every_cell(View(snapshot, chosen))
        for page in MENU:
            links.page_link(
                page.path,
                label=page.title,
                query_params=link.of_page(page, None if chosen is None else str(chosen["sweep"]), here, cells),
            )
        if snapshot is not None:
            _snapshot_words(snapshot)
        link.svg()
        with st.expander("Words used here"):
            st.markdown(terms.GLOSSARY)
    return chosen


def _snapshot_words(snapshot: Snapshot) -> None:
    info = snapshot.info()
    published = info.get("published_unix_s")
    if not info or not isinstance(published, float):
        st.caption("These results were never published as a snapshot.")
        return
    age = terms.lasting(time.time() - published)
    st.caption(f"Snapshot `{terms.outside(str(info['id'])[:8])}`, {age} old  \n{terms.when(published)}")
    if snapshot.bundled:
        st.caption(
            f"The data directory has no results yet: these sweeps come with the project "
            f"(`{snapshot.path.relative_to(paths.REPOSITORY)}`)."
        )


def source_badge(sweep: pd.Series) -> None:
    """Where the numbers come from, and what was swept."""
    source = str(sweep["source"])
    colour, meaning = terms.SOURCES[source]
    st.badge(terms.outside(source), color=colour, help=meaning)
    target, method, model, description = (
        terms.known(sweep[name]) for name in ("target_model", "speculator_method", "speculator_model", "description")
    )
    drafter = " with ".join(filter(None, (method, model)))
    models = f"Target {target or 'not known'}" + (f", speculator {drafter}" if drafter else "")
    lines = [f"Sweep {sweep['sweep']}", description, models, meaning if source != "measured" else ""]
    st.caption(terms.outside("  \n".join(line for line in lines if line)))


def choose_cell(view: View, *, timed: bool = False) -> str | None:
    """The cell in the link; a choice is shown only where there are several. None where the sweep has no figures, and
    with `timed`, where its proposer was not timed either."""
    names = once(view.snapshot, "cell names", view.name, build=lambda: _measured_cells(view))
    if not names and timed:
        every = every_cell(view)
        names = {cell_id: every[cell_id] for cell_id in every if view.snapshot.timing(view.name, cell_id).times}
    if not names:
        return None
    every, said = every_cell(view), st.query_params.get("cell")
    if said in every and said not in names:
        st.info(terms.outside(f"The cell {every[said]} has no figures yet: another is shown."))
    if len(names) == 1:
        cell_id, name = next(iter(names.items()))
        st.caption(f"Cell: {terms.outside(name)}")
        link.tell_unknown("cell", "Cell", list(every), name)
        return cell_id
    return link.one("cell", "Cell", list(names), next(iter(names)), words=names.__getitem__, known=list(every))


def _measured_cells(view: View) -> dict[str, str]:
    """The cells that have figures, concurrency 1 and short context first, and their names. Anchors are in no figure."""
    rows = view.snapshot.of_sweep("run_cells", view.name)
    cells = view.snapshot.of_sweep("cells", view.name)
    cells = cells[cells["cell_id"].isin(set(rows.loc[rows["role"] == "arm", "cell_id"]))].sort_values(
        ["concurrency", "context_tokens", "workload"], na_position="first"
    )
    return terms.cell_names(cells)


def every_cell(view: View) -> dict[str, str]:
    """All cells of the sweep and their names."""
    return once(
        view.snapshot,
        "every cell",
        view.name,
        build=lambda: terms.cell_names(view.snapshot.of_sweep("cells", view.name)),
    )


def no_figures(view: View) -> None:
    """A sweep without a single figure: say why, as far as it is known, and stop."""
    failed = int(view.sweep["runs_failed"])
    if failed:
        st.error(f"No run of this sweep gave a figure: {terms.plural(failed, 'run')} failed or were interrupted.")
        failures = view.snapshot.of_sweep("failures", view.name)
        for _, failure in failures.head(3).iterrows():
            st.markdown(
                f"- K={int(failure['k'])}: {terms.outside(failure['reason'])} (`{terms.outside(failure['kind'])}`)"
            )
        st.page_link("pages/runs.py", label="Reasons and log lines of every run", query_params={"sweep": view.name})
    else:
        runs = view.snapshot.of_sweep("runs", view.name)
        done = runs[runs["status"] == "done"]
        if (done["role"] == "arm").any():
            st.info("The runs of this sweep were timed and not measured: its figures are on the page Proposer timing.")
            st.page_link("pages/proposer.py", label="Proposer timing", query_params={"sweep": view.name})
        elif len(done):
            st.info("Only K=0 anchors of this sweep are finished yet: they show drift and are in no figure.")
        else:
            st.info("No run of this sweep is finished yet.")
        st.page_link("pages/live.py", label="Follow it while it runs", query_params={"sweep": view.name})
    st.stop()
