"""Checks on a sweep's data, as findings: code, severity, figure, what to do. Nothing is clamped or repaired.

K-blind evidence (counters, prefix hits, foreign traffic, clocks, canaries, token accounting) does not look at whether
a figure is liked: an `error` with one of the codes in EXCLUDES takes its run out. Spread, bimodality, outliers, drift
and too few runs are seen in the figures themselves, so they only warn.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from backend.analysis.checks_counters import counter_findings
from backend.analysis.checks_nodes import canary_findings, clock_findings
from backend.analysis.checks_power import power_findings
from backend.analysis.checks_requests import position_findings, request_findings
from backend.analysis.checks_runs import run_findings
from backend.analysis.selection import by_cell
from backend.records import Finding

EXCLUDES = frozenset(
    {
        "counter-reset",
        "prefix-cache-hits",
        "foreign-requests",
        "client-starved",
        "clocks-disagree",
        "canary-changed",
        "canary-slow",
        "clocks-stuck",
        "clocks-throttled",
        "counters-disagree",
        "rate-identity",
        "token-accounting",
        "impossible-counts",
        "data-link-flap",
    }
)
# Findings about a run that depend on the sweep's other runs, so they change as runs are added.
COMPARES_RUNS = frozenset({"spread", "canary-slow", "power-missing"})


def run_checks(
    run_cell: pd.DataFrame,
    *,
    requests: pd.DataFrame | None = None,
    counters: pd.DataFrame | None = None,
    canary: pd.DataFrame | None = None,
    positions: pd.DataFrame | None = None,
    power: pd.DataFrame | None = None,
    environment: pd.DataFrame | None = None,
    canary_history: pd.DataFrame | None = None,
) -> list[Finding]:
    """All findings of one sweep, from the view run_cell and the tables that are there; one per key, sorted."""
    found: list[Finding] = []
    sweep = str(run_cell["sweep"].iloc[0]) if len(run_cell) and "sweep" in run_cell else ""
    if requests is not None and len(requests):
        found += request_findings(run_cell, requests, sweep)
    if counters is not None and len(counters):
        found += counter_findings(run_cell, counters, requests, sweep)
    if canary is not None and len(canary):
        found += canary_findings(canary, sweep, canary_history)
    if positions is not None and len(positions):
        found += position_findings(run_cell, positions, sweep)
    if power is not None and len(power) and requests is not None:
        found += power_findings(power, requests, sweep)
        if environment is not None and len(environment):
            found += clock_findings(power, environment, requests, sweep)
    for _, cell in by_cell(run_cell):
        found += run_findings(cell, sweep)
    unique = {(f.sweep, f.run_id, f.cell_id, f.code): f for f in found}
    return [unique[key] for key in sorted(unique)]


def exclusions(findings: Iterable[Finding]) -> dict[str, str]:
    """run_id -> reason, for runs with K-blind evidence against them: to be marked not valid and repeated."""
    out: dict[str, str] = {}
    for finding in findings:
        if finding.run_id and finding.severity == "error" and finding.code in EXCLUDES:
            reason = f"{finding.code}: {finding.message}"
            out[finding.run_id] = f"{out[finding.run_id]}; {reason}" if finding.run_id in out else reason
    return out
