"""Compare K: any metric, any depths, cells and sweeps side by side, and each depth against another."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from backend import charts
from backend.analysis.estimate import Estimate, student_t_mean
from backend.analysis.selection import arms, numbers
from backend.analysis.summary import KSummary
from pages.parts import frame, link, show, terms
from pages.parts.once import once

SUMMARISED = (
    "decode_tok_s",
    "tokens_per_step",
    "cycle_ms",
    "acceptance_length",
    "acceptance_rate",
    "ttft_s",
    "power_w",
    "tokens_per_joule",
)
AXES = {name: terms.QUANTITIES["acceptance" if name == "acceptance_rate" else name] for name in SUMMARISED}


def over(estimate: Estimate) -> str:
    """What an estimate's n counts: its method names prompts where they are what was resampled."""
    return "prompt" if "prompt" in estimate.method else "run"


view = frame.open_page("Compare K")
frame.source_badge(view.sweep)
own = view.snapshot.summary(view.name)
if not own:
    frame.no_figures(view)

every = view.snapshot.sweeps()
sources = dict(zip(every["sweep"], every["source"], strict=True))
left, right = st.columns(2)
with left:
    metric = link.one("metric", "Metric", SUMMARISED, SUMMARISED[0], words=lambda m: AXES[m].title)
with right:
    others = link.some(
        "with",
        "Beside it",
        [s for s in sources if s != view.name],
        [],
        words=lambda s: f"{s} ({sources[s]})",
        drops="cells",
    )
axis = AXES[metric]


def told(row: KSummary, sweep: str) -> Estimate:
    """The metric of one depth; what the summary has not is the mean over its runs."""
    if metric in row.figures():
        return row.figures()[metric]
    runs = arms(view.snapshot.cell_rows(sweep, row.cell_id))
    return student_t_mean(numbers(runs[runs["k"] == row.k], metric), axis.unit)


def figures_of() -> pd.DataFrame:
    """A row per sweep, cell and depth: an estimate table of the metric."""
    rows = []
    for sweep in [view.name, *others]:
        table = view.snapshot.of_sweep("cells", sweep)
        cells = terms.cell_names(table, whole=False)
        clients = dict(zip(table["cell_id"], table["concurrency"], strict=True))
        for row in view.snapshot.summary(sweep):
            series = ", ".join(filter(None, (f"{sweep} ({sources[sweep]})", cells[row.cell_id])))
            key = {"series": series, "cell_id": row.cell_id, "about": row.cell_id, "sweep": sweep, "runs": row.n_runs}
            key["concurrency"] = clients[row.cell_id]
            estimate = told(row, sweep)
            rows.append({**key, "over": over(estimate), **terms.estimate_row(estimate, k=row.k)})
    return pd.DataFrame(rows)


points = once(view.snapshot, "compare", view.name, metric, tuple(others), build=figures_of)

depths = [str(k) for k in sorted({int(k) for k in points["k"]})]
chosen = link.some("k", "Depths K", depths, depths)
names = dict(zip(points["cell_id"], points["series"], strict=True))
shown = list(names)
if len(names) > 1:
    shown = link.some("cells", "Cells", shown, shown, words=names.__getitem__)
points = points[points["cell_id"].isin(shown) & points["k"].astype(str).isin(chosen)]
if points.empty:
    st.info("Choose at least one depth" + ("." if len(names) == 1 else " and one cell."))
    st.stop()


def curves() -> show.Chart:
    """The curves, and where each of them is highest."""
    zero = points[(points["k"] == 0) & points["value"].notna()]
    reference = float(zero["value"].iloc[0]) if len(zero) and len(shown) == 1 else None
    ends = []
    for cell, of in points.dropna(subset=["value"]).groupby("cell_id", sort=False):
        most = of.loc[of["value"].idxmax()]
        ends.append(f"{names[cell]}: highest {axis.words(most['value'])} at K={int(most['k'])}")
    told = "; ".join(ends) or "No value is known"
    return show.Chart(
        charts.depth_curve(points, axis, name=view.name, reference=reference),
        f"{axis.label} against draft depth K. {told}. The table has every figure.",
    )


