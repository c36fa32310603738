"""Overview: which K, how sure, what a wrong K costs, and the two curves that explain it."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from backend import charts
from backend.analysis.compare import MARGIN_PERCENT
from backend.analysis.comparison import Comparison
from backend.analysis.estimate import Estimate
from backend.analysis.hold_out import faster_than_predicted
from backend.analysis.selection import arms
from backend.analysis.sentence import answer_sentence
from backend.analysis.summary import KSummary
from pages.parts import frame, link, show, terms
from pages.parts.once import once

CURVES = {"decode_tok_s": 560, "tokens_per_step": 260, "cycle_ms": 260}  # -> height
MAIN, *BESIDE = CURVES


def curve(quantity: str, rows: list[KSummary], runs: pd.DataFrame, comparison: Comparison) -> show.Chart:
    """One quantity against K, with the runs behind where there is more than one a depth."""
    axis = terms.QUANTITIES[quantity]
    points = pd.DataFrame([terms.estimate_row(row.figures()[quantity], k=row.k) for row in rows])
    single = (
        runs[["k", "block", "order_index", "run_id", "cell_id"]].assign(value=runs[quantity]).dropna(subset=["value"])
    )
    single["hover"] = [show.run_hover(run, axis.words(run["value"])) for _, run in single.iterrows()]
    main, repeated = quantity == MAIN, len(single) > single["k"].nunique()
    zero = points.loc[(points["k"] == 0) & points["value"].notna(), "value"]
    best = comparison.recommendation.k if comparison.recommendation else None
    within = [loss.k for loss in comparison.depths if loss.verdict == "within"]
    figure = charts.depth_curve(
        points,
        axis,
        name="mean over runs" if repeated else view.name,
        runs=single if repeated else None,
        reference=float(zero.iloc[0]) if main and len(zero) else None,
        marked=best if main else None,
        marked_name="fastest" if best == comparison.best_k else "recommended",
        within=within if main and len(within) > 1 else (),
        within_name=f"within {MARGIN_PERCENT:g}% of the fastest",
        about=str(cell_id),
        legend=main,
        height=CURVES[quantity],
    )
    there = points.dropna(subset=["value"])
    told = "; ".join(f"K={int(p['k'])}: {axis.words(p['value'], p['low'], p['high'])}" for _, p in there.iterrows())
    found = f"{terms.verdict(comparison)}. " if main else ""
    return show.Chart(figure, f"{found}{axis.label} against draft depth K. {told}")


def chance(p: float | None) -> str:
    """P(best): never the certainty that a number of draws cannot give."""
    return "not known" if p is None else "under 0.01" if p < 0.01 else "over 0.99" if p > 0.99 else f"{p:.2f}"


def prompts(estimate: Estimate) -> str:
    """How many prompts an interval is over."""
    return str(estimate.n) if estimate.has_interval and "prompt" in estimate.method else ""


def every_depth(rows: list[KSummary], comparison: Comparison) -> show.Table:
    """A row a depth: the three curves' figures, loss, probability, verdict, and how many runs and prompts."""
    losses = {loss.k: loss for loss in comparison.depths}
    axes = {name: terms.QUANTITIES[name] for name in CURVES}
    told = pd.DataFrame(
        [
            {
                "K": row.k,
                **{axis.title: terms.figure(row.figures()[name], axis) for name, axis in axes.items()},
                "Loss against fastest (%)": terms.percent(losses[row.k].loss_percent)
                if row.k in losses
                else "not known",
                "P(fastest)": chance(losses[row.k].p_best if row.k in losses else None),
                "Verdict": losses[row.k].verdict if row.k in losses else "no throughput",
                "Runs": link.runs_behind(row.n_runs, view.name, row.k, cell_id),
                "Prompts": prompts(row.tokens_per_step),
            }
            for row in rows
        ]
    )
    return show.Table(told, "Figures of every depth with their intervals")


def named_depths(comparison: Comparison) -> show.Table | None:
    """A row a depth that the specification names, with what it loses; None where it names none."""
    runs = {loss.k: loss.runs for loss in comparison.depths}
    told = pd.DataFrame(
        [
            {
                "Depth": regret.name,
                "K": regret.k,
                "Loss against fastest (%)": terms.percent(regret.loss_percent),
                "Runs": link.runs_behind(runs.get(regret.k, 0), view.name, regret.k, cell_id),
                "Why no interval": regret.loss_percent.reason or "",
            }
            for regret in comparison.regrets
        ]
    )
    return None if told.empty else show.Table(told, "Loss of every depth that the sweep's specification names")


