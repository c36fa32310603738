"""Checks on the state of the nodes: canaries against the node's own history, clocks under load. K-blind evidence.

Known states (facts of public reports on GB10): a power-delivery fault holds the clocks at 480-860 MHz at 96%
utilisation, mostly without a throttle flag, until the machine's power supply is unplugged; another state slows every
step by half with flat telemetry, and only a canary shows it.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pandas as pd

from backend.analysis.selection import numbers
from backend.records import Finding

CANARY_SHARE, CPU_CANARY_SHARE = 0.10, 0.30  # processors share their cores with the server they are beside
HISTORY_RUNS = 3
SCATTERS = 3.0  # a canary must also be so many of its own robust standard deviations away
KEY = ["run_id", "node", "moment", "kind"]
BUSY_PERCENT = 80.0
CLOCK_SHARE = 0.5  # of the highest SM clock
GB10_FLOOR_MHZ = 900.0  # where the highest clock cannot be read: above the fault's 860, far below a healthy 2400
THROTTLED_PERCENT = 10.0  # of the samples
CURES = (
    "known cures: take the node's power supply off the wall for a minute and start it again; let a freshly booted node "
    "warm up; end other work on it; then repeat the run"
)


def canary_findings(canary: pd.DataFrame, sweep: str, history: pd.DataFrame | None = None) -> list[Finding]:
    """A canary that changed during a run, or is slower than usual for its node and kind. One finding a run and code.

    canary: table canary of one sweep; history: the same of earlier runs of any sweep. Usual is the median over both,
    from three runs on. The bound is 10% (30% for a canary on the CPU), or three times its scatter inside runs where
    that is more: a node whose canary scatters by itself proves nothing by it.
    """
    timed = _timed(canary)
    known = timed if history is None else pd.concat([timed, _timed(history)]).drop_duplicates(KEY)
    slow: dict[str, list[tuple[float, str]]] = defaultdict(list)
    changed: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for (node, kind), rows in timed.groupby(["node", "kind"], sort=True):
        seen = known[(known["node"] == node) & (known["kind"] == kind)]
        usual = float(np.exp(np.median(np.log(seen["duration_s"].to_numpy()))))
        enough = seen["run_id"].nunique() >= HISTORY_RUNS
        share = CPU_CANARY_SHARE if str(kind).endswith((" cpu", " python")) else CANARY_SHARE
        bound = max(share, float(np.expm1(SCATTERS * _scatter(seen))) if enough else 0.0)
        for run_id, pair in rows.groupby("run_id", sort=True):
            by_moment = pair.set_index("moment")["duration_s"]
            late = 100 * float(by_moment.max() / usual - 1)
            if enough and late > 100 * bound:
                words = f"the {kind} canary on {node} took {late:.0f}% longer than usual there"
                slow[str(run_id)].append((late, words))
            if {"before", "after"} <= set(by_moment.index):
                change = 100 * float(by_moment["after"] / by_moment["before"] - 1)
                if abs(change) > 100 * bound:
                    words = f"the {kind} canary on {node} changed by {change:+.0f}% during the run"
                    changed[str(run_id)].append((change, words))
    return [
        *_worst(sweep, slow, "canary-slow", f"a hidden machine state; {CURES}"),
        *_worst(sweep, changed, "canary-changed", f"the machine changed its state while measuring; {CURES}"),
    ]


def _timed(canary: pd.DataFrame) -> pd.DataFrame:
    rows = canary.assign(duration_s=numbers(canary, "duration_s"))
    return rows[rows["duration_s"] > 0]


def _scatter(seen: pd.DataFrame) -> float:
    """Robust standard deviation of the log of one canary, from its changes inside runs: 1.4826 median |log(a/b)|.

    Not over runs: two states of a machine would look like scatter there, and they are what is looked for.
    """
    moments = seen.pivot_table(index="run_id", columns="moment", values="duration_s", aggfunc="last")
    if not {"before", "after"} <= set(moments):
        return 0.0
    change = np.log((moments["after"] / moments["before"]).dropna().to_numpy())
    return 1.4826 * float(np.median(np.abs(change))) if len(change) else 0.0


def _worst(sweep: str, found: dict[str, list[tuple[float, str]]], code: str, action: str) -> list[Finding]:
    """One finding a run: the largest figure, and every node's words."""
    return [
        Finding(
            sweep,
            run_id,
            "",
            code,
            "error",
            max((figure for figure, _ in each), key=abs),
            "%",
            "; ".join(words for _, words in each),
            action,
        )
        for run_id, each in sorted(found.items())
    ]


