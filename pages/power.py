"""Power: what a token costs in energy at each depth, what the sensors were, and one run over time."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import streamlit as st

from backend import charts
from backend.analysis.power_series import PowerLine, power_lines
from backend.analysis.selection import arms
from backend.charts import Axis
from backend.charts.power import over_time
from pages.parts import frame, link, show, terms

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

view = frame.open_page("Power")
frame.source_badge(view.sweep)
cell_id = frame.choose_cell(view)
if cell_id is None:
    frame.no_figures(view)
rows = [row for row in view.snapshot.summary(view.name) if row.cell_id == cell_id]
energies = view.snapshot.of_sweep("run_energy", view.name)
runs = arms(energies[energies["cell_id"] == cell_id])
sensors = view.snapshot.of_sweep("power_sensors", view.name)
points = {name: pd.DataFrame([terms.estimate_row(row.figures()[name], k=row.k) for row in rows]) for name in ENERGY}
known = {name: frame_.dropna(subset=["value"]) for name, frame_ in points.items()}


def curve(name: str) -> None:
    """One quantity against K, single runs behind."""
    axis = terms.QUANTITIES[name]
    single = runs[["k", "block", "order_index", "run_id"]].assign(value=runs[name]).dropna(subset=["value"])
    single["hover"] = [show.run_hover(run, axis.words(run["value"])) for _, run in single.iterrows()]
    repeated = len(single) > single["k"].nunique()
    told = "; ".join(
        f"K={int(p['k'])}: {axis.words(p['value'], p['low'], p['high'])}" for _, p in known[name].iterrows()
    )
    figure = charts.depth_curve(
        points[name],
        axis,
        name="mean over runs" if repeated else view.name,
        runs=single if repeated else None,
        about=cell_id or "",
        height=360,
    )
    show.chart(figure, f"{axis.label} against draft depth K. {told}", key=f"curve-{name}")


if all(frame_.empty for frame_ in known.values()):
    reasons = sorted({str(row.power_w.reason) for row in rows if row.power_w.reason})
    st.info(
        "No energy is known for this sweep: "
        + ("no power sensor was read. " if sensors.empty else f"{'; '.join(reasons)}. ")
        + "A sweep reads power where its specification names the machines (`[[node]]`, see docs/gb10.md) and a sensor "
        "answers: NVML, hwmon, RAPL or a wall meter."
    )
else:
    scopes = sorted({str(scope) for scope in runs["power_scope"].dropna()})
    phases = sorted({str(phase) for phase in runs["power_phase"].dropna()}) if "power_phase" in runs else []
    st.caption(
        f"Scope: {', '.join(SCOPES.get(scope, scope) for scope in scopes) or 'not said'}. "
        + "Summed over all nodes of a run; a run with a node missing has no figure. "
        + ("Energy of the decode windows alone. " if phases == ["decode"] else "")
        + ("Energy of the whole measured phase: prefill is in it. " if phases == ["measure"] else "")
        + ("As reported by the source; how it was measured is not known here. " if scopes == ["reported"] else "")
    )
    for place, name in zip(st.columns(2, gap="medium"), ENERGY, strict=True):
        with place:
            if known[name].empty:
                st.info(f"{terms.QUANTITIES[name].label} is not known: {rows[0].figures()[name].reason}.")
            else:
                curve(name)
    show.table(
        pd.DataFrame(
            [
                {
                    "K": row.k,
                    **{terms.QUANTITIES[n].title: terms.figure(row.figures()[n], terms.QUANTITIES[n]) for n in ENERGY},
                    "Runs": "" if row.power_w.n is None else str(row.power_w.n),
                    "Why no interval": row.tokens_per_joule.reason or row.power_w.reason or "",
                }
                for row in rows
            ]
        ),
        "Energy efficiency and power of every depth, with intervals",
    )
    st.caption("Figures in brackets are 95% intervals over runs. Scopes are never added up and never compared.")

found = view.snapshot.of_sweep("findings", view.name)
found = found[found["code"].str.startswith(CODES)]
if len(found):
    st.subheader("Findings", anchor=False)
    show.table(
        pd.DataFrame(
            {
                "Severity": found["severity"],
                "Run": [
                    link.to_runs(run_id.rpartition(":")[2], view.name, run=run_id) if run_id else ""
                    for run_id in found["run_id"]
                ],
                "Finding": found["message"],
                "What to do": found["action"],
            }
        ),
        "Findings about power, clocks and nodes",
    )
if sensors.empty:
    st.stop()

st.subheader("Sensors", anchor=False)
show.table(
    pd.DataFrame(
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
    ),
    "Power sensors of every node",
)
st.caption("The mean is over every reading of the sweep, warm-up and pauses included; the figures above are not.")

st.subheader("One run over time", anchor=False)
every = view.snapshot.of_sweep("runs", view.name).set_index("run_id")


def named(run_id: str) -> str:
    """A run for the select box."""
    run = every.loc[run_id]
    place = "" if pd.isna(run["order_index"]) else f"{run['order_index']:g}: "
    return f"{place}K={run['k']}, {run['status']}" + ("" if run["valid"] else ", excluded")


run_id = link.one("run", "Run", list(every.index), str(every.index[0]), words=named)
spans = view.snapshot.of_run("measure_spans", run_id)
samples = view.snapshot.of_run("power_of_run", run_id)
if samples.empty:
    st.info("No power sample of this run is stored.")
    st.stop()
origin = float(spans["begin_unix_s"].min() if len(spans) else samples["t_unix_s"].min())
lines = power_lines(samples, origin)
measured = pd.DataFrame(
    {
        "begin_s": spans["begin_unix_s"] - origin,
        "end_s": spans["end_unix_s"] - origin,
        "name": "measured" if len(spans) == 1 else spans["cell_id"].str.rsplit(":", n=2).str[1],
    }
)


def drawn(
    values: dict[PowerLine, tuple[float, ...]], axis: Axis, key: str, missing: str, names: Callable[[PowerLine], str]
) -> None:
    """One chart of all lines that have a value."""
    there = {line: value for line, value in values.items() if pd.Series(value, dtype=float).notna().any()}
    if not there:
        st.caption(missing)
        return
    table = pd.concat(
        [pd.DataFrame({"series": names(line), "t_s": line.t_s, "value": value}) for line, value in there.items()]
    )
    t_s = table["t_s"].to_numpy()[:, None]
    inside = table[((measured["begin_s"].to_numpy() <= t_s) & (t_s <= measured["end_s"].to_numpy())).any(axis=1)]
    means = (inside if len(inside) else table).groupby("series", sort=False)["value"].mean()
    middle = "; ".join(f"{series} {axis.words(value)}" for series, value in means.items())
    middle = f"Mean {'while measured' if len(inside) else 'over the run'}: {middle}."
    show.chart(over_time(table, measured, axis), f"{axis.label} over the run {run_id}. {middle}", key=key)
    st.caption(middle)


watts = {line: line.power_w for line in lines}
drawn(watts, terms.QUANTITIES["power_w"], "watts", "No power reading in this run.", lambda line: line.name)
# every sensor's sample holds the node's clock: one line a node, and the sensor that was read most directly
clocks = {line.node: line for line in sorted(lines, key=lambda line: line.method)}
drawn(
    {line: line.clock_mhz for line in clocks.values()},
    CLOCK,
    "clock",
    "No clock was read in this run.",
    lambda line: line.node,
)
if silent := sorted({f"{line.name}: {line.reason}" for line in lines if line.reason}):
    st.caption("Missing readings: " + "; ".join(silent) + ".")
