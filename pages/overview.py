"""Overview: which K, how sure, what a wrong K costs, and the two curves that explain it."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from backend import charts
from backend.analysis.selection import arms
from backend.analysis.sentence import answer_sentence
from pages.parts import frame, show, terms

view = frame.open_page("Overview")
frame.source_badge(view.sweep)
cell_id = frame.choose_cell(view)
if cell_id is None:
    frame.no_figures(view)

rows = [row for row in view.snapshot.summary(view.name) if row.cell_id == cell_id]
comparison = view.snapshot.comparison(view.name, cell_id)
runs = arms(view.snapshot.cell_rows(view.name, cell_id))
best = comparison.recommendation.k if comparison.recommendation else None

st.header(terms.verdict(comparison), anchor=False)
st.markdown(answer_sentence(comparison, source=str(view.sweep["source"])))


def curve(quantity: str, height: int) -> None:
    """One quantity against K, with the runs behind where there is more than one a depth."""
    axis = terms.QUANTITIES[quantity]
    points = pd.DataFrame([terms.estimate_row(row.figures()[quantity], k=row.k) for row in rows])
    single = runs[["k", "block", "order_index", "run_id"]].assign(value=runs[quantity]).dropna(subset=["value"])
    single["hover"] = [show.run_hover(run, axis.words(run["value"])) for _, run in single.iterrows()]
    main, repeated = quantity == "decode_tok_s", len(single) > single["k"].nunique()
    zero = points.loc[(points["k"] == 0) & points["value"].notna(), "value"]
    figure = charts.depth_curve(
        points,
        axis,
        name="mean over runs" if repeated else view.name,
        runs=single if repeated else None,
        reference=float(zero.iloc[0]) if main and len(zero) else None,
        marked=best if main else None,
        marked_name="fastest" if best == comparison.best_k else "recommended",
        height=height,
    )
    there = points.dropna(subset=["value"])
    told = "; ".join(f"K={int(p['k'])}: {axis.words(p['value'], p['low'], p['high'])}" for _, p in there.iterrows())
    show.chart(figure, f"{axis.label} against draft depth K. {told}", key=f"curve-{quantity}")


left, right = st.columns([3, 2], gap="medium")
with left:
    st.subheader("Decode throughput", anchor=False)
    curve("decode_tok_s", 560)
with right:
    st.subheader("What explains it", anchor=False)
    st.caption("Throughput is tokens per step over cycle time: depth raises both.")
    curve("tokens_per_step", 260)
    curve("cycle_ms", 260)

st.subheader("Every depth", anchor=False)
losses = {loss.k: loss for loss in comparison.depths}
show.table(
    pd.DataFrame(
        [
            {
                "K": row.k,
                **{
                    axis.title: terms.figure(row.figures()[name], axis)
                    for name, axis in terms.QUANTITIES.items()
                    if name in ("decode_tok_s", "tokens_per_step", "cycle_ms")
                },
                "Loss against fastest (%)": terms.percent(losses[row.k].loss_percent)
                if row.k in losses
                else "not known",
                "Verdict": losses[row.k].verdict if row.k in losses else "no throughput",
                "Runs": row.n_runs,
            }
            for row in rows
        ]
    ),
    "Figures of every depth with their intervals",
)
st.caption(
    "Figures in brackets are 95% intervals; where there is none, a single run (or a printed figure) stands alone. "
    "Verdict: *within* 1% of the fastest depth, *worse* by more, or *unresolved*: not told apart by these runs."
)

findings = view.snapshot.of_sweep("findings", view.name)
warnings = findings[findings["severity"].isin(["warning", "error"])]
if len(warnings):
    st.subheader("What to know before trusting this", anchor=False)
    for (code, severity), group in warnings.groupby(["code", "severity"], sort=False):
        box = st.error if severity == "error" else st.warning
        several = f" ({terms.plural(len(group), 'run')})" if len(group) > 1 else ""
        box(f"**{code}**{several}: {terms.sentences(group['message'].iloc[0], group['action'].iloc[0])}")
    st.page_link("pages/runs.py", label="Findings run by run", query_params={"sweep": view.name})
