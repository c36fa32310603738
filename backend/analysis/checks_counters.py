"""Checks on /metrics: resets, prefix-cache hits, traffic of others, and counters against per-request numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from backend.analysis.counted import (
    ACCEPTED,
    ACCEPTED_AT,
    DRAFTED,
    DRAFTS,
    GENERATED,
    NAMES,
    PREFIX_HITS,
    PREFIX_QUERIES,
    REQUESTS,
    counter_deltas,
    family,
)
from backend.analysis.selection import complete_sums, numbers
from backend.records import Finding

PREFIX_SHARE = 0.01  # of the queried prompt tokens; above it the arm is out
RATE_SHARE = 0.01  # counters against clocks


def counter_findings(
    run_cell: pd.DataFrame,
    counters: pd.DataFrame,
    requests: pd.DataFrame | None,
    sweep: str,
) -> list[Finding]:
    """Findings per run and cell."""
    out = _resets(counters, sweep)
    depth = {
        (str(r), str(c)): int(k) for r, c, k in zip(run_cell["run_id"], run_cell["cell_id"], run_cell["k"], strict=True)
    }
    mine = {} if requests is None else _own_sums(requests)
    for (run_id, cell_id), rows in counter_deltas(counters).groupby(["run_id", "cell_id"], sort=True):
        place = (sweep, str(run_id), str(cell_id))
        total: dict[str, float] = {
            str(n): float(d) for n, d in zip(rows["name"], rows["delta"], strict=True) if n != ACCEPTED_AT
        }
        out += _prefix(place, total)
        if place[1:] in depth and place[1:] in mine:
            out += _against_requests(place, total, mine[place[1:]], depth[place[1:]])
    return out


def _own_sums(requests: pd.DataFrame) -> dict[tuple[str, str], dict[str, float]]:
    """Sums of our MEASURE requests by (run_id, cell_id); cells with a failed request are left out: it may have run."""
    measured = requests[requests["phase"] == "measure"]
    columns = ["output_tokens", "steps", "drafted_steps", "drafted_tokens", "accepted_tokens", "decode_s"]
    sums = complete_sums(measured, ["run_id", "cell_id"], columns)
    failed = (
        set(zip(*(measured.loc[measured["error"].notna(), c] for c in ("run_id", "cell_id")), strict=True))
        if "error" in measured
        else set()
    )
    return {
        (str(row["run_id"]), str(row["cell_id"])): {c: float(row[c]) for c in [*columns, "n"]}
        for row in sums.to_dict("records")
        if (row["run_id"], row["cell_id"]) not in failed
    }


def _resets(counters: pd.DataFrame, sweep: str) -> list[Finding]:
    back = counters[
        (numbers(counters, "after") < numbers(counters, "before")) & counters["name"].map(family).isin(NAMES)
    ]
    out = []
    for (run_id, cell_id), rows in back.groupby(["run_id", "cell_id"], sort=True):
        first = rows.iloc[0]
        fall = float(first["before"] - first["after"])
        out.append(
            Finding(
                sweep,
                str(run_id),
                str(cell_id),
                "counter-reset",
                "error",
                fall,
                "count",
                f"{len(rows)} counters went backwards ({first['name']} by {fall:g}): the server was restarted or its "
                "statistics were flushed",
                "repeat the run; keep other clients from resetting the server",
            )
        )
    return out


def _prefix(place: tuple[str, str, str], total: Mapping[str, float]) -> list[Finding]:
    hits, queries = total.get(PREFIX_HITS, 0.0), total.get(PREFIX_QUERIES, 0.0)
    if not (hits > 0 and queries > 0):
        return []
    share = hits / queries
    return [
        Finding(
            *place,
            "prefix-cache-hits",
            "error" if share > PREFIX_SHARE else "warning",
            100 * share,
            "%",
            f"{hits:g} of {queries:g} prompt tokens came from the prefix cache: the arm is contaminated",
            "start the server with --no-enable-prefix-caching, or with prompts that share no prefix; repeat the run",
        )
    ]


def _against_requests(
    place: tuple[str, str, str],
    total: Mapping[str, float],
    mine: Mapping[str, float],
    k: int,
) -> list[Finding]:
    """Counters of the phase against the sums of our own requests; both have the first tokens in."""
    n, ours = mine["n"], mine["output_tokens"]
    generated, served = total.get(GENERATED, np.nan), total.get(REQUESTS, np.nan)
    if generated > ours or served > n:
        figure, unit = (generated - ours, "tokens") if generated > ours else (served - n, "requests")
        return [
            Finding(
                *place,
                "foreign-requests",
                "error",
                figure,
                unit,
                f"the server worked for others: its counters rose by {figure:g} {unit} more than ours",
                "give the sweep a server of its own and repeat the run",
            )
        ]
    parts = [
        f"{name} {there:g} against {here:g}"
        for name, there, here in (
            ("generated tokens", generated, ours),
            ("requests", served, n),
            ("drafts", total.get(DRAFTS, np.nan), mine["drafted_steps"]),
            ("draft tokens", total.get(DRAFTED, np.nan), mine["drafted_tokens"]),
            ("accepted tokens", total.get(ACCEPTED, np.nan), mine["accepted_tokens"]),
        )
        if np.isfinite([there, here]).all() and there != here
    ]
    out = []
    if parts:
        out.append(
            Finding(
                *place,
                "counters-disagree",
                "error",
                generated - ours if np.isfinite(generated - ours) else None,
                "tokens",
                f"/metrics and the requests do not agree: {'; '.join(parts)}",
                "a scrape may have come too early, or a request was lost: repeat the run",
            )
        )
    return [*out, *_rate(place, total, mine, k)]


def _rate(
    place: tuple[str, str, str],
    total: Mapping[str, float],
    mine: Mapping[str, float],
    k: int,
) -> list[Finding]:
    """tok/s = tokens_per_step / cycle, with tokens and steps from /metrics and windows from the requests' clocks.

    Counted: drafts + accepted + undrafted steps = emitted + overshoot; overshoot within 0..K x requests.
    """
    n, steps, window = mine["n"], mine["steps"], mine["decode_s"]
    drafts, accepted, generated = (total.get(x, np.nan) for x in (DRAFTS, ACCEPTED, GENERATED))
    counted_steps = drafts + steps - mine["drafted_steps"]
    cut = counted_steps + accepted - (generated - n)
    out = []
    if k > 0 and np.isfinite(cut) and not 0 <= cut <= k * n:
        out.append(
            Finding(
                *place,
                "token-accounting",
                "error",
                cut,
                "tokens",
                f"counted drafts + accepted - emitted is {cut:g} tokens, outside 0..{k * n:g} (K x requests)",
                "check for tokens after EOS counted as emitted, or engines counted twice",
            )
        )
    emitted = mine["output_tokens"] - n
    if np.isfinite([window, steps, emitted, generated]).all() and min(window, steps, emitted) > 0:
        per_step = (generated - n) / (counted_steps if np.isfinite(counted_steps) else steps)
        gap = per_step / (window / steps) / (emitted / window) - 1
        if abs(gap) > RATE_SHARE:
            out.append(
                Finding(
                    *place,
                    "rate-identity",
                    "error",
                    100 * gap,
                    "%",
                    f"tokens per step of /metrics over the cycle of the clocks is {100 * gap:+.1f}% off the rate",
                    "steps of the counters and of the requests are not the same steps: see counters-disagree",
                )
            )
    return out
