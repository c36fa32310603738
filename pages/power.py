"""Power and energy: what a token costs in energy at each depth, what the sensors were, and one run over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

from backend import charts
from backend.analysis.power_series import PowerLine, power_lines
from backend.analysis.selection import arms
from backend.analysis.summary import KSummary
from backend.charts import Axis
from backend.charts.power import over_time
from pages.parts import frame, link, order, show, terms
from pages.parts.once import once

CLOCK = Axis("SM clock", "MHz", 0)
ENERGY = ("tokens_per_joule", "power_w")
SCOPES = {
    "wall": "wall (the machine with its power supply)",
    "node": "node (the whole machine)",
    "soc": "soc (the package: CPU and GPU)",
    "gpu": "gpu (the GPU alone)",
    "cpu": "cpu (the CPU package alone)",
}
CODES = ("power-", "clocks-", "agent-lost", "node-unwatched")

view = frame.open_page("Power and energy")
frame.source_badge(view.sweep)
cell_id = frame.choose_cell(view)
if cell_id is None:
    frame.no_figures(view)
these = (view.snapshot, "power", view.name, cell_id)


def curve(name: str, rows: list[KSummary], runs: pd.DataFrame) -> show.Chart | str:
    """One quantity against K, single runs behind; a sentence where it is not known."""
    axis = terms.QUANTITIES[name]
    points = pd.DataFrame([terms.estimate_row(row.figures()[name], k=row.k) for row in rows])
    known = points.dropna(subset=["value"])
    if known.empty:
        return f"{axis.label} is not known: {rows[0].figures()[name].reason}."
    single = runs[["k", "block", "order_index", "run_id", "cell_id"]].assign(value=runs[name]).dropna(subset=["value"])
    single["hover"] = [show.run_hover(run, axis.words(run["value"])) for _, run in single.iterrows()]
    repeated = len(single) > single["k"].nunique()
    told = "; ".join(f"K={int(p['k'])}: {axis.words(p['value'], p['low'], p['high'])}" for _, p in known.iterrows())
    figure = charts.depth_curve(
        points,
        axis,
        name="mean over runs" if repeated else view.name,
        runs=single if repeated else None,
        about=cell_id,
        height=360,
    )
    return show.Chart(figure, f"{axis.label} against draft depth K. {told}")


def scope_words(runs: pd.DataFrame) -> str:
    """What the energy is of."""
    scopes = sorted({str(scope) for scope in runs["power_scope"].dropna()})
    phases = sorted({str(phase) for phase in runs["power_phase"].dropna()}) if "power_phase" in runs else []
    return (
        f"Scope: {terms.outside(', '.join(SCOPES.get(scope, scope) for scope in scopes)) or 'not said'}. "
        + "Summed over all nodes of a run; a run with a node missing has no figure. "
        + ("Energy of the decode windows alone. " if phases == ["decode"] else "")
        + ("Energy of the whole measured phase: prefill is in it. " if phases == ["measure"] else "")
        + ("As reported by the source; how it was measured is not known here. " if scopes == ["reported"] else "")
    )


def every_depth(rows: list[KSummary]) -> show.Table:
    """Both quantities of every depth."""
    axes = {name: terms.QUANTITIES[name] for name in ENERGY}
    told = [
        {
            "K": row.k,
            **{axis.title: terms.figure(row.figures()[name], axis) for name, axis in axes.items()},
            "Runs": link.runs_behind(row.power_w.n, view.name, row.k, cell_id),
            "Why no interval": row.tokens_per_joule.reason or row.power_w.reason or "",
        }
        for row in rows
    ]
    return show.Table(pd.DataFrame(told), "Energy efficiency and power of every depth, with intervals")


def about_power() -> show.Table | None:
    """Findings about power, clocks and nodes; None where there are none."""
    found = view.snapshot.of_sweep("findings", view.name)
    found = found[found["code"].str.startswith(CODES)]
    if found.empty:
        return None
    told = pd.DataFrame(
        {
            "Severity": found["severity"],
            "Run": [
                link.to_runs(run_id.rpartition(":")[2], view.name, run=run_id) if run_id else ""
                for run_id in found["run_id"]
            ],
            "Finding": found["message"],
            "What to do": found["action"],
        }
    )
    return show.Table(told, "Findings about power, clocks and nodes")


def every_sensor() -> show.Table:
    """What was read where."""
    told = pd.DataFrame(
        {
            "Node": sensors["node"],
            "Scope": sensors["scope"],
            "Source": sensors["source"],
            "Runs": sensors["runs"],
            "Readings": [f"{int(s['readings'])} of {int(s['samples'])}" for _, s in sensors.iterrows()],
            "Counter": ["yes" if counts else "no" for counts in sensors["has_counter"]],
            "Mean (W)": ["not known" if pd.isna(w) else f"{w:.1f}" for w in sensors["power_w"]],
            "Why readings are missing": sensors["unsupported_reason"].fillna(""),
        }
    )
    return show.Table(told, "Power sensors of every node")


def content() -> dict[str, Any]:
    """What is told of all runs of the cell."""
    rows = [row for row in view.snapshot.summary(view.name) if row.cell_id == cell_id]
    energies = view.snapshot.of_sweep("run_energy", view.name)
    runs = arms(energies[energies["cell_id"] == cell_id])
    return {
        "curves": {name: curve(name, rows, runs) for name in ENERGY},
        "reasons": "; ".join(sorted({str(row.power_w.reason) for row in rows if row.power_w.reason})),
        "scope": scope_words(runs),
        "every depth": every_depth(rows),
        "findings": about_power(),
    }


sensors = view.snapshot.of_sweep("power_sensors", view.name)
found = once(*these, build=content)
if all(isinstance(drawn, str) for drawn in found["curves"].values()):
    st.info(
        "No energy is known for this sweep: "
        + ("no power sensor was read. " if sensors.empty else f"{terms.outside(found['reasons'])}. ")
        + "A sweep reads power where its specification names the machines (`[[node]]`, see docs/gb10.md) and a sensor "
        "answers: NVML, hwmon, RAPL or a wall meter."
    )
else:
    st.caption(found["scope"])
    for place, (name, drawn) in zip(st.columns(2, gap="medium"), found["curves"].items(), strict=True):
        with place:
            if isinstance(drawn, str):
                st.info(terms.outside(drawn))
            else:
                show.chart(drawn, key=f"curve-{name}")
    show.table(found["every depth"])
    st.caption("Figures in brackets are 95% intervals over runs. Scopes are never added up and never compared.")

if found["findings"]:
    st.subheader("Findings", anchor=False)
    show.table(found["findings"])
if sensors.empty:
    st.stop()

st.subheader("Sensors", anchor=False)
show.table(once(*these, "sensors", build=every_sensor))
st.caption("The mean is over every reading of the sweep, warm-up and pauses included; the figures above are not.")

st.subheader("One run over time", anchor=False)
names = order.names(view)
run_id = link.one("run", "Run", list(names), next(iter(names)), words=names.__getitem__)


def over_the_run(
    values: dict[PowerLine, tuple[float, ...]], measured: pd.DataFrame, axis: Axis, names: Callable[[PowerLine], str]
) -> tuple[show.Chart, str] | None:
    """All lines that have a value, and their means in words; None where none has one."""
    there = {line: value for line, value in values.items() if pd.Series(value, dtype=float).notna().any()}
    if not there:
        return None
    table = pd.concat(
        [pd.DataFrame({"series": names(line), "t_s": line.t_s, "value": value}) for line, value in there.items()]
    )
    t_s = table["t_s"].to_numpy()[:, None]
    inside = table[((measured["begin_s"].to_numpy() <= t_s) & (t_s <= measured["end_s"].to_numpy())).any(axis=1)]
    means = (inside if len(inside) else table).groupby("series", sort=False)["value"].mean()
    middle = "; ".join(f"{series} {axis.words(value)}" for series, value in means.items())
    middle = f"Mean {'while measured' if len(inside) else 'over the run'}: {middle}."
    alt = f"{axis.label} over the run {run_id}. {middle}"
    return show.Chart(over_time(table, measured, axis), alt), terms.outside(middle)


def one_run() -> dict[str, Any] | None:
    """Power and clock of the chosen run; None where it has no sample."""
    spans = view.snapshot.of_run("measure_spans", run_id)
    samples = view.snapshot.of_run("power_of_run", run_id)
    if samples.empty:
        return None
    origin = float(spans["begin_unix_s"].min() if len(spans) else samples["t_unix_s"].min())
    lines = power_lines(samples, origin)
    measured = pd.DataFrame(
        {
            "begin_s": spans["begin_unix_s"] - origin,
            "end_s": spans["end_unix_s"] - origin,
            "name": "measured" if len(spans) == 1 else spans["cell_id"].str.rsplit(":", n=2).str[1],
        }
    )
    watts = {line: line.power_w for line in lines}
    # every sensor's sample holds the node's clock: one line a node, and the sensor that was read most directly
    clocks = {line.node: line for line in sorted(lines, key=lambda line: line.method)}
    mhz = {line: line.clock_mhz for line in clocks.values()}
    return {
        "watts": over_the_run(watts, measured, terms.QUANTITIES["power_w"], lambda line: line.name),
        "clock": over_the_run(mhz, measured, CLOCK, lambda line: line.node),
        "silent": sorted({f"{line.name}: {line.reason}" for line in lines if line.reason}),
    }


over = once(*these, "run", run_id, build=one_run)
if over is None:
    st.info("No power sample of this run is stored.")
    st.stop()
for key, missing in (("watts", "No power reading in this run."), ("clock", "No clock was read in this run.")):
    if over[key] is None:
        st.caption(missing)
    else:
        drawn, middle = over[key]
        show.chart(drawn, key=key)
        st.caption(middle)
if over["silent"]:
    st.caption(f"Missing readings: {terms.outside('; '.join(over['silent']))}.")
