"""One power sensor during one run: its readings, its update period, and the joules of any span of time.

Source: design.md, "Energy" (counter difference, else trapezoid). Units: seconds since 1970, watts, joules.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd

from backend.analysis.estimate import FloatArray
from backend.analysis.selection import numbers

SCOPES = ("wall", "node", "soc", "gpu")  # widest first; a scope not named here comes last
MAX_GAP_PERIODS = 5  # readings further apart than this are missing readings
KIND = ["scope", "source"]


class Kind(NamedTuple):
    """A sensor kind: what it covers, and which sensor it is. One a node."""

    scope: str
    source: str

    @property
    def rank(self) -> tuple[int, str, str]:
        """Sorts by width of scope, widest first, then by name."""
        return (SCOPES.index(self.scope) if self.scope in SCOPES else len(SCOPES), self.scope, self.source)


def sensors_of(samples: pd.DataFrame) -> dict[tuple[str, Kind, str], Sensor]:
    """(run_id, kind, node) -> its sensor's readings."""
    groups = samples.groupby(["run_id", *KIND, "node"], sort=True)
    return {
        (str(run), Kind(str(scope), str(source)), str(node)): Sensor(rows)
        for (run, scope, source, node), rows in groups
    }


class Sensor:
    """The readings of one sensor on one node during one run, in time order."""

    def __init__(self, rows: pd.DataFrame) -> None:
        rows = rows.sort_values("t_unix_s", kind="stable")
        t, power, counter = (numbers(rows, name) for name in ("t_unix_s", "power_w", "energy_j"))
        self._power = (t[np.isfinite(power)], power[np.isfinite(power)])
        self._counter = (t[np.isfinite(counter)], counter[np.isfinite(counter)])
        reasons: list[object] = list(rows["unsupported_reason"].dropna()) if "unsupported_reason" in rows else []
        self.unsupported = str(next(iter(reasons), "it gave no reading"))
        self.counts = len(self._counter[0]) > 1
        self.period_s = period_s(*(self._counter if self.counts else self._power))

    @property
    def readings(self) -> int:
        """How many readings there are."""
        return max(len(self._power[0]), len(self._counter[0]))

    def energy_j(self, begin: FloatArray, end: FloatArray, *, counter: bool) -> tuple[float, str]:
        """Joules in the spans begin..end (n,), seconds since 1970; NaN and the reason where it cannot be told."""
        t, values = self._counter if counter else self._power
        if len(t) < 2 or self.period_s is None:
            return math.nan, self.unsupported if self.readings == 0 else "fewer than two readings"
        first, last = float(begin.min()), float(end.max())
        if counter:
            if (np.diff(values) < 0).any():
                return math.nan, "its energy counter went backwards"
            if t[0] > first or t[-1] < last:
                return math.nan, "its energy counter was not read on both sides"
            spans = np.interp(end, t, values) - np.interp(begin, t, values)
            return float(spans.sum()), ""
        inside = t[(t > first) & (t < last)]
        gap = float(np.diff(np.concatenate([[max(first, t[0])], inside, [min(last, t[-1])]])).max(initial=0.0))
        edge = max(t[0] - first, last - t[-1], 0.0)
        if max(gap, edge) > MAX_GAP_PERIODS * self.period_s:
            return math.nan, f"readings are missing for {max(gap, edge):.1f} s"
        return float((_cumulative_j(t, values, end) - _cumulative_j(t, values, begin)).sum()), ""


def period_s(t: FloatArray, values: FloatArray) -> float | None:
    """Update period of a sensor in seconds: median time between changes of its reading; with fewer than 3 changes the
    median time between readings, because a steady reading does not tell. None below two readings."""
    if len(t) < 2:
        return None
    changed = t[1:][np.diff(values) != 0]
    gaps = np.diff(changed) if len(changed) > 3 else np.diff(t)
    return float(np.median(gaps))


def _cumulative_j(t: FloatArray, power: FloatArray, at: FloatArray) -> FloatArray:
    """Integral of the readings, joined by straight lines and held constant outside, from t[0] to `at`."""
    area = np.concatenate([[0.0], np.cumsum(np.diff(t) * (power[1:] + power[:-1]) / 2)])
    inside = np.clip(at, t[0], t[-1])
    place = np.clip(np.searchsorted(t, inside, side="right") - 1, 0, len(t) - 1)
    here = np.interp(inside, t, power)
    partial = area[place] + (inside - t[place]) * (power[place] + here) / 2
    return np.asarray(partial + (at - inside) * here)
