"""How many blocks would a sweep take to answer as exactly as asked, and what would they cost?

The scatter is pure error: replicates about their depth (and block), never the lack of fit of a line, which repeats do
not shrink (design.md, "Planning"). A target is a half-width; one standard error of it and half of the 95% interval are
different questions with very different answers, so both are always given. t_draft: `plan.runs_needed` over the depths
swept; tok_s: Student t on the log over one K's runs; loss: the comparison's simultaneous bound (`compare`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Literal, get_args

import numpy as np
import pandas as pd

from backend.analysis.compare import blocks_needed
from backend.analysis.estimate import LEVEL, Estimate, chi_square_sd, missing, point, t_interval, t_quantile
from backend.analysis.layout import fit_layout
from backend.analysis.plan import LIMIT, runs_needed, smallest
from backend.analysis.selection import arms, block_codes, numbers
from backend.analysis.variance import Components, Scatter, components, of_cycles, pure_error
from backend.errors import Refused

Quantity = Literal["t_draft", "loss", "tok_s"]
UNITS: dict[Quantity, str] = {"t_draft": "ms", "loss": "%", "tok_s": "%"}


@dataclass(frozen=True, slots=True)
class Target:
    """How exactly what is to be known: half-width of t_draft in ms, of tok/s in %, or a loss margin in %."""

    quantity: Quantity
    half_width: float

    @property
    def words(self) -> str:
        """As it was asked."""
        return f"{self.quantity} to +/- {self.half_width:g} {UNITS[self.quantity]}"


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks for one reading of the target; the range takes the scatter at its interval's ends. None: not reachable."""

    meaning: str
    blocks: int | None
    low: int | None
    high: int | None
    hours_more: float | None  # beyond the blocks at hand


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer for one cell. scatter: of one run, in ms for t_draft, else %; blocks_now: complete ones at hand."""

    cell_id: str
    target: Target
    depths: tuple[int, ...]
    scatter: Estimate
    needs: tuple[Blocks, ...]
    blocks_now: int
    block_hours: Estimate
    parts: Components
    reason: str | None

    def to_dict(self) -> dict[str, object]:
        """As in `plan --json`."""
        return {
            "cell_id": self.cell_id,
            "target": {**asdict(self.target), "unit": UNITS[self.target.quantity], "words": self.target.words},
            "depths": list(self.depths),
            "scatter": self.scatter.to_dict(),
            "needs": [asdict(need) for need in self.needs],
            "blocks_now": self.blocks_now,
            "block_hours": self.block_hours.to_dict(),
            "variance": self.parts.to_dict(),
            "reason": self.reason,
            "words": list(plan_words(self)),
        }


def parse_target(text: str) -> Target:
    """ "t_draft=3ms", "loss=1%" or "tok_s=2%". Raises Refused."""
    match = re.fullmatch(r"\s*(\w+)\s*=\s*([0-9.]+)\s*(ms|%)\s*", text)
    fix = "write t_draft=3ms, loss=1% or tok_s=2%"
    if match is None or match[1] not in get_args(Quantity):
        raise Refused(f"no target: {text!r}", where="--for", fix=fix)
    quantity: Quantity = match[1]  # type: ignore[assignment]
    try:
        half_width = float(match[2])
    except ValueError:
        half_width = 0.0
    if match[3] != UNITS[quantity] or not 0 < half_width < (100 if match[3] == "%" else math.inf):
        raise Refused(f"no target: {text!r}", where="--for", fix=fix)
    return Target(quantity, half_width)


def plan_cell(
    run_cell: pd.DataFrame,
    target: Target,
    *,
    requests: pd.DataFrame | None = None,
    runs: pd.DataFrame | None = None,
    scatter_ms: float | None = None,
    level: float = LEVEL,
) -> Plan:
    """The plan of one cell, from its rows of run_cell, the tables request and run (for durations).

    scatter_ms: residual scatter of one run's cycle in ms, for t_draft where replicates do not tell it.
    """
    rows = arms(run_cell)
    cell_id = str(run_cell["cell_id"].iloc[0]) if len(run_cell) else ""
    depths = tuple(sorted({int(k) for k in rows["k"]}))
    requests = pd.DataFrame() if requests is None else requests
    scatter = _of_target(rows, target)
    sd = _shown(scatter, target, scatter_ms, len(rows), level)
    now, hours = _blocks_now(rows), _block_hours(rows, runs)
    overhead_s, request_s = _times(rows, runs, requests)
    relative = of_cycles(rows, unit_ms=False) if target.quantity == "t_draft" else scatter
    parts = components(rows, requests, relative, overhead_s=overhead_s, request_s=request_s)
    questions, why = _questions(rows, target, depths, level)
    needs = []
    if sd.value is not None:
        for meaning, solve in questions.items():
            middle, low, high = solve(sd.value), solve(sd.low or sd.value), solve(sd.high or sd.value)
            more = None if middle is None or hours.value is None else max(0, middle - now) * hours.value
            needs.append(Blocks(meaning, middle, low, high, more))
    return Plan(cell_id, target, depths, sd, tuple(needs), now, hours, parts, sd.reason if sd.value is None else why)


def _of_target(rows: pd.DataFrame, target: Target) -> Scatter:
    """Pure error of what the target asks about: of the cycle in ms (t_draft), else of log figures."""
    if target.quantity == "t_draft":
        return of_cycles(rows, unit_ms=True)
    rate, k = numbers(rows, "decode_tok_s"), numbers(rows, "k")
    there = np.isfinite(rate) & (rate > 0)
    cancel = target.quantity == "loss"  # a block's level drops out of a difference of depths, not of a depth's own rate
    return pure_error(k[there], np.log(rate[there]), block_codes(rows[there]), blocks_cancel=cancel)


def _shown(scatter: Scatter, target: Target, given_ms: float | None, n: int, level: float) -> Estimate:
    """Standard deviation of one run, in ms or %."""
    unit = "ms" if target.quantity == "t_draft" else "%"
    if given_ms is not None and target.quantity == "t_draft":
        return point(given_ms, unit, "given, taken as exact", method="given", n=None)
    if scatter.sd is None:
        return missing(unit, scatter.reason or "not known", method="pure error", n=n)
    whole = chi_square_sd(scatter.sd, scatter.df, unit, n=n, level=level)
    return replace(whole if unit == "ms" else whole.times(100, "%"), method="pure error, chi-square interval")


def _questions(
    rows: pd.DataFrame,
    target: Target,
    depths: tuple[int, ...],
    level: float,
) -> tuple[dict[str, Callable[[float], int | None]], str | None]:
    """Meaning -> blocks from the standard deviation of one run; or none, and why."""
    percent_of = f"half the {100 * level:g}% interval"
    if target.quantity == "t_draft":
        deep = [k for k in depths if k > 0]
        if len(deep) < 2 or 0 not in depths:
            return {}, "t_draft needs K=0 and two depths above 0"
        width = target.half_width

        def of_line(sd: float, *, interval: bool, with_k0: bool) -> int | None:
            return runs_needed(width, deep, sd, interval=interval, with_k0=with_k0, level=level)

        return {
            "one standard error, K=0 taken as exact": partial(of_line, interval=False, with_k0=False),
            f"{percent_of}, K=0 taken as exact": partial(of_line, interval=True, with_k0=False),
            f"{percent_of}, with the error of the K=0 runs": partial(of_line, interval=True, with_k0=True),
        }, None
    if target.quantity == "tok_s":
        width = math.log1p(target.half_width / 100)
        return {
            "one standard error": lambda sd: smallest(lambda n: sd / 100 / math.sqrt(n) <= width),
            percent_of: lambda sd: smallest(
                lambda n: n > 1 and t_quantile(level, n - 1) * sd / 100 / math.sqrt(n) <= width
            ),
        }, None
    layout = fit_layout(rows)
    if layout is None or len(layout.k) < 2:
        return {}, "a loss needs two depths with a throughput"
    margin = -math.log1p(-target.half_width / 100)
    known = layout
    return {
        "one standard error of a difference of depths": lambda sd: smallest(
            lambda n: sd / 100 * math.sqrt(2 / n) <= margin
        ),
        f"the best depth's {100 * level:g}% bound of loss": lambda sd: blocks_needed(
            replace(known, variance=(sd / 100) ** 2), level, target.half_width
        ),
    }, None


def _blocks_now(rows: pd.DataFrame) -> int:
    """Runs that every depth has at least."""
    return int(rows.groupby("k")["run_id"].nunique().min()) if len(rows) else 0


def _durations(rows: pd.DataFrame, runs: pd.DataFrame | None) -> pd.DataFrame:
    """k and duration_s of the cell's valid arms whose start and end are known."""
    if runs is None or runs.empty:
        return pd.DataFrame({"k": [], "duration_s": []})
    mine = runs[runs["run_id"].isin(set(rows["run_id"]))]
    took = numbers(mine, "ended_unix_s") - numbers(mine, "started_unix_s")
    return pd.DataFrame({"k": numbers(mine, "k"), "duration_s": took})[np.isfinite(took)]


