"""Runs: what was launched, in which order, how it ended, and the evidence: findings, command, environment, log."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import streamlit as st

from pages.parts import frame, link, machine, order, reader, show, terms

LOG_TAIL_BYTES = 6000

view = frame.open_page("Runs")
frame.source_badge(view.sweep)
runs = view.snapshot.of_sweep("runs", view.name)
if runs.empty:
    frame.no_figures(view)
findings = view.snapshot.of_sweep("findings", view.name)
failures = view.snapshot.of_sweep("failures", view.name)

order.draw(view, key="run-order")

states = order.state_of(runs)
left, middle, right = st.columns(3)
with left:
    depths = [str(k) for k in sorted({int(k) for k in runs["k"]})]
    depth = link.one("depth", "Depth K", [link.ALL, *depths], link.ALL)
with middle:
    ended = link.one("ended", "Ended", [link.ALL, *sorted(set(states))], link.ALL)
with right:
    cells = terms.cell_names(view.snapshot.of_sweep("cells", view.name))
    cells = cells or {"": "no cell was measured"}
    cell_id = link.one("cell", "Throughput of the cell", list(cells), next(iter(cells)), words=cells.__getitem__)
shown = runs[(runs["k"].astype(str) == depth) | (depth == link.ALL)]
shown = shown[(states[shown.index] == ended) | (ended == link.ALL)]
if shown.empty:
    st.info("No run of this depth ended so.")
    st.stop()
every, runs = runs, shown
speed = view.snapshot.cell_rows(view.name, cell_id).set_index("run_id")["decode_tok_s"]
listed = pd.DataFrame(
    {
        "Order": runs["order_index"],
        "Block": runs["block"],
        "K": runs["k"],
        "Ended": order.state_of(runs),
        "Role": runs["role"],
        "Decode tok/s": runs["run_id"].map(speed).astype(float),
        "Findings": runs["run_id"].map(findings["run_id"].value_counts()).fillna(0).astype(int),
        "Server start (s)": runs["server_start_s"],
        "Run (s)": runs["ended_unix_s"] - runs["started_unix_s"],
        "Started": [None if pd.isna(moment) else terms.when(moment) for moment in runs["started_unix_s"]],
        "Run id": runs["run_id"],
    }
)
listed = listed.dropna(axis="columns", how="all")
st.dataframe(
    listed,
    hide_index=True,
    alt=f"{terms.plural(len(listed), 'run')} of the sweep's {len(every)}",
    column_config={
        "Order": st.column_config.NumberColumn(format="%d"),
        "Block": st.column_config.NumberColumn(format="%d"),
        "Decode tok/s": st.column_config.NumberColumn(format="%.2f"),
        "Server start (s)": st.column_config.NumberColumn(format="%.1f"),
        "Run (s)": st.column_config.NumberColumn(format="%.0f"),
    },
)

about_sweep = findings[findings["run_id"] == ""]
if len(about_sweep):
    st.header("Findings about the whole sweep", anchor=False)
    show.table(
        pd.DataFrame(
            {
                "Severity": about_sweep["severity"],
                "Finding": about_sweep["message"],
                "What to do": about_sweep["action"],
            }
        ),
        "Findings about the whole sweep",
    )

machine.over_time(view)

st.header("One run", anchor=False)
by_id = runs.set_index("run_id")


def named(run_id: str) -> str:
    """A run for the select box: order, K, block, end."""
    run = by_id.loc[run_id]
    place = "" if pd.isna(run["order_index"]) else f"{run['order_index']:g}: "
    block = "" if pd.isna(run["block"]) else f", block {run['block']:g}"
    return f"{place}K={run['k']}{block}, {run['status']}"


bad = runs[runs["status"] != "done"]
run_id = link.one("run", "Run", list(runs["run_id"]), str((bad if len(bad) else runs)["run_id"].iloc[0]), words=named)
run = by_id.loc[run_id]
if isinstance(run["reason"], str):
    st.error(terms.outside(run["reason"]))
if not run["valid"]:
    st.warning(f"Excluded from every figure: {terms.outside(run['exclusion_reason'])}")
mine = findings[findings["run_id"] == run_id]
if len(mine):
    show.table(
        pd.DataFrame(
            {
                "Severity": mine["severity"],
                "Finding": mine["message"],
                "Figure": [
                    "" if pd.isna(f["figure"]) else f"{f['figure']:.4g} {f['unit']}" for _, f in mine.iterrows()
                ],
                "What to do": mine["action"],
            }
        ),
        "Findings about this run",
    )
else:
    st.caption("No finding about this run.")
if isinstance(run["command"], str):
    st.markdown("Command, ready to paste")
    variables = json.loads(run["env"]) if isinstance(run["env"], str) and run["env"] else {}
    st.code(
        "".join(f"{name}={value} \\\n" for name, value in variables.items()) + run["command"],
        language="bash",
        wrap_lines=True,
    )
facts = {
    "Order in the sweep": run["order_index"],
    "Attempt": run["attempt"],
    "Depth the server reported": run["reported_k"],
    "Server start": terms.lasting(run["server_start_s"]),
    "Server stop": terms.lasting(run["server_stop_s"]),
    "Started": terms.when(run["started_unix_s"]),
    "Ended": terms.when(run["ended_unix_s"]),
}
environment = view.snapshot.of_sweep("environment", view.name)
environment = environment[environment["run_id"] == run_id]
with st.expander("Times and environment", expanded=bool(len(environment))):
    told = [{"Node": "", "Fact": name, "Value": str(value)} for name, value in facts.items() if not pd.isna(value)]
    told += [
        {"Node": fact["node"], "Fact": fact["name"], "Value": "not known" if pd.isna(fact["value"]) else fact["value"]}
        for _, fact in environment.iterrows()
    ]
    show.table(pd.DataFrame(told), "Times and environment of this run")


def log_tail(path: str) -> str | None:
    """The end of a run's log, where it lies inside the data directory."""
    root = reader.data_dir().resolve()
    file = (root / path).resolve()
    if not file.is_relative_to(root) or not Path(file).is_file():
        return None
    with file.open("rb") as log:
        log.seek(max(0, file.stat().st_size - LOG_TAIL_BYTES))
        return log.read().decode(errors="replace")


evidence = failures[failures["run_id"] == run_id]
for _, failure in evidence.iterrows():
    st.markdown(f"Why it failed: `{failure['kind']}` at {terms.when(failure['unix_s'])}")
    st.code(failure["log_tail"] or "(the server had logged nothing)", language=None, wrap_lines=True)
if evidence.empty and isinstance(run["log_path"], str):
    tail = log_tail(run["log_path"])
    with st.expander("End of the server's log"):
        if tail is None:
            st.caption(f"The log is not in this data directory: {run['log_path']}")
        else:
            st.code(tail, language=None, wrap_lines=True)