def content() -> dict[str, Any]:
    """All that the page shows of a cell. Curves: None where no depth has the figure."""
    rows = [row for row in view.snapshot.summary(view.name) if row.cell_id == cell_id]
    comparison = view.snapshot.comparison(view.name, cell_id)
    runs = arms(view.snapshot.cell_rows(view.name, cell_id))
    rates = [row.decode_tok_s for row in rows]
    drawn = [name for name in CURVES if name == MAIN or any(row.figures()[name].value is not None for row in rows)]
    return {
        "verdict": terms.verdict(comparison),
        "answer": answer_sentence(comparison, source=str(view.sweep["source"])),
        "curves": {quantity: curve(quantity, rows, runs, comparison) for quantity in drawn},
        "explained": terms.explained(comparison.concurrency),
        "every depth": every_depth(rows, comparison),
        "named depths": named_depths(comparison),
        "no interval": sorted({rate.reason for rate in rates if rate.value is not None and rate.reason}),
    }


TOLD = 4  # findings of a kind that are told in full


def to_know() -> tuple[list[tuple[str, str]], str | None]:
    """Severity and words of each kind of warning, and the first run that has one."""
    findings = view.snapshot.of_sweep("findings", view.name)
    warnings = findings[findings["severity"].isin(["warning", "error"])]
    runs = view.snapshot.of_sweep("runs", view.name).set_index("run_id")["order_index"].dropna()
    said = []
    for (code, severity), group in warnings.groupby(["code", "severity"], sort=False):
        messages = []
        for message, same in group.groupby("message", sort=False):
            orders = runs[runs.index.isin(same["run_id"])]
            messages.append(f"run {orders.iloc[0]:g}, {message}" if len(orders) == 1 else str(message))
        more = f"; and {len(messages) - TOLD} more" if len(messages) > TOLD else ""
        told = terms.sentences("; ".join(messages[:TOLD]) + more, group["action"].iloc[0])
        said.append((str(severity), f"**{terms.outside(code)}**: {terms.outside(told)}"))
    of_runs = warnings.loc[warnings["run_id"].fillna("") != "", "run_id"]
    return said, str(of_runs.iloc[0]) if len(of_runs) else None


def surprise() -> str | None:
    """What the page says where the advised depth is faster than the other depths predict."""
    advice = view.snapshot.comparison(view.name, cell_id).recommendation
    found = advice and faster_than_predicted(view.snapshot.held_out(view.name, cell_id), advice.k)
    if not found:
        return None
    return (
        f"**Faster than the other depths predict**: they give {found.predicted_tok_s.value:.2f} tok/s for K={found.k}, "
        f"{terms.percent(found.error_percent, signed=True)} % against what was measured. The runs of the fastest depth "
        "may be partly lucky; more blocks would tell. Each depth so predicted: page What if."
    )


view = frame.open_page("Overview")
frame.source_badge(view.sweep)
cell_id = frame.choose_cell(view)
if cell_id is None:
    frame.no_figures(view)

found = once(view.snapshot, "overview", view.name, cell_id, build=content)
st.header(found["verdict"], anchor=False)
st.markdown(terms.outside(found["answer"]))

left, right = st.columns([3, 2], gap="medium")
with left:
    st.subheader("Decode throughput", anchor=False)
    show.chart(found["curves"]["decode_tok_s"], key="curve-decode_tok_s")
with right:
    st.subheader("What explains it", anchor=False)
    st.caption(found["explained"])
    for quantity in BESIDE:
        if quantity in found["curves"]:
            show.chart(found["curves"][quantity], key=f"curve-{quantity}")

st.subheader("Every depth", anchor=False)
show.table(found["every depth"])
why = terms.outside(" or ".join(found["no interval"]))
st.caption(
    "Figures in brackets are 95% intervals: over runs for throughput and cycle, over prompts for tokens per step"
    + (f"; none for throughput where there is {why}. " if why else ". ")
    + f"Verdict: *within* {MARGIN_PERCENT:g}% of the fastest depth, *worse* by more, or *unresolved*: not told apart "
    "by these runs. The loss is against whichever depth is fastest, all depths at once, and never below 0; Compare K "
    "tests one depth against one other, which can tell more. P(fastest): the probability that no other is faster; it "
    "can be small where the loss may still be. A number of runs leads to them; K=0 anchors, for drift, do not count."
)
if found["named depths"]:
    st.subheader("What the named depths cost", anchor=False)
    show.table(found["named depths"])

warnings, first = once(view.snapshot, "warnings", view.name, build=to_know)
lucky = once(view.snapshot, "surprise", view.name, cell_id, build=surprise)
if lucky:
    warnings = [("warning", lucky), *warnings]
if warnings:
    st.subheader("What to know before trusting this", anchor=False)
    for severity, told in warnings:
        (st.error if severity == "error" else st.warning)(told)
    where = {"sweep": view.name} | ({"run": first} if first else {})
    st.page_link("pages/runs.py", label="Findings run by run", query_params=where)