def figures() -> show.Table:
    """The same figures, and the runs behind each."""
    rows = [
        {
            "Sweep and cell": point["series"],
            "K": int(point["k"]),
            axis.title: axis.figure(point["value"], point["low"], point["high"]),
            "n": "" if pd.isna(point["n"]) else terms.plural(int(point["n"]), point["over"]),
            "Runs": link.runs_behind(int(point["runs"]), point["sweep"], int(point["k"]), point["cell_id"]),
            "Why no interval": terms.known(point["reason"]),
        }
        for _, point in points.iterrows()
    ]
    table = pd.DataFrame(rows)
    alone = table.drop(columns=["Sweep and cell"]) if len(shown) == 1 else table
    return show.Table(alone, f"{axis.label} of every chosen depth")


def pairwise() -> show.Table | None:
    """Each depth against the chosen one; None where there is only one."""
    rows = []
    for depth in comparison.depths:
        if depth.k == base:
            continue
        pair = next(p for p in comparison.pairs if {p.k, p.against} == {depth.k, base})
        change = pair.change_percent if pair.against == base else terms.turned(pair.change_percent)
        rows.append(
            {
                "K": depth.k,
                f"Decode throughput against K={base} (%)": terms.percent(change, signed=True),
                "p (Holm)": "" if pair.p_holm is None else f"{pair.p_holm:.2g}",
                "Runs": link.runs_behind(depth.runs, view.name, depth.k, cell_id),
                "Why no interval": change.reason or "",
            }
        )
    return show.Table(pd.DataFrame(rows), f"Change of decode throughput against K={base}") if rows else None


def by_category() -> list[tuple[str, show.Table]]:
    """The comparison within each prompt category, with its answer as heading; empty where prompts have none."""
    rate, told = AXES["decode_tok_s"], []
    for name, found in view.snapshot.categories(view.name, cell_id).items():
        rows = [
            {
                "K": depth.k,
                rate.title: rate.figure(depth.decode_tok_s),
                "Loss against fastest (%)": terms.percent(depth.loss_percent),
                "Runs": link.runs_behind(depth.runs, view.name, depth.k, cell_id),
                "Why no interval": depth.loss_percent.reason or "",
            }
            for depth in found.depths
        ]
        answer = f"{terms.outside(name)}: {terms.verdict(found)}"
        told.append((answer, show.Table(pd.DataFrame(rows), f"The comparison within {name}: {terms.verdict(found)}")))
    return told


choice = (metric, tuple(others), tuple(chosen), tuple(shown))
show.chart(once(view.snapshot, "compare-chart", view.name, *choice, build=curves), key="compare")
st.caption(f"{axis.label}: {terms.MEANING['acceptance' if metric == 'acceptance_rate' else metric]}")
if metric == "decode_tok_s" and (points["concurrency"] > 1).any():
    st.caption(terms.IN_PARALLEL)
if len({sources[s] for s in [view.name, *others]}) > 1:
    st.caption("These sweeps have different sources. They are drawn side by side and never pooled.")

st.header("Figures", anchor=False)
show.table(once(view.snapshot, "compare-table", view.name, *choice, build=figures))

st.header("One depth against another", anchor=False)
cell_id = frame.choose_cell(view)
comparison = view.snapshot.comparison(view.name, cell_id)
if not comparison.depths:
    st.info(f"Depths cannot be compared: {terms.outside(comparison.reason)}.")
    st.stop()
measured = [str(depth.k) for depth in comparison.depths]
base = int(link.one("base", "Compared with", measured, measured[0], words=lambda k: f"K={k}"))
pairs = once(view.snapshot, "pairs", view.name, cell_id, base, build=pairwise)
if pairs:
    show.table(pairs)
    st.caption("Paired inside blocks where there are blocks; intervals and p adjusted for all pairs (Holm).")
else:
    st.info("Only one depth has a throughput.")

categories = once(view.snapshot, "categories", view.name, cell_id, build=by_category)
if categories:
    st.header("By prompt category", anchor=False)
    for answer, table in categories:
        st.subheader(answer, anchor=False)
        show.table(table)
    st.caption(
        "Decode throughput of that category's requests alone, the same runs. The loss is against the fastest depth of "
        "that category, with its 95% interval, all depths at once."
    )
