"""What pages read: the snapshot through `store.queries`, and the analysis of it, cached until the next snapshot.

Every cache is keyed on the snapshot's (inode, mtime), so a snapshot replaced underneath shows up on the next rerun,
and bounded, so that a viewer that runs for weeks does not grow. What they give is shared between sessions, not copied
for each (`st.cache_data` would unpickle it for every call): pages never change it in place.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import streamlit as st

from backend.analysis.accepted_lengths import AcceptedLengths, accepted_lengths, reported_lengths
from backend.analysis.categories import category_rows, compare_category_rows
from backend.analysis.compare import compare_cell
from backend.analysis.comparison import Comparison
from backend.analysis.cycle_model import CycleFit, fit_cycle
from backend.analysis.depth_effect import DepthEffect, depth_effects
from backend.analysis.energy import with_energy
from backend.analysis.hold_out import HeldOut, hold_out, survival_of
from backend.analysis.stopping import with_pilot
from backend.analysis.stored_summary import stored_summary
from backend.analysis.summary import KSummary, summarise
from backend.analysis.timing_report import TimingReport, timing_report
from backend.records import Role
from backend.store import catalogue, paths, queries, queries_acceptance, queries_explorer, queries_nodes, queries_timing

Key = tuple[str, int, int]


def _run_energy(con: queries.Connection, sweep: str) -> pd.DataFrame:
    """View run_cell, with the energy of the runs' power samples where there are any: reads every request and sample."""
    spec_toml = queries.require_sweep(con, sweep)["spec_toml"]
    rows, samples = with_pilot(queries.run_cells(con, sweep), spec_toml), queries.power_samples(con, sweep)
    return rows if samples.empty else with_energy(rows, samples, queries_explorer.request_figures(con, sweep))


QUERIES: dict[str, Callable[..., pd.DataFrame]] = {
    "cells": queries.cells,
    "runs": queries.runs,
    "run_cells": queries.run_cells,
    "run_energy": _run_energy,
    "findings": queries.findings,
    "failures": queries.failures,
    "environment": queries.environment,
    "canaries": queries.canaries,
    "clocks": queries_explorer.clocks,
    "power_sensors": queries_nodes.power_sensors,
}
RUN_QUERIES: dict[str, Callable[..., pd.DataFrame]] = {
    "power_of_run": queries_nodes.power_of_run,
    "measure_spans": queries_nodes.measure_spans,
}


