"""Runs: what was launched, in which order, how it ended, and the evidence: findings, command, environment, log."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pandas as pd
import streamlit as st

from backend.store.sql_examples import requests_of
from pages.parts import frame, link, machine, order, reader, show, terms
from pages.parts.once import once

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
    cells = frame.every_cell(view) or {"": "no cell was measured"}
    cell_id = link.one("cell", "Throughput of the cell", list(cells), next(iter(cells)), words=cells.__getitem__)
shown = runs[(runs["k"].astype(str) == depth) | (depth == link.ALL)]
shown = shown[(states[shown.index] == ended) | (ended == link.ALL)]
if shown.empty:
    st.info("No run of this depth ended so.")
    st.stop()


def listed() -> pd.DataFrame:
    """A row a run of this depth and end, without the columns that nothing is known of."""
    speed = view.snapshot.cell_rows(view.name, cell_id).set_index("run_id")["decode_tok_s"]
    rows = pd.DataFrame(
        {
            "Order": shown["order_index"],
            "Block": shown["block"],
            "K": shown["k"],
            "Ended": states[shown.index],
            "Role": shown["role"],
            "Decode tok/s": shown["run_id"].map(speed).astype(float),
            "Findings": shown["run_id"].map(findings["run_id"].value_counts()).fillna(0).astype(int),
            "Server start (s)": shown["server_start_s"],
            "Run (s)": shown["ended_unix_s"] - shown["started_unix_s"],
            "Started": [None if pd.isna(moment) else terms.when(moment) for moment in shown["started_unix_s"]],
            "Run id": shown["run_id"],
        }
    )
    return rows.dropna(axis="columns", how="all")


def about_the_sweep() -> show.Table | None:
    """Findings that are about no single run; None where there are none."""
    found = findings[findings["run_id"] == ""]
    told = {"Severity": found["severity"], "Finding": found["message"], "What to do": found["action"]}
    return None if found.empty else show.Table(pd.DataFrame(told), "Findings about the whole sweep")


st.dataframe(
    once(view.snapshot, "runs listed", view.name, depth, ended, cell_id, build=listed),
    hide_index=True,
    alt=f"{terms.plural(len(shown), 'run')} of the sweep's {len(runs)}",
    column_config={
        "Order": st.column_config.NumberColumn(format="%d"),
        "Block": st.column_config.NumberColumn(format="%d"),
        "Decode tok/s": st.column_config.NumberColumn(format="%.2f"),
        "Server start (s)": st.column_config.NumberColumn(format="%.1f"),
        "Run (s)": st.column_config.NumberColumn(format="%.0f"),
    },
)

about_sweep = once(view.snapshot, "findings of the sweep", view.name, build=about_the_sweep)
if about_sweep:
    st.header("Findings about the whole sweep", anchor=False)
    show.table(about_sweep)

machine.over_time(view)

st.header("One run", anchor=False)
names = order.names(view)
bad = shown[shown["status"] != "done"]
first = str((bad if len(bad) else shown)["run_id"].iloc[0])
run_id = link.one("run", "Run", list(shown["run_id"]), first, words=names.__getitem__, known=list(names))
run = runs[runs["run_id"] == run_id].iloc[0]


def about_the_run() -> show.Table | None:
    """Findings about this run; None where there are none."""
    found = findings[findings["run_id"] == run_id]
    told = {
        "Severity": found["severity"],
        "Finding": found["message"],
        "Figure": ["" if pd.isna(f["figure"]) else f"{f['figure']:.4g} {f['unit']}" for _, f in found.iterrows()],
        "What to do": found["action"],
    }
    return None if found.empty else show.Table(pd.DataFrame(told), "Findings about this run")


def facts() -> tuple[show.Table, bool]:
    """Times and environment of this run, and whether an environment is known."""
    times = {
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
    told = [{"Node": "", "Fact": name, "Value": str(value)} for name, value in times.items() if not pd.isna(value)]
    told += [
        {"Node": fact["node"], "Fact": fact["name"], "Value": "not known" if pd.isna(fact["value"]) else fact["value"]}
        for _, fact in environment.iterrows()
    ]
    return show.Table(pd.DataFrame(told), "Times and environment of this run"), bool(len(environment))


if isinstance(run["reason"], str):
    st.error(terms.outside(run["reason"]))
if not run["valid"]:
    st.warning(f"Excluded from every figure: {terms.outside(run['exclusion_reason'])}")
mine = once(view.snapshot, "findings of a run", run_id, build=about_the_run)
if mine:
    show.table(mine)
else:
    st.caption("No finding about this run.")
if isinstance(run["command"], str):
    st.markdown("Command, ready to paste")
    variables = json.loads(run["env"]) if isinstance(run["env"], str) and run["env"] else {}
    st.code(
        "".join(f"{name}={shlex.quote(str(value))} \\\n" for name, value in variables.items()) + run["command"],
        language="bash",
        wrap_lines=True,
    )
known, with_environment = once(view.snapshot, "facts of a run", run_id, build=facts)
more = link.more("environment", "Times and environment", at_first=with_environment)
if more.open:
    with more:
        show.table(known)


def log_tail(path: str) -> str | None:
    """The end of a run's log, where it lies inside the data directory."""
    root = reader.data_dir().resolve()
    file = (root / path).resolve()
    if not file.is_relative_to(root) or not Path(file).is_file():
        return None
    with file.open("rb") as log:
        log.seek(max(0, file.stat().st_size - LOG_TAIL_BYTES))
        return log.read().decode(errors="replace")


to_sql = {"sweep": view.name, "sql": requests_of(run_id)}
st.page_link("pages/sql.py", label="Requests of this run", query_params=to_sql)

evidence = failures[failures["run_id"] == run_id]
for _, failure in evidence.iterrows():
    st.markdown(f"Why it failed: `{terms.outside(failure['kind'])}` at {terms.when(failure['unix_s'])}")
    st.code(failure["log_tail"] or "(the server had logged nothing)", language=None, wrap_lines=True)
if evidence.empty and isinstance(run["log_path"], str):
    more = link.more("log", "End of the server's log")
    if more.open:
        with more:
            tail = log_tail(run["log_path"])
            if tail is None:
                where = terms.outside(run["log_path"])
                st.caption(f"The log is not in this data directory: {where} (bundled sweeps come without)")
            else:
                st.code(tail, language=None, wrap_lines=True)
