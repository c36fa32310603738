"""Checks on single requests, canaries and published rates: token accounting, impossible counts, clocks."""

from __future__ import annotations

import numpy as np
import pandas as pd

from backend.analysis.acceptance import impossible
from backend.analysis.selection import numbers
from backend.records import Finding

CLOCK_SHARE, CLOCK_S = 0.02, 0.008  # client against engine clock: quiet 4-8 ms, starved 9-25 ms were seen
CANARY_SHARE = 0.10
ROUNDING_TOKENS = 0.01  # published rates have 3 decimals, lengths 2


def overshoot(tokens_after_first: float, steps: float, accepted: float) -> float:
    """Tokens accepted but cut off by EOS or max_tokens: steps + accepted - emitted; 0 <= it <= K x requests."""
    return steps + accepted - tokens_after_first


def request_findings(run_cell: pd.DataFrame, requests: pd.DataFrame, sweep: str) -> list[Finding]:
    """Per run and cell: accounting and counts of the MEASURE requests, and the two clocks."""
    depth = run_cell[["run_id", "cell_id", "k"]].drop_duplicates()
    measured = requests[requests["phase"] == "measure"]
    if "error" in measured:
        measured = measured[measured["error"].isna()]
    measured = measured.drop(columns=["k"], errors="ignore").merge(depth, on=["run_id", "cell_id"])
    out: list[Finding] = []
    for (run_id, cell_id), rows in measured.groupby(["run_id", "cell_id"], sort=True):
        place = (sweep, str(run_id), str(cell_id))
        out += _counts(place, rows, int(rows["k"].iloc[0]))
        out += _clocks(place, rows)
    return out


def _counts(place: tuple[str, str, str], rows: pd.DataFrame, k: int) -> list[Finding]:
    emitted = np.maximum(numbers(rows, "output_tokens") - 1, 0.0)
    steps, drafted_steps = numbers(rows, "steps"), numbers(rows, "drafted_steps")
    drafted, accepted = numbers(rows, "drafted_tokens"), numbers(rows, "accepted_tokens")
    if k == 0:
        drafted_steps, drafted, accepted = (np.where(np.isnan(x), 0.0, x) for x in (drafted_steps, drafted, accepted))
    out = []
    cut = steps + accepted - emitted
    bad = (cut < 0) | (cut > k)
    if bad.any():
        worst = float(cut[bad][np.argmax(np.abs(cut[bad] - k / 2))])
        out.append(Finding(
            *place, "token-accounting", "error", worst, "tokens",
            f"{int(bad.sum())} of {len(rows)} requests do not add up: steps + accepted - emitted is {worst:g} tokens, "
            f"outside 0..{k}",
            "compare the engine's per-request numbers with /metrics; tokens may be counted as chunks or twice"))
    codes = {code for values in zip(drafted, accepted, drafted_steps, strict=True) if np.isfinite(values).all()
             for code in impossible(*values, k)}
    if (drafted_steps > steps).any():
        codes.add("more-drafted-steps-than-steps")
    if codes:
        total = float(np.nansum(drafted))
        rate = float(np.nansum(accepted)) / total if total else None
        out.append(Finding(
            *place, "impossible-counts", "error", None if rate is None else 100 * rate, "%",
            f"counts that cannot be ({', '.join(sorted(codes))}); they are shown as they are, never clamped",
            "check which denominator the engine reports, and whether counts of two engines were added twice"))
    return out


def _clocks(place: tuple[str, str, str], rows: pd.DataFrame) -> list[Finding]:
    """client total - (queue + prefill + window) per request, beyond max(2% of the total, 8 ms)."""
    if "clock" in rows:
        rows = rows[rows["clock"] == "engine"]
    total = numbers(rows, "client_total_s")
    queue = numbers(rows, "queue_s")
    inside = np.where(np.isnan(queue), 0.0, queue) + numbers(rows, "prefill_s") + numbers(rows, "decode_s")
    excess = total - inside
    known = np.isfinite(excess)
    if not known.any():
        return []
    excess, bound = excess[known], np.maximum(CLOCK_SHARE * total[known], CLOCK_S)
    n = int(known.sum())
    out = []
    for code, beyond, message, action in (
        ("client-starved", excess > bound, "the client saw requests end later than the engine's clock says",
         "free the client's CPU (nothing else on it while a sweep runs) and repeat the run"),
        ("clocks-disagree", -excess > bound, "the client's total is shorter than the engine's own times",
         "check that queue, prefill and decode times are of the same request and unit"),
    ):
        if beyond.any():
            middle = 1000 * float(np.median(excess[beyond]))
            out.append(Finding(
                *place, code, "error" if 2 * int(beyond.sum()) >= n else "warning", middle, "ms",
                f"{message}: {int(beyond.sum())} of {n} requests beyond max(2%, 8 ms), median {abs(middle):.1f} ms",
                action))
    return out


