"""Energy of every run from its power samples: joules, mean watts, tokens per joule.

Source: design.md, "Energy". J of a span is the difference of the sensor's energy counter where it has one, else the
trapezoid of its power readings; a node's joules are added up over all nodes, and without one of them there is no
figure. Which span: the decode windows (first to last token, concurrency 1) where they hold at least 3 sensor periods,
else the whole MEASURE phase, stored as phase 'decode' or 'measure':
decode: tokens_per_joule = tokens after the first / J (= decode_tok_s / mean power); measure: tokens out / J.
A cell has one phase and one sensor kind (scope, source) for all its runs: scopes are never added or compared.
A sensor that averages (NVML: about 1 s) lags by up to its own period, which is why a window must hold several.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import pandas as pd

from backend.analysis.estimate import FloatArray
from backend.analysis.power_sensor import Kind, Sensor, sensors_of
from backend.analysis.selection import numbers

MIN_PERIODS = 3  # sensor periods that a decode window must hold
DECODE_SHARE = 0.9  # of the decode time must lie in such windows
NO_SAMPLES = "no power sensor was read"

Phase = Literal["decode", "measure"]


@dataclass(frozen=True, slots=True)
class RunEnergy:
    """Energy of one run's cell, summed over all nodes; a row of table `run_energy`. None with a `reason`: no figure."""

    run_id: str
    cell_id: str
    phase: Phase
    duration_s: float | None  # of the span that energy_j covers
    energy_j: float | None
    power_w: float | None  # energy_j / duration_s
    tokens: int | None  # emitted in the span
    tokens_per_joule: float | None
    scope: str | None
    source: str | None
    method: str | None  # "counter difference" | "trapezoid"
    nodes: int | None
    sensor_period_s: float | None  # the slowest node's
    reason: str | None