def _block_hours(rows: pd.DataFrame, runs: pd.DataFrame | None) -> Estimate:
    """Hours of one more block: the sum over depths of their runs' mean duration."""
    took = _durations(rows, runs)
    by_k = took.groupby("k")["duration_s"].agg(["mean", "var", "count"])
    if took.empty or len(by_k) < rows["k"].nunique():
        return missing("h", "the runs' durations are not known", method="sum of mean durations over depths")
    total = float(by_k["mean"].sum()) / 3600
    if (by_k["count"] < 2).any():
        why = "one run per K"
        return point(total, "h", why, method="sum of mean durations over depths", n=len(took))
    error = math.sqrt(float((by_k["var"] / by_k["count"]).sum())) / 3600
    df = int(by_k["count"].sum() - len(by_k))
    return t_interval(total, error, df, "h", method="sum of mean durations over depths, Student t", n=len(took))


def _times(
    rows: pd.DataFrame,
    runs: pd.DataFrame | None,
    requests: pd.DataFrame,
) -> tuple[float | None, float | None]:
    """(seconds of a run that are not MEASURE requests, seconds of one such request), means; None where not known."""
    took = _durations(rows, runs)
    if took.empty or requests.empty:
        return None, None
    mine = requests[requests["run_id"].isin(set(rows["run_id"])) & (requests["phase"] == "measure")]
    each = numbers(mine, "client_total_s")
    if not len(each) or not np.isfinite(each).all():
        return None, None
    measured = float(each.sum()) / mine["run_id"].nunique()
    return max(0.0, float(took["duration_s"].mean()) - measured), float(each.mean())