def canary_findings(canary: pd.DataFrame, sweep: str) -> list[Finding]:
    """A canary that changed during a run, or is slower than the sweep's median of its node and kind, by over 10%."""
    out = []
    timed = canary.assign(duration_s=numbers(canary, "duration_s")).dropna(subset=["duration_s"])
    for (node, kind), rows in timed.groupby(["node", "kind"], sort=True):
        usual = float(rows["duration_s"].median())
        for run_id, pair in rows.groupby("run_id", sort=True):
            by_moment = pair.set_index("moment")["duration_s"]
            place = (sweep, str(run_id), "")
            slow = float(by_moment.max()) / usual - 1
            if slow > CANARY_SHARE and rows["run_id"].nunique() >= 3:
                out.append(Finding(
                    *place, "canary-slow", "error", 100 * slow, "%",
                    f"the {kind} canary on {node} took {100 * slow:.0f}% longer than in the median run",
                    "look for a hidden machine state (clocks, power delivery, other load), then repeat the run"))
            if {"before", "after"} <= set(by_moment.index):
                change = float(by_moment["after"] / by_moment["before"]) - 1
                if abs(change) > CANARY_SHARE:
                    out.append(Finding(
                        *place, "canary-changed", "error", 100 * change, "%",
                        f"the {kind} canary on {node} changed by {100 * change:+.0f}% during the run",
                        "the machine changed its state while measuring: repeat the run"))
    return out


def position_findings(run_cell: pd.DataFrame, positions: pd.DataFrame, sweep: str) -> list[Finding]:
    """Survival rates: within 0..1, not rising with position, and adding up to the acceptance length."""
    out = []
    for (cell_id, k), rows in positions.groupby(["cell_id", "k"], sort=True):
        depth = int(rows["k"].iloc[0])
        ordered = rows.sort_values("position")
        rates = numbers(ordered, "survival")
        rates = rates[np.isfinite(rates)]
        runs = run_cell[(run_cell["cell_id"] == cell_id) & (run_cell["k"] == k)]
        run_id = str(runs["run_id"].iloc[0]) if len(runs) and "run_id" in runs else ""
        place = (sweep, run_id, str(cell_id))
        wrong = rates[(rates < 0) | (rates > 1)]
        if len(wrong):
            out.append(Finding(
                *place, "impossible-rate", "error", float(100 * wrong[0]), "%",
                f"K={depth}: an acceptance rate of {100 * wrong[0]:.0f}% cannot be; shown as it is, never clamped",
                "check the denominator: accepted at the position over steps that carried a draft"))
        elif (np.diff(rates) > ROUNDING_TOKENS).any():
            rise = float(np.diff(rates).max())
            out.append(Finding(
                *place, "survival-rises", "warning", rise, "1",
                f"K={depth}: survival rises by {rise:.3f} from one position to the next, which survival cannot",
                "these may be conditional rates, or rates per drafted token: see acceptance_by_position"))
        length = numbers(runs, "acceptance_length")
        length = length[np.isfinite(length)]
        if len(rates) == depth and len(length):
            gap = float(length.mean()) - 1 - float(rates.sum())
            if abs(gap) > ROUNDING_TOKENS:
                out.append(Finding(
                    *place, "rates-do-not-sum", "warning", gap, "tokens",
                    f"K={depth}: the acceptance length is {length.mean():.3f}, but 1 + the sum of its positions is "
                    f"{1 + rates.sum():.3f}",
                    "ask which of the two was measured: the difference may be undrafted steps or another denominator"))
    return out
