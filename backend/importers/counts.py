"""Totals of a run's drafts as reported values, and the checks that need totals: the ones of analysis.checks_requests,
which look at each request, here for a whole run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backend.analysis.acceptance import impossible
from backend.analysis.checks_requests import overshoot
from backend.importers.found import figure
from backend.records import Finding, ReportedValue


def draft_figures(
    drafted_steps: int, drafted_tokens: int, accepted_tokens: int, survival: Sequence[float], note: str
) -> list[ReportedValue]:
    """Totals, acceptance length and rate, and survival by position; without a draft there is no rate."""
    found = [
        figure("drafted_steps", drafted_steps, "steps", note),
        figure("drafted_tokens", drafted_tokens, "tokens", note),
        figure("accepted_tokens", accepted_tokens, "tokens", note),
    ]
    if drafted_steps:
        found.append(figure("acceptance_length", 1 + accepted_tokens / drafted_steps, "tokens", note))
    if drafted_tokens:
        found.append(figure("acceptance", accepted_tokens / drafted_tokens, "1", note))
    return found + survival_figures(survival, note)


def survival_figures(survival: Sequence[float], note: str) -> list[ReportedValue]:
    """Survival rates (accepted at the position / drafted steps), positions from 0."""
    return [figure(f"survival_{position}", rate, "1", note) for position, rate in enumerate(survival)]


def impossible_counts(k: int, drafted_steps: int, drafted_tokens: int, accepted_tokens: int) -> list[Finding]:
    """Totals that cannot be: an error that takes the run out of fits. They are stored as they are, never clamped."""
    codes = impossible(float(drafted_tokens), float(accepted_tokens), float(drafted_steps), k)
    if not codes:
        return []
    share = 100 * accepted_tokens / drafted_tokens if drafted_tokens else None
    return [
        _finding(
            "impossible-counts",
            share,
            "%",
            f"counts that cannot be ({', '.join(codes)}): {accepted_tokens} accepted of {drafted_tokens} drafted in "
            f"{drafted_steps} steps at K={k}; they are shown as they are, never clamped",
            "check which denominator the engine reports, and whether counts of two engines were added twice",
        )
    ]


def token_accounting(k: int, requests: int, emitted: int, steps: int, accepted_tokens: int) -> list[Finding]:
    """Overshoot = steps + accepted - emitted (tokens after the first) must lie in 0..K x requests."""
    cut = float(overshoot(*(np.array(float(total)) for total in (emitted, steps, accepted_tokens))))
    if 0 <= cut <= k * requests:
        return []
    return [
        _finding(
            "token-accounting",
            cut,
            "tokens",
            f"{requests} requests do not add up: steps + accepted - emitted is {cut:g} tokens, "
            f"outside 0..{k * requests}",
            "look for other traffic between the scrapes of /metrics; tokens may be counted as chunks or twice",
        )
    ]


def failed_requests(failed: int, reason: str) -> list[Finding]:
    """Failed requests are in no sum; this says how many there are."""
    if not failed:
        return []
    return [
        _finding(
            "failed-requests",
            float(failed),
            "requests",
            f"{failed} requests failed ({reason}); they are in no figure",
            "find out why before comparing this run with others",
            severe=False,
        )
    ]


def _finding(code: str, value: float | None, unit: str, message: str, action: str, *, severe: bool = True) -> Finding:
    return Finding("", "", "", code, "error" if severe else "warning", value, unit, message, action)