COLUMNS = list(RunEnergy.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Span:
    """When a run's cell was measured: decode windows (n,) and the whole MEASURE phase, seconds since 1970."""

    windows: tuple[FloatArray, FloatArray] | None  # None: they overlap (concurrency), or the times are not known
    phase: tuple[FloatArray, FloatArray]
    tokens_after_first: float
    tokens_out: float

    def decodes(self, period: float) -> bool:
        """Whether the decode windows are long enough for a sensor of this period."""
        if self.windows is None:
            return False
        length = self.windows[1] - self.windows[0]
        return bool(length[length >= MIN_PERIODS * period].sum() >= DECODE_SHARE * length.sum() > 0)


def span_of(requests: pd.DataFrame) -> Span | None:
    """The spans of one run's cell from its MEASURE requests; None where their times were not recorded.

    A request that failed used energy too, so the phase covers it; its tokens do not count.
    """
    start, total = numbers(requests, "started_unix_s"), numbers(requests, "client_total_s")
    if not len(start) or not np.isfinite(start + total).all():
        return None
    good = requests["error"].isna().to_numpy() if "error" in requests else np.ones(len(start), dtype=bool)
    output, decode = numbers(requests, "output_tokens")[good], numbers(requests, "decode_s")[good]
    windows = None
    end = (start + total)[good]
    decoding = output > 1
    if np.isfinite(decode[decoding]).all() and decoding.any():
        stop = end[decoding]
        begin = stop - decode[decoding]  # the last token is what ends a request
        order = np.argsort(begin)
        if (begin[order][1:] >= stop[order][:-1] - 1e-3).all():
            windows = (begin, stop)
    phase = (np.array([start.min()]), np.array([(start + total).max()]))
    return Span(windows, phase, float(np.maximum(output - 1, 0).sum()), float(output.sum()))


def run_energies(samples: pd.DataFrame, requests: pd.DataFrame) -> pd.DataFrame:
    """`energies_of` as a table with the columns of RunEnergy; empty without samples."""
    return pd.DataFrame([asdict(row) for row in energies_of(samples, requests)], columns=COLUMNS)


def energies_of(samples: pd.DataFrame, requests: pd.DataFrame) -> list[RunEnergy]:
    """One a run and cell that has MEASURE requests; none without samples.

    samples: table power_sample (run_id, node, t_unix_s, power_w, energy_j, scope, source, unsupported_reason) of one
    sweep; requests: table request. The nodes are all that any sample of the sweep names.
    """
    measured = requests[requests["phase"] == "measure"] if len(requests) else requests
    if samples.empty or measured.empty:
        return []
    nodes = sorted(samples["node"].unique())
    sensors = sensors_of(samples)
    rows: list[RunEnergy] = []
    for cell_id, cell in measured.groupby("cell_id", sort=True):
        spans = {str(run): span_of(group) for run, group in cell.groupby("run_id", sort=False)}
        rows += _cell(str(cell_id), spans, sensors, nodes)
    return rows


def _cell(
    cell_id: str,
    spans: dict[str, Span | None],
    sensors: dict[tuple[str, Kind, str], Sensor],
    nodes: list[str],
) -> list[RunEnergy]:
    """Every run of a cell by the kind that gives most runs a figure, the widest scope of those."""
    kinds = sorted({kind for _, kind, _ in sensors}, key=lambda kind: kind.rank)
    answers = {kind: _by_kind(cell_id, spans, sensors, nodes, kind) for kind in kinds}
    return max(answers.values(), key=lambda rows: sum(row.energy_j is not None for row in rows))  # the first of equals


def _by_kind(
    cell_id: str,
    spans: dict[str, Span | None],
    sensors: dict[tuple[str, Kind, str], Sensor],
    nodes: list[str],
    kind: Kind,
) -> list[RunEnergy]:
    periods = [s.period_s for (run, of, _), s in sensors.items() if of == kind and run in spans and s.period_s]
    slowest = max(periods, default=math.inf)
    decode = all(span is None or span.decodes(slowest) for span in spans.values())
    return [
        _one(run, cell_id, span, {node: sensors.get((run, kind, node)) for node in nodes}, kind, decode)
        for run, span in spans.items()
    ]


def _one(
    run_id: str,
    cell_id: str,
    span: Span | None,
    sensors: dict[str, Sensor | None],
    kind: Kind,
    decode: bool,
) -> RunEnergy:
    """One run: the sum over nodes, or why there is none."""
    phase: Phase = "decode" if decode else "measure"

    def none(reason: str) -> RunEnergy:
        nothing = (None,) * 5
        return RunEnergy(run_id, cell_id, phase, *nothing, *kind, None, len(sensors), None, reason)

    if span is None:
        return none("the times of its requests were not recorded")
    begin, end = span.windows if decode and span.windows is not None else span.phase
    total, methods, periods = 0.0, set(), []
    for node, sensor in sensors.items():
        if sensor is None:
            return none(f"node {node}: {NO_SAMPLES}")
        for counter in (True, False) if sensor.counts else (False,):
            energy, why = sensor.energy_j(begin, end, counter=counter)
            if not math.isnan(energy):
                methods.add("counter difference" if counter else "trapezoid")
                break
        else:
            return none(f"node {node}: {why}")
        total += energy
        periods.append(sensor.period_s or 0.0)
    duration = float((end - begin).sum())
    tokens = span.tokens_after_first if decode else span.tokens_out
    if duration <= 0 or total <= 0:
        return none("no energy was counted: the sensor reads 0")
    known = math.isfinite(tokens)
    return RunEnergy(
        run_id,
        cell_id,
        phase,
        duration,
        total,
        total / duration,
        int(tokens) if known else None,
        tokens / total if known else None,
        *kind,
        " and ".join(sorted(methods)),
        len(sensors),
        max(periods),
        None if known else "the tokens of its requests were not recorded",
    )


def with_energy(run_cell: pd.DataFrame, samples: pd.DataFrame, requests: pd.DataFrame) -> pd.DataFrame:
    """Rows of view `run_cell` with power_w, power_scope and tokens_per_joule of the runs' samples, and power_phase.

    The view has the plain mean of the readings; here is the energy as defined above, or None with no figure at all.
    Runs without samples (reported figures) keep theirs; without any samples the rows come back as they are.
    """
    energies = run_energies(samples, requests)
    if energies.empty:
        return run_cell
    known = energies.rename(columns={"scope": "power_scope", "phase": "power_phase"}).set_index(["run_id", "cell_id"])
    place = pd.MultiIndex.from_frame(run_cell[["run_id", "cell_id"]])
    sampled = place.isin(known.index)
    found = known.reindex(place)
    there = sampled & found["power_w"].notna().to_numpy()
    out = run_cell.copy()
    for column in ("power_w", "tokens_per_joule"):
        out[column] = np.where(sampled, numbers(found, column), numbers(run_cell, column))
    before = list(run_cell["power_scope"]) if "power_scope" in run_cell else [None] * len(run_cell)
    out["power_scope"] = [
        new if is_there else None if of_samples else old
        for new, is_there, of_samples, old in zip(found["power_scope"], there, sampled, before, strict=True)
    ]
    out["power_phase"] = [
        phase if is_there else None for phase, is_there in zip(found["power_phase"], there, strict=True)
    ]
    return out
