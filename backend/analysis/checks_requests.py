"""Checks on single requests and published rates: token accounting, impossible counts, clocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.analysis.acceptance import impossible_masks
from backend.analysis.estimate import FloatArray
from backend.analysis.selection import numbers
from backend.records import Finding, Severity

CLOCK_SHARE, CLOCK_S = 0.02, 0.008  # client against engine clock: quiet 4-8 ms, starved 9-25 ms were seen
ROUNDING_TOKENS = 0.01  # published rates have 3 decimals, lengths 2


def overshoot(tokens_after_first: FloatArray, steps: FloatArray, accepted: FloatArray) -> FloatArray:
    """Tokens accepted but cut off by EOS or max_tokens: steps + accepted - emitted; 0 <= it <= K x requests."""
    return steps + accepted - tokens_after_first


def request_findings(run_cell: pd.DataFrame, requests: pd.DataFrame, sweep: str) -> list[Finding]:
    """Per run and cell: accounting and counts of the MEASURE requests, and the two clocks."""
    depth = run_cell[["run_id", "cell_id", "k"]].drop_duplicates()
    measured = requests[requests["phase"] == "measure"]
    if "error" in measured:
        measured = measured[measured["error"].isna()]
    measured = measured.drop(columns=["k"], errors="ignore").merge(depth, on=["run_id", "cell_id"])
    if measured.empty:
        return []
    return [*_counts(measured, sweep), *_clocks(measured, sweep)]


def _groups(rows: pd.DataFrame, bad: npt.NDArray[np.bool_]) -> Iterator[tuple[str, str, npt.NDArray[np.int64]]]:
    """(run_id, cell_id, row numbers) of the runs and cells where any row is bad."""
    keys = rows.loc[bad, ["run_id", "cell_id"]].drop_duplicates().sort_values(["run_id", "cell_id"])
    for run_id, cell_id in zip(keys["run_id"], keys["cell_id"], strict=True):
        yield str(run_id), str(cell_id), np.flatnonzero((rows["run_id"] == run_id) & (rows["cell_id"] == cell_id))


def _counts(rows: pd.DataFrame, sweep: str) -> list[Finding]:
    emitted, k = np.maximum(numbers(rows, "output_tokens") - 1, 0.0), numbers(rows, "k")
    steps, drafted_steps, drafted, accepted = (
        numbers(rows, name) for name in ("steps", "drafted_steps", "drafted_tokens", "accepted_tokens")
    )
    drafted_steps, drafted, accepted = (
        np.where(np.isnan(x) & (k == 0), 0.0, x) for x in (drafted_steps, drafted, accepted)
    )
    cut = overshoot(emitted, steps, accepted)
    bad = (cut < 0) | (cut > k)
    out = []
    for run_id, cell_id, mine in _groups(rows, bad):
        wrong, depth = cut[mine][bad[mine]], k[mine][0]
        worst = float(wrong[np.argmax(np.abs(wrong - depth / 2))])
        out.append(
            Finding(
                sweep,
                run_id,
                cell_id,
                "token-accounting",
                "error",
                worst,
                "tokens",
                f"{len(wrong)} of {len(mine)} requests do not add up: steps + accepted - emitted is {worst:g} tokens, "
                f"outside 0..{depth:g}",
                "compare the engine's per-request numbers with /metrics; tokens may be counted as chunks or twice",
            )
        )
    masks = {
        **impossible_masks(drafted, accepted, drafted_steps, k),
        "more-drafted-steps-than-steps": drafted_steps > steps,
    }
    for run_id, cell_id, mine in _groups(rows, np.logical_or.reduce(list(masks.values()))):
        codes = ", ".join(code for code, mask in masks.items() if mask[mine].any())
        total = float(np.nansum(drafted[mine]))
        out.append(
            Finding(
                sweep,
                run_id,
                cell_id,
                "impossible-counts",
                "error",
                100 * float(np.nansum(accepted[mine])) / total if total else None,
                "%",
                f"counts that cannot be ({codes}); they are shown as they are, never clamped",
                "check which denominator the engine reports, and whether counts of two engines were added twice",
            )
        )
    return out


def _clocks(rows: pd.DataFrame, sweep: str) -> list[Finding]:
    """client total - (queue + prefill + window) per request, beyond max(2% of the total, 8 ms).

    The windows are the engine's own, so a late client is a sign of a busy machine and not an error in itself: a few
    late requests are `info`, a tenth of them a `warning`. Half of them beyond twice the bound is evidence that the
    machine was not the sweep's alone, and that excludes the run.
    """
    total, queue = numbers(rows, "client_total_s"), numbers(rows, "queue_s")
    inside = np.where(np.isnan(queue), 0.0, queue) + numbers(rows, "prefill_s") + numbers(rows, "decode_s")
    excess = total - inside
    if "clock" in rows:
        excess = np.where(rows["clock"] == "engine", excess, np.nan)
    bound = np.maximum(CLOCK_SHARE * total, CLOCK_S)
    out = []
    for code, beyond, message, action in (
        (
            "client-starved",
            excess > bound,
            "the client saw requests end later than the engine's clock says",
            "free the client's CPU (nothing else on it while a sweep runs) and repeat the run",
        ),
        (
            "clocks-disagree",
            -excess > bound,
            "the client's total is shorter than the engine's own times",
            "check that queue, prefill and decode times are of the same request and unit",
        ),
    ):
        for run_id, cell_id, mine in _groups(rows, beyond):
            n, late = int(np.isfinite(excess[mine]).sum()), excess[mine][beyond[mine]]
            far = int((np.abs(late) > 2 * bound[mine][beyond[mine]]).sum())
            severity: Severity = "error" if 2 * far >= n else "warning" if 10 * len(late) >= n else "info"
            middle = 1000 * float(np.median(late))
            out.append(
                Finding(
                    sweep,
                    run_id,
                    cell_id,
                    code,
                    severity,
                    middle,
                    "ms",
                    f"{message}: {len(late)} of {n} requests beyond max(2%, 8 ms), median {abs(middle):.1f} ms",
                    action,
                )
            )
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
            out.append(
                Finding(
                    *place,
                    "impossible-rate",
                    "error",
                    float(100 * wrong[0]),
                    "%",
                    f"K={depth}: an acceptance rate of {100 * wrong[0]:.0f}% cannot be; shown as it is, never clamped",
                    "check the denominator: accepted at the position over steps that carried a draft",
                )
            )
        elif (np.diff(rates) > ROUNDING_TOKENS).any():
            rise = float(np.diff(rates).max())
            out.append(
                Finding(
                    *place,
                    "survival-rises",
                    "warning",
                    rise,
                    "1",
                    f"K={depth}: survival rises by {rise:.3f} from one position to the next, which survival cannot",
                    "these may be conditional rates, or rates per drafted token: see acceptance_by_position",
                )
            )
        length = numbers(runs, "acceptance_length")
        length = length[np.isfinite(length)]
        if len(rates) == depth and len(length):
            gap = float(length.mean()) - 1 - float(rates.sum())
            if abs(gap) > ROUNDING_TOKENS:
                out.append(
                    Finding(
                        *place,
                        "rates-do-not-sum",
                        "warning",
                        gap,
                        "tokens",
                        f"K={depth}: the acceptance length is {length.mean():.3f}, but 1 + the sum of its positions is "
                        f"{1 + rates.sum():.3f}",
                        "ask which of the two was measured; undrafted steps or another denominator may explain it",
                    )
                )
    return out