def clock_findings(
    samples: pd.DataFrame, environment: pd.DataFrame, requests: pd.DataFrame, sweep: str
) -> list[Finding]:
    """Runs measured with clocks far below what the GPU can, at high utilisation; and throttling. One a run and code.

    samples: table power_sample; environment: table environment with the agent's facts; requests: table request. Clocks
    are the median over the MEASURE span. Codes: clocks-stuck (no throttle flag: the power-delivery fault's picture),
    clocks-throttled (an error below half of the highest clock, else a warning).
    """
    out = []
    facts = {
        (str(run), str(node)): dict(zip(rows["name"], rows["value"], strict=True))
        for (run, node), rows in environment.groupby(["run_id", "node"])
    }
    for (run_id, node), rows in samples.groupby(["run_id", "node"], sort=True):
        known = facts.get((str(run_id), str(node)), {})
        busy, flagged = _number(known.get("gpu_utilization_median_percent")), str(known.get("gpu_throttled") or "")
        clock = _measured_clock(rows, requests[requests["run_id"] == run_id])
        if clock is None or busy is None or busy < BUSY_PERCENT:
            continue
        top = _number(known.get("gpu_sm_clock_max_mhz"))
        floor = CLOCK_SHARE * top if top else GB10_FLOOR_MHZ if "GB10" in str(known.get("gpu_name")) else None
        low = floor is not None and clock < floor
        often = any(float(part.rsplit(" ", 1)[1].rstrip("%")) >= THROTTLED_PERCENT for part in _parts(flagged))
        if not low and not often:
            continue
        code = "clocks-throttled" if often else "clocks-stuck"
        why = f"throttled: {flagged}" if often else "without a throttle flag"
        against = f", below {floor:.0f} MHz" if low else ""
        out.append(
            Finding(
                sweep,
                str(run_id),
                "",
                code,
                "error" if low else "warning",
                clock,
                "MHz",
                f"{node}: SM clock {clock:.0f} MHz{against} at {busy:.0f}% utilisation, {why}",
                f"look at temperature and power limits; {CURES}" if often else f"power-delivery fault; {CURES}",
            )
        )
    merged: dict[tuple[str, str], Finding] = {}
    for finding in sorted(out, key=lambda f: (f.severity != "error", f.figure or 0.0)):  # the slowest node speaks first
        merged.setdefault((finding.run_id, finding.code), finding)
    return [merged[key] for key in sorted(merged)]


def _measured_clock(rows: pd.DataFrame, requests: pd.DataFrame) -> float | None:
    """Median SM clock between the first MEASURE request's start and the last one's end, MHz."""
    measured = requests[requests["phase"] == "measure"]
    start, total = numbers(measured, "started_unix_s"), numbers(measured, "client_total_s")
    if not len(start) or not np.isfinite(start + total).any():
        return None
    t, clock = numbers(rows, "t_unix_s"), numbers(rows, "sm_clock_mhz")
    inside = (t >= np.nanmin(start)) & (t <= np.nanmax(start + total)) & np.isfinite(clock)
    return float(np.median(clock[inside])) if inside.any() else None


def _number(text: object) -> float | None:
    """A fact as a number; None for "unsupported: ..." and for what is not there."""
    try:
        value = float(str(text))
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _parts(flagged: str) -> list[str]:
    """The "reason share%" parts of the fact gpu_throttled."""
    return [part for part in flagged.split(", ") if part.endswith("%")]
