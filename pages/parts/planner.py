"""The planner on a page: how many blocks a sweep would take to answer as exactly as the reader asks."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from backend.analysis.planner import Plan, Quantity, Target, plan_cell, plan_words
from backend.store import queries, queries_explorer
from pages.parts import link, numbers, show
from pages.parts.frame import View
from pages.parts.once import once

ASKS: dict[str, tuple[str, str, float]] = {  # quantity -> (words, unit, half-width at first)
    "t_draft": ("t_draft of the cycle fit", "ms", 3.0),
    "tok_s": ("decode throughput of each K", "%", 2.0),
    "loss": ("what the best K may lose", "%", 1.0),
}
CHOICES = ("plan", *(f"to_{name}" for name in ASKS), "scatter")  # the link's names


def draw(view: View, cell_id: str) -> None:
    """The question, the blocks it takes, and whether blocks or requests are the better buy."""
    left, right = st.columns(2)
    with left:
        asked = link.one("plan", "To know", list(ASKS), "t_draft", words=lambda name: ASKS[name][0])
    words, unit, first = ASKS[asked]
    with right:
        half_width = numbers.number(
            f"to_{asked}", f"to within ± ({unit})", first, low=0.01, high=99.0 if unit == "%" else 10_000.0, step=0.5
        )
    quantity: Quantity = "t_draft" if asked == "t_draft" else "tok_s" if asked == "tok_s" else "loss"
    question = f"To know {words} ± {half_width:g} {unit}"
    plan, table = _plan(view, cell_id, quantity, half_width, None, question)
    if asked == "t_draft" and not plan.needs and plan.scatter.value is None:
        st.info(f"{plan_words(plan)[0]} Give the scatter of one run, if it is known from elsewhere:")
        label = "Scatter of one run's cycle (ms)"
        scatter_ms = numbers.number("scatter", label, 11.0, low=0.01, high=10_000.0, step=0.5)
        plan, table = _plan(view, cell_id, quantity, half_width, scatter_ms, question)
    if not plan.needs:
        st.info(plan_words(plan)[0])
        return
    show.table(table)
    st.markdown("\n".join(f"- {line}" for line in (plan_words(plan)[0], plan_words(plan)[-1])))
    st.caption(
        f"From pure error: replicates about their depth and block ({plan.blocks_now} blocks at hand). Repeats do not "
        "shrink a curve that is no line: its misses are in the fit's own interval, not in this plan: where the cycle "
        "bends, the fit stays wider than planned. The same from a terminal: `python -m backend plan`."
    )


def _plan(
    view: View, cell_id: str, quantity: Quantity, half_width: float, scatter_ms: float | None, question: str
) -> tuple[Plan, show.Table]:
    snapshot = view.snapshot

    def planned() -> tuple[Plan, show.Table]:
        """From the runs as they are, and the requests that a prediction of hours needs; and the plan's table."""
        con = queries.connect(snapshot.path)
        try:
            requests = queries_explorer.request_figures(con, view.name, cell_id)
        finally:
            con.close()
        rows, runs = snapshot.cell_rows(view.name, cell_id), snapshot.of_sweep("runs", view.name)
        plan = plan_cell(rows, Target(quantity, half_width), requests=requests, runs=runs, scatter_ms=scatter_ms)
        return plan, _table(plan, question)

    return once(snapshot, "plan", view.name, cell_id, quantity, half_width, scatter_ms, build=planned)


def _table(plan: Plan, question: str) -> show.Table:
    rows = [
        {
            question: f"{need.meaning[0].upper()}{need.meaning[1:]}",
            "Blocks": "out of reach" if need.blocks is None else str(need.blocks),
            "By the interval of the scatter": _span(need.low, need.high),
            "Hours more": "" if need.hours_more is None else f"{need.hours_more:.2f}",
        }
        for need in plan.needs
    ]
    return show.Table(pd.DataFrame(rows), "Blocks that each reading of the question takes")


def _span(low: int | None, high: int | None) -> str:
    return f"{low or 'out of reach'} to {high or 'out of reach'}" if low != high else ""
