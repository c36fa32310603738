"""Where a what-if turns: the cost at which another depth becomes the fastest, and the hop a remote drafter can bear.

Point figures are geometric means over runs, as in the curve. Break-even intervals: one search a block, Student t.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from backend.analysis.estimate import LEVEL, Estimate, FloatArray, missing, point, student_t_mean
from backend.analysis.whatif_runs import Change, Costs, Runs

Parameter = Literal["hop_ms", "verify_position_ms"]
STEPS = 240  # of a search's grid, refined by bisection
FAR_MS = 1e6
BREAK_EVEN = "hop at which the fastest remote depth equals the fastest depth now"


@dataclass(frozen=True, slots=True)
class Flip:
    """At `at` ms of `parameter` (a field of Change) the fastest depth goes from one K to another."""

    parameter: Parameter
    at: float
    from_k: int
    to_k: int

    def to_dict(self) -> dict[str, object]:
        """JSON-safe."""
        return {"parameter": self.parameter, "at": self.at, "from_k": self.from_k, "to_k": self.to_k}


def means(runs: Runs, tok_s: FloatArray) -> dict[int, float]:
    """Depth -> geometric mean of tok/s over its runs; depths without a figure are left out."""
    out = {}
    for k in np.unique(runs.k):
        values = tok_s[runs.k == k]
        if len(values) and np.isfinite(values).all():
            out[int(k)] = float(np.exp(np.log(values).mean()))
    return out


def fastest(runs: Runs, change: Change) -> int | None:
    """The fastest depth under the change, by point figures; the smaller of equals."""
    known = means(runs, runs.then(change))
    return max(sorted(known), key=known.__getitem__) if known else None


def at_value(change: Change, parameter: Parameter, value: float) -> Change:
    """The change with another value of one of its costs."""
    if parameter == "hop_ms":
        return replace(change, hop_ms=value)
    return replace(change, verify_position_ms=value)


def rates_along(runs: Runs, change: Change, parameter: Parameter, values: FloatArray) -> list[dict[str, float]]:
    """Rows k, cost, value: tok/s of every depth that has a figure, at each value of a cost (point figures)."""
    return [
        {"k": k, "cost": float(value), "value": rate}
        for value in values
        for k, rate in means(runs, runs.then(at_value(change, parameter, float(value)))).items()
    ]


def flips(runs: Runs, change: Change, parameter: Parameter, low: float, high: float) -> list[Flip]:
    """Where the fastest depth changes as `parameter` of `change` goes from `low` to `high`; by growing value.

    A depth that is fastest only inside a step of the grid (1/240 of the range) is not seen.
    """

    def at(value: float) -> int | None:
        return fastest(runs, at_value(change, parameter, value))

    grid = np.linspace(low, high, STEPS + 1)
    best = [at(float(value)) for value in grid]
    found = []
    for a, b, before, after in zip(grid, grid[1:], best, best[1:], strict=False):
        if before is None or after is None or before == after:
            continue
        left, right = float(a), float(b)
        for _ in range(40):
            middle = (left + right) / 2
            left, right = (middle, right) if at(middle) == before else (left, middle)
        found.append(Flip(parameter, right, before, after))
    return found


def break_even_hop(runs: Runs, change: Change, costs: Costs | None = None, *, level: float = LEVEL) -> Estimate:
    """The hop in ms up to which a drafter on another host is no slower than the fastest depth now.

    Without a gain even at no hop there is none, and where no hop in reach undoes it neither. The interval is over
    blocks; what t_draft of `costs` has of its own (given or direct, not of the blocks' lines) is joined in quadrature.
    """
    if not change.free_draft:
        return missing("ms", "the drafter stays on this host", method=BREAK_EVEN)
    whole, why = _break_even(runs, change)
    if whole is None:
        return missing("ms", why, method=BREAK_EVEN, n=len(runs.k))
    blocks = _whole_blocks(runs)
    if len(blocks) < 2:
        one = (
            "one run per K" if len(runs.k) == len(np.unique(runs.k)) else "no complete blocks to tell its scatter from"
        )
        return point(whole, "ms", one, method=BREAK_EVEN, n=len(runs.k))
    each = [_break_even(runs.of_block(block), change)[0] for block in blocks]
    if any(value is None for value in each):
        without = sum(value is None for value in each)
        return point(whole, "ms", f"{without} of {len(each)} blocks have no break-even", method=BREAK_EVEN, n=len(each))
    if np.ptp(np.asarray(each, dtype=np.float64)) < 1e-6:  # the same t_draft in every block, and nothing else differs
        found = point(whole, "ms", "it follows from the given t_draft alone", method=BREAK_EVEN, n=len(each))
    else:
        found = student_t_mean(each, "ms", level=level, what="block", method=f"{BREAK_EVEN}; Student t over blocks")
    return _with_own_error(found, runs, change, costs, level)


def _with_own_error(found: Estimate, runs: Runs, change: Change, costs: Costs | None, level: float) -> Estimate:
    """Joined by the half-width of t_draft at the fastest depth there, where it is not of these runs."""
    if costs is None or found.value is None:
        return found
    k = fastest(runs, replace(change, hop_ms=found.value))
    draft = None if not k or costs.paired(k) else costs.draft_at(k)
    if draft is None or draft.low is None or draft.high is None:
        return found
    own = (found.high - found.low) / 2 if found.high is not None and found.low is not None else 0.0
    half = float(np.hypot(own, (draft.high - draft.low) / 2))
    method = f"{found.method}; with t_draft: {draft.method}"
    return Estimate(found.value, found.value - half, found.value + half, level, method, found.n, "ms", None)


def _whole_blocks(runs: Runs) -> Sequence[float]:
    """Blocks that hold every depth."""
    if runs.block is None:
        return []
    wanted = set(np.unique(runs.k))
    return [float(b) for b in np.unique(runs.block) if wanted <= set(runs.k[runs.block == b])]


def _break_even(runs: Runs, change: Change) -> tuple[float | None, str]:
    now = means(runs, runs.now())
    if not now:
        return None, "no throughput was measured"
    target = max(now.values())

    def gain(hop_ms: float) -> float:
        then = means(runs, runs.then(replace(change, hop_ms=hop_ms)))
        return max((rate for k, rate in then.items() if k > 0), default=float("nan")) - target

    start = gain(0.0)
    if np.isnan(start):
        return None, "no depth above 0 has a figure under this change"
    if start <= 0:
        return None, "even without a hop it is not faster than the fastest depth now"
    return _root(gain)


def _root(gain: Callable[[float], float]) -> tuple[float | None, str]:
    """Where a falling gain crosses 0, by doubling and bisection."""
    low, high = 0.0, 1.0
    while gain(high) > 0:
        low, high = high, 2 * high
        if high > FAR_MS:
            return None, "no hop in reach undoes the gain"
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if gain(middle) > 0 else (low, middle)
    return high, ""
