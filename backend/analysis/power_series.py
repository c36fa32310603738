"""A run's power over time, one line a node and sensor: readings, or what an energy counter gained between two reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from backend.analysis.selection import numbers

POINTS = 1500  # a line; above, neighbours are averaged


@dataclass(frozen=True, slots=True)
class PowerLine:
    """One sensor of one node over a run. t_s, power_w, clock_mhz: (n,) each, seconds from `origin_unix_s`; NaN: gap."""

    node: str
    scope: str
    source: str
    method: str  # "readings" | "counter differences"
    t_s: tuple[float, ...]
    power_w: tuple[float, ...]
    clock_mhz: tuple[float, ...]
    averaged: int  # samples behind one point
    reason: str  # why values are missing; "" where none is

    @property
    def name(self) -> str:
        """Node and sensor, for a legend."""
        return f"{self.node}: {self.scope} ({self.source})"

    @property
    def mean_w(self) -> float | None:
        """Mean over the points that are there."""
        there = [value for value in self.power_w if np.isfinite(value)]
        return float(np.mean(there)) if there else None


def power_lines(samples: pd.DataFrame, origin_unix_s: float) -> list[PowerLine]:
    """One a node and sensor of one run's samples (t_unix_s, power_w, energy_j, ...), in their order.

    A sensor that only counts gives (E_i - E_(i-1)) / (t_i - t_(i-1)) at the middle of the two reads; a counter that
    went backwards gives a gap there.
    """
    lines = []
    for (node, scope, source), rows in samples.groupby(["node", "scope", "source"], sort=True):
        rows = rows.sort_values("t_unix_s", kind="stable")
        t, power, energy = (numbers(rows, name) for name in ("t_unix_s", "power_w", "energy_j"))
        clock, method = numbers(rows, "sm_clock_mhz"), "readings"
        if not np.isfinite(power).any() and np.isfinite(energy).sum() > 1:
            gained, passed = np.diff(energy), np.diff(t)
            with np.errstate(divide="ignore", invalid="ignore"):
                power = np.where((gained >= 0) & (passed > 0), gained / passed, np.nan)
            t, clock, method = t[:-1] + passed / 2, clock[1:], "counter differences"
        reasons = [str(reason) for reason in rows["unsupported_reason"].dropna().unique()]
        step = max(1, -(-len(t) // POINTS))
        t, power, clock = (_averaged(values, step) for values in (t, power, clock))
        lines.append(
            PowerLine(
                str(node),
                str(scope),
                str(source),
                method,
                tuple(t - origin_unix_s),
                tuple(power),
                tuple(clock),
                step,
                "; ".join(reasons),
            )
        )
    return lines


def _averaged(values: np.ndarray, step: int) -> np.ndarray:
    """Means of `step` neighbours; a group without a value stays NaN."""
    if step == 1 or not len(values):
        return values
    padded = np.concatenate([values, np.full(-len(values) % step, np.nan)]).reshape(-1, step)
    there = np.isfinite(padded).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(there > 0, np.nansum(padded, axis=1) / there, np.nan)