def plan_words(found: Plan) -> tuple[str, ...]:
    """The plan, a sentence a line."""
    if not found.needs:
        return (f"No plan for {found.target.words}: {found.reason}.",)
    lines = [f"Scatter of one run: {found.scatter.text()}."]
    for need in found.needs:
        if need.blocks is None:
            lines.append(f"{need.meaning[0].upper()}{need.meaning[1:]}: not in {LIMIT:,} blocks.")
            continue
        sure = need.low == need.high
        span = "" if sure else f" ({need.low} to {need.high or 'many'} by the interval of the scatter)"
        more = "" if need.hours_more is None else f", {need.hours_more:.2f} h more than the {found.blocks_now} at hand"
        lines.append(f"{need.meaning[0].upper()}{need.meaning[1:]}: {need.blocks} blocks{span}{more}.")
    parts = found.parts
    if parts.between_share is None:
        lines.append(f"Blocks or requests: not known ({parts.reason}).")
    else:
        share = f"{100 * parts.between_share:.0f}% of a run's variance is between runs, the rest inside them"
        lines.append(f"{share} ({parts.requests:.0f} requests each){_advice(parts)}.")
    return tuple(lines)


def _advice(parts: Components) -> str:
    if parts.buy is None or parts.best_requests is None:
        return ""
    if parts.buy == "blocks":
        return f": buy blocks; {max(1, round(parts.best_requests))} requests a run would be the cheapest mix"
    if math.isinf(parts.best_requests):
        return ": buy requests; runs do not differ beyond what their requests explain"
    return f": buy requests first, up to about {parts.best_requests:.0f} a run, then blocks"
