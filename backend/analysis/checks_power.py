"""Checks on power: runs without a figure, and sensors that contradict each other. Findings; nothing is repaired.

Two sensors of one scope on one node, or the counter and the readings of one sensor, must agree on the joules of a
MEASURE phase within 5%; a narrow scope can never use more than a wider one around it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import pandas as pd

from backend.analysis.energy import Span, energies_of, span_of
from backend.analysis.power_sensor import SCOPES, Kind, Sensor, sensors_of
from backend.records import Finding

AGREE_PERCENT = 5.0
Joules = dict[tuple[Kind, str], float]  # (kind, "counter difference" or "trapezoid") -> J


def power_findings(samples: pd.DataFrame, requests: pd.DataFrame, sweep: str) -> list[Finding]:
    """Findings of one sweep from the tables power_sample and request: one a run without a figure, one a code besides.

    Codes: power-missing (a run has no energy, with the reason), power-sources-disagree, power-scopes-disagree.
    """
    found = [
        Finding(
            sweep,
            row.run_id,
            row.cell_id,
            "power-missing",
            "warning",
            None,
            "W",
            f"No energy of this run: {row.reason}",
            "see the sensor's readings on page Power and energy; a node that cannot be read needs a wall meter, or no "
            "figure",
        )
        for row in energies_of(samples, requests)
        if row.energy_j is None
    ]
    worst: dict[str, tuple[float, str]] = {}
    count: dict[str, int] = defaultdict(int)
    for code, percent, words in _contradictions(samples, requests):
        count[code] += 1
        if percent > worst.get(code, (0.0, ""))[0]:
            worst[code] = (percent, words)
    for code, (percent, words) in sorted(worst.items()):
        several = f" (the worst of {count[code]} such)" if count[code] > 1 else ""
        found.append(
            Finding(
                sweep,
                "",
                "",
                code,
                "warning",
                percent,
                "%",
                f"{words}{several}",
                "trust neither before one is checked against a wall meter; tokens per joule moves by as much",
            )
        )
    return found


def _contradictions(samples: pd.DataFrame, requests: pd.DataFrame) -> Iterator[tuple[str, float, str]]:
    """(code, by how many %, in words) of every contradiction of two figures for one node, run and cell."""
    if samples.empty or requests.empty:
        return
    sensors = sensors_of(samples)
    measured = requests[requests["phase"] == "measure"]
    for (run_id, cell_id), group in measured.groupby(["run_id", "cell_id"], sort=True):
        span = span_of(group)
        if span is None:
            continue
        for node in sorted({node for run, _, node in sensors if run == run_id}):
            mine = {kind: s for (run, kind, at), s in sensors.items() if (run, at) == (run_id, node)}
            figures = _joules(mine, span)
            where = f"node {node}, run {run_id}" + (f", cell {cell_id}" if measured["cell_id"].nunique() > 1 else "")
            yield from _same_scope(figures, where)
            yield from _nested_scopes(figures, where)


def _joules(sensors: dict[Kind, Sensor], span: Span) -> Joules:
    """Every figure for the MEASURE phase that these sensors of one node give."""
    found: Joules = {}
    for kind, sensor in sensors.items():
        for counter in (True, False):
            energy = sensor.energy_j(*span.phase, counter=counter)[0]
            if math.isfinite(energy) and energy > 0:
                found[(kind, "counter difference" if counter else "trapezoid")] = energy
    return found


def _same_scope(figures: Joules, where: str) -> Iterator[tuple[str, float, str]]:
    for scope in sorted({kind.scope for kind, _ in figures}):
        of_scope = {f"{kind.source} {method}": j for (kind, method), j in figures.items() if kind.scope == scope}
        low, high = (pick(of_scope, key=of_scope.__getitem__) for pick in (min, max))
        percent = 100 * (of_scope[high] / of_scope[low] - 1)
        if percent > AGREE_PERCENT:
            words = f"{high} says {of_scope[high]:.1f} J and {low} {of_scope[low]:.1f} J for scope {scope}"
            yield "power-sources-disagree", percent, f"{words} ({where})"


def _nested_scopes(figures: Joules, where: str) -> Iterator[tuple[str, float, str]]:
    """A narrower scope above a wider one by more than sensors may disagree."""
    known = {key: j for key, j in figures.items() if key[0].scope in SCOPES}
    for wide, wide_j in known.items():
        for narrow, narrow_j in known.items():
            percent = 100 * (narrow_j / wide_j - 1)
            if SCOPES.index(narrow[0].scope) > SCOPES.index(wide[0].scope) and percent > AGREE_PERCENT:
                words = f"{narrow[0].scope} ({narrow[0].source}) used {narrow_j:.1f} J, {wide[0].scope} around it"
                yield "power-scopes-disagree", percent, f"{words} ({wide[0].source}) only {wide_j:.1f} J ({where})"
