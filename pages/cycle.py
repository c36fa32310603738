"""Cycle fit: what a draft costs, what a position costs, and how both move with the depths in the fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import streamlit as st

from backend import charts
from backend.analysis.cycle_window import Window
from backend.analysis.selection import arms, cycle_ms
from backend.charts import Axis
from pages.parts import frame, link, planner, show, terms
from pages.parts.once import once

AXIS = terms.QUANTITIES["cycle_ms"]
BASE = Axis("t_verify_base", "ms", 2)
DRAFT = Axis("t_draft", "ms", 2)
MARGINAL = Axis("t_marginal", "ms", 2)
MEANING = {
    BASE: "The cycle of the K=0 runs.",
    DRAFT: "What drafting adds once, whatever the depth.",
    MARGINAL: "What one more position adds to draft and verify.",
}
LEFT = Axis("Run minus line", "ms", 2)
NO_DF = "no residual degrees of freedom"

view = frame.open_page("Cycle fit")
frame.source_badge(view.sweep)
cell_id = frame.choose_cell(view)
if cell_id is None:
    frame.no_figures(view)

st.markdown(
    "cycle(K) = **t_verify_base** + **t_draft** (once K ≥ 1) + K × **t_marginal**, one least-squares fit over "
    "the runs of all depths."
)
fit = view.snapshot.cycle_fit(view.name, cell_id)
these = (view.snapshot, "cycle", view.name, cell_id)


def cycles(shown: Axis, less: Callable[[int], float] = lambda k: 0.0) -> pd.DataFrame:
    """A row a run: its cycle, less what `less` gives for its depth."""
    runs = arms(view.snapshot.cell_rows(view.name, cell_id))
    runs = runs.assign(value=cycle_ms(runs) - [less(int(k)) for k in runs["k"]]).dropna(subset=["value"])
    return runs.assign(hover=[show.run_hover(run, shown.words(run["value"])) for _, run in runs.iterrows()])


def means() -> show.Chart | None:
    """What there is without a fit; None where no run has a cycle."""
    by_k = cycles(AXIS).groupby("k")["value"].agg(value="mean", n="size").reset_index()
    if by_k.empty:
        return None
    told = "; ".join(f"K={int(row['k'])}: {AXIS.words(row['value'])}" for _, row in by_k.iterrows())
    mean = by_k.assign(low=None, high=None, reason="means over runs", about=cell_id)
    return show.Chart(
        charts.depth_curve(mean, AXIS, name=view.name), f"Cycle time against draft depth K, means over runs. {told}"
    )


if not fit.windows:
    st.info(f"No cycle fit: {terms.outside(fit.reason)}.")
    unfitted = once(*these, "means", build=means)
    if unfitted:
        show.chart(unfitted, key="cycle")
    st.stop()


def named(depths: tuple[int, ...]) -> str:
    """ "K=1-3" where every depth is there, else the depths."""
    return (
        f"K={depths[0]}-{depths[-1]}"
        if depths == tuple(range(depths[0], depths[-1] + 1)) and len(depths) > 2
        else ("K=" + ",".join(str(k) for k in depths))
    )


def notes(w: Window) -> str:
    """What to know of a window: its flags, and why it has no interval."""
    flags = [flag.replace("-", " ") for flag in w.flags]
    return ", ".join([*flags, *([w.t_draft_ms.reason] if w.t_draft_ms.reason else [])])


def fitted() -> show.Chart:
    """The runs with the line over the window and its band."""
    line = [
        terms.estimate_row(window.contrast((1.0, 1.0, float(k))).estimate(window.level, NO_DF), k=float(k))
        for k in np.arange(0, window.k[-1] + 0.01, 0.25)
    ]
    told = ", ".join(f"{axis.label} {axis.words(estimate.value)}" for axis, estimate in costs)
    return show.Chart(
        charts.cycle_fit(
            cycles(AXIS),
            pd.DataFrame(line),
            AXIS,
            t_draft=window.t_draft_ms.value,
            window=named(window.k),
            about=cell_id,
        ),
        f"Cycle time against draft depth K with the line fitted over {named(window.k)}: {told}",
    )


def left_over() -> show.Chart:
    """Every run of the window less the line."""
    left = cycles(LEFT, lambda k: window.cycle_at(k).value or 0.0)
    left = left[left["k"].isin([0, *window.k])]
    means = left.groupby("k")["value"].mean()
    furthest = means.abs().idxmax()
    return show.Chart(
        charts.residuals(left, LEFT),
        f"What the line over {named(window.k)} leaves of every run, by draft depth K. Furthest from it: K={furthest}, "
        f"by {LEFT.words(means[furthest])} in the mean of its runs",
    )


def drift() -> show.Chart:
    """Both costs by the depths in the fit."""
    rows = [
        terms.estimate_row(estimate, quantity=quantity, window=named(w.k), about=cell_id)
        for w in fit.windows
        for quantity, estimate in (("t_draft", w.t_draft_ms), ("t_marginal", w.t_marginal_ms))
    ]
    first, last = fit.windows[0], fit.windows[-1]
    told = "; ".join(
        f"{axis.label} {axis.words(a.value, a.low, a.high)} to {axis.words(b.value, b.low, b.high)}"
        for axis, a, b in (
            (DRAFT, first.t_draft_ms, last.t_draft_ms),
            (MARGINAL, first.t_marginal_ms, last.t_marginal_ms),
        )
    )
    return show.Chart(
        charts.drift(pd.DataFrame(rows), {"t_draft": DRAFT, "t_marginal": MARGINAL}),
        f"How the fit moves with its depths, from {named(fit.windows[0].k)} to {named(fit.windows[-1].k)}: {told}",
    )


def by_window() -> show.Table:
    """The fit by the depths in it."""
    rows = [
        {
            "Depths": named(w.k),
            "Runs": link.to_runs(str(w.n), view.name, cell=cell_id, ended="done"),
            "t_draft (ms)": terms.figure(w.t_draft_ms, DRAFT),
            "t_marginal (ms)": terms.figure(w.t_marginal_ms, MARGINAL),
            "Residual (ms)": terms.figure(w.residual_ms, AXIS),
            "Notes": notes(w),
        }
        for w in fit.windows
    ]
    return show.Table(pd.DataFrame(rows), "The fit by the depths in it")


def other_intervals() -> show.Table:
    """The pooled fit's intervals and the study's."""
    rows = [
        {
            "Depths": named(w.k),
            "t_draft, pooled (ms)": terms.figure(w.pooled_t_draft_ms, DRAFT),
            "t_marginal, pooled (ms)": terms.figure(w.pooled_t_marginal_ms, MARGINAL),
            "t_draft, the study's (ms)": "" if w.study_t_draft_ms is None else terms.figure(w.study_t_draft_ms, DRAFT),
        }
        for w in fit.windows
    ]
    return show.Table(pd.DataFrame(rows), "The same windows with other intervals")


def without_one() -> show.Table | None:
    """The fit without one depth; None where too few are left."""
    rows = [
        {
            "Left out": f"K={k}",
            "t_draft (ms)": terms.figure(draft, DRAFT),
            "t_marginal (ms)": terms.figure(marginal, MARGINAL),
        }
        for k, draft, marginal in fit.leave_one_out
    ]
    return show.Table(pd.DataFrame(rows), "The fit without one depth") if rows else None


windows = {str(window.k[-1]): window for window in fit.windows}
top = link.one("window", "Depths in the fit", list(windows), list(windows)[-1], words=lambda m: named(windows[m].k))
window = windows[top]
costs = ((BASE, fit.t_verify_base_ms), (DRAFT, window.t_draft_ms), (MARGINAL, window.t_marginal_ms))
for place, (axis, estimate) in zip(st.columns(3), costs, strict=True):
    place.metric(axis.label, axis.words(estimate.value), border=True, help=MEANING[axis])
    bounds = (
        f"95% interval [{estimate.low:.2f}, {estimate.high:.2f}] ms"
        if estimate.has_interval
        else f"no interval: {terms.outside(estimate.reason)}"
    )
    place.caption(f"{bounds}, n={estimate.n}  \n{terms.outside(estimate.method)}")

show.chart(once(*these, "fit", top, build=fitted), key="cycle")
st.markdown("\n".join(f"- {terms.outside(sentence)}" for sentence in fit.diagnosis))
show.chart(once(*these, "residuals", top, build=left_over), key="left")

st.header("How the fit drifts with its depths", anchor=False)
st.caption(
    "The same model over K=1..m for every m. A cost that is real stays put as depths are added; an interval "
    "that is not defined (no residual degrees of freedom) is an open mark, not a short bar."
)
show.chart(once(*these, "drift", build=drift), key="drift")
show.table(once(*these, "by window", build=by_window))
st.caption("Figures in brackets are 95% intervals. A number of runs leads to all finished runs of the cell.")

more = link.more("intervals", "Other intervals for the same fit")
if more.open:
    with more:
        st.markdown(
            "*Pooled*: one fit over all runs. *The study's*: ± 2 standard errors, with the K=0 cycle taken as "
            "exact; by simulation it covers about 80%, not 95%."
        )
        show.table(once(*these, "other intervals", build=other_intervals))
        left_out = once(*these, "without one", build=without_one)
        if left_out:
            st.markdown("Leaving one depth out of the whole curve:")
            show.table(left_out)

more = link.more("planner", "How many blocks would it take to know it better?", holds=planner.CHOICES)
if more.open:
    with more:
        planner.draw(view, cell_id)