def data_dir() -> Path:
    """The directory of the results, where progress.json and logs/ are too."""
    if os.environ.get("SOUNDING_DB"):
        return Path(os.environ["SOUNDING_DB"]).parent
    return paths.data_directory()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One published state of the results. Its reads raise StoreError where the file cannot be used."""

    path: Path
    key: Key

    @property
    def bundled(self) -> bool:
        """Whether this is what comes with the project, shown because the data directory has no results."""
        return self.path == paths.BUNDLED_SNAPSHOT

    def info(self) -> dict[str, object]:
        """id, published_unix_s, schema_version, code_version."""
        return _info(self.key)

    def sweeps(self) -> pd.DataFrame:
        """A row a sweep, newest first."""
        return _sweeps(self.key)

    def of_sweep(self, what: str, sweep: str) -> pd.DataFrame:
        """One of QUERIES for a sweep."""
        return _of_sweep(self.key, what, sweep)

    def of_run(self, what: str, run_id: str) -> pd.DataFrame:
        """One of RUN_QUERIES for a run."""
        return _of_run(self.key, what, run_id)

    def cell_rows(self, sweep: str, cell_id: str) -> pd.DataFrame:
        """The rows of `run_cell` of one cell."""
        rows = self.of_sweep("run_cells", sweep)
        return rows[rows["cell_id"] == cell_id].reset_index(drop=True)

    def summary(self, sweep: str) -> list[KSummary]:
        """Every cell and K of a sweep, each figure an Estimate."""
        return _summary(self.key, sweep)

    def comparison(self, sweep: str, cell_id: str) -> Comparison:
        """Depths of one cell against each other and against the sweep's reference depths."""
        return _comparison(self.key, sweep, cell_id)

    def categories(self, sweep: str, cell_id: str) -> dict[str, Comparison]:
        """The same within each prompt category; empty where prompts have none, or above concurrency 1."""
        return _categories(self.key, sweep, cell_id)

    def cycle_fit(self, sweep: str, cell_id: str) -> CycleFit:
        """The cycle model of one cell, all windows."""
        return _cycle_fit(self.key, sweep, cell_id)

    def held_out(self, sweep: str, cell_id: str) -> list[HeldOut]:
        """Every inner depth of one cell predicted from the others."""
        return _held_out(self.key, sweep, cell_id)

    def accepted(self, sweep: str, cell_id: str) -> list[AcceptedLengths]:
        """Rates by draft position and accepted lengths of every drafted depth, shallow first."""
        return _accepted(self.key, sweep, cell_id)

    def matchable_depths(self, sweep: str, cell_id: str) -> list[int]:
        """Depths of which every step is stored, so that their starts can be compared."""
        return [found.k for found in self.accepted(sweep, cell_id) if found.drafted_steps is not None]

    def depth_effects(self, sweep: str, cell_id: str, against: int, phase: str) -> list[DepthEffect]:
        """Every depth less `against` on equal starts; phase "measure" or "forced"; empty where there are no steps."""
        return _depth_effects(self.key, sweep, cell_id, against, phase)

    def timing(self, sweep: str, cell_id: str, role: Role = "arm") -> TimingReport:
        """Direct times of one cell, all depths; role "diagnostic": of the eager runs that are only timed."""
        return _timing(self.key, sweep, cell_id, role)

    def step_spread(self, sweep: str, cell_id: str, groups: dict[str, list[str]]) -> pd.DataFrame:
        """Quantiles over single steps by depth and part; `groups`: part -> its stages."""
        return _step_spread(self.key, sweep, cell_id, groups)

    def tables(self) -> pd.DataFrame:
        """A row a table or view."""
        return _tables(self.key)

    def table_head(self, name: str, rows: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        """(first rows, what the columns mean) of a table or view."""
        return _table_head(self.key, name, rows)

    def export(self, name: str, fmt: str) -> bytes:
        """A whole table as a file. Runs on a click, in a thread without a session, so with a connection of its own."""
        con = queries.connect(self.path)
        try:
            return catalogue.export(con, name, fmt)
        finally:
            con.close()


def current() -> Snapshot:
    """The snapshot to show now. Raises StoreError where there is none."""
    path = paths.resolve()
    return Snapshot(path, (str(path), *paths.snapshot_key(path)))


def reference_depths(sweep: pd.Series) -> dict[str, int]:
    """The depths that the sweep's spec names (production, recipe, native)."""
    text = sweep["reference_depths"]
    return {str(name): int(k) for name, k in json.loads(text).items()} if isinstance(text, str) and text else {}


@st.cache_resource(max_entries=2, show_spinner=False)
def _connection(key: Key) -> queries.Connection:
    return queries.connect(Path(key[0]))


@st.cache_resource(max_entries=4, show_spinner=False)
def _info(key: Key) -> dict[str, object]:
    return catalogue.snapshot_info(_connection(key))


@st.cache_resource(max_entries=4, show_spinner=False)
def _sweeps(key: Key) -> pd.DataFrame:
    return queries.sweeps(_connection(key))


@st.cache_resource(max_entries=256, show_spinner=False)
def _of_sweep(key: Key, what: str, sweep: str) -> pd.DataFrame:
    return QUERIES[what](_connection(key), sweep)


@st.cache_resource(max_entries=16, show_spinner=False)
def _of_run(key: Key, what: str, run_id: str) -> pd.DataFrame:
    return RUN_QUERIES[what](_connection(key), run_id)


@st.cache_resource(max_entries=256, show_spinner="Estimating")
def _summary(key: Key, sweep: str) -> list[KSummary]:
    con = _connection(key)
    rows, findings = _of_sweep(key, "run_cells", sweep), _of_sweep(key, "findings", sweep)
    stored = stored_summary(queries.estimates(con, sweep), rows, findings)
    if stored is not None:
        return stored
    return summarise(  # a database whose estimates are of another version, or were never made
        _of_sweep(key, "run_energy", sweep),
        requests=queries.requests(con, sweep),
        steps=queries.steps(con, sweep),
        positions=queries.positions(con, sweep),
        findings=findings,
    )


@st.cache_resource(max_entries=32, show_spinner=False)
def _comparison(key: Key, sweep: str, cell_id: str) -> Comparison:
    con = _connection(key)
    depths = reference_depths(queries.require_sweep(con, sweep))
    return compare_cell(queries.run_cells(con, sweep, cell_id), depths)


@st.cache_resource(max_entries=16, show_spinner=False)
def _categories(key: Key, sweep: str, cell_id: str) -> dict[str, Comparison]:
    con = _connection(key)
    depths = reference_depths(queries.require_sweep(con, sweep))
    rows = category_rows(queries_explorer.category_sums(con, sweep, cell_id), queries.run_cells(con, sweep, cell_id))
    return compare_category_rows(rows, depths)


@st.cache_resource(max_entries=32, show_spinner=False)
def _cycle_fit(key: Key, sweep: str, cell_id: str) -> CycleFit:
    con = _connection(key)
    spec_toml = queries.require_sweep(con, sweep)["spec_toml"]
    return fit_cycle(with_pilot(queries.run_cells(con, sweep, cell_id), spec_toml), study=True)


@st.cache_resource(max_entries=32, show_spinner=False)
def _held_out(key: Key, sweep: str, cell_id: str) -> list[HeldOut]:
    con = _connection(key)
    return hold_out(
        queries.run_cells(con, sweep, cell_id), survival_of(queries.positions(con, sweep, cell_id), cell_id)
    )


@st.cache_resource(max_entries=16, show_spinner=False)
def _accepted(key: Key, sweep: str, cell_id: str) -> list[AcceptedLengths]:
    con = _connection(key)
    found = accepted_lengths(queries_acceptance.accepted_lengths(con, sweep, cell_id=cell_id))
    return found or reported_lengths(queries.positions(con, sweep, cell_id))


@st.cache_resource(max_entries=32, show_spinner="Matching starts")
def _depth_effects(key: Key, sweep: str, cell_id: str, against: int, phase: str) -> list[DepthEffect]:
    con = _connection(key)
    starts = queries_acceptance.starts(con, sweep, phase=phase, cell_id=cell_id)
    outputs = queries_acceptance.outputs(con, sweep, cell_id=cell_id)
    return depth_effects(starts, outputs, queries.cells(con, sweep), against=against, phase=phase)


@st.cache_resource(max_entries=16, show_spinner="Adding up stages")
def _timing(key: Key, sweep: str, cell_id: str, role: Role) -> TimingReport:
    con = _connection(key)
    asked = (queries_timing.timed_requests, queries_timing.stage_totals, queries_timing.rank_waits)
    tables = [ask(con, sweep, role) for ask in asked]
    return timing_report(*(table[table["cell_id"] == cell_id] for table in tables))


@st.cache_resource(max_entries=16, show_spinner=False)
def _step_spread(key: Key, sweep: str, cell_id: str, groups: dict[str, list[str]]) -> pd.DataFrame:
    return queries_timing.step_quantiles(_connection(key), sweep, cell_id, groups)


@st.cache_resource(max_entries=4, show_spinner=False)
def _tables(key: Key) -> pd.DataFrame:
    return catalogue.tables(_connection(key))


@st.cache_resource(max_entries=16, show_spinner=False)
def _table_head(key: Key, name: str, rows: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    con = _connection(key)
    return catalogue.table(con, name, rows), catalogue.columns(con, name)
