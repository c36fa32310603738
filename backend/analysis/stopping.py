"""Stein's two-stage rule: after a pilot, the number of blocks is computed once, and intervals keep their coverage.

Source: C. Stein, A two-sample test for a linear hypothesis whose power is independent of the variance, Ann. Math.
Statist. 16 (1945). With n0 pilot blocks of standard deviation s0 and a half-width d asked for,
N = max(n0, ceil((t(n0 - 1) s0 / d)^2)); the interval is mean over all N blocks +/- t(n0 - 1) s0 / sqrt(N), which is
never wider than d (where max_blocks did not cut N) and covers exactly, because the mean of the later blocks does not
depend on s0. The variance of all N blocks would be smaller by selection: it is not used.
decode tok/s is judged on the logarithm, every depth of every cell; t_draft by one fit a block at concurrency 1.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from backend.analysis.cycle_checks import design
from backend.analysis.estimate import (
    LEVEL,
    Estimate,
    FloatArray,
    missing,
    student_t_log_mean,
    student_t_mean,
    t_interval,
    t_quantile,
)
from backend.analysis.linear import least_squares
from backend.analysis.selection import arms, by_cell, cycle_ms, numbers

PILOT = "pilot"  # column of run_cell rows: the run belongs to the pilot of a sweep with [stop]


@dataclass(frozen=True, slots=True)
class Need:
    """What one figure asks for. sd: of the pilot, relative (decode_tok_s) or ms (t_draft); blocks None: not decided."""

    cell_id: str
    quantity: str  # "decode_tok_s K=2" | "t_draft"
    sd: float | None
    pilot: int
    blocks: int | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Decision:
    """Blocks in all, pilot included; `cut`: max_blocks is less than the target needs."""

    blocks: int
    pilot: int
    needs: tuple[Need, ...]
    cut: bool

    @property
    def words(self) -> str:
        """In a sentence: which figure decides, and what was left out."""
        decided = [need for need in self.needs if need.blocks is not None]
        left = [f"{need.quantity} ({need.reason})" for need in self.needs if need.blocks is None]
        out = f"; not judged: {', '.join(left)}" if left else ""
        if not decided:
            return f"The pilot of {self.pilot} blocks decides nothing, so the sweep ends with it{out}"
        most = max(decided, key=lambda need: need.blocks or 0)
        enough = f"{self.blocks} blocks in all by Stein's rule from the pilot of {self.pilot}"
        if self.cut:
            enough = f"{most.quantity} would take {most.blocks} blocks, max_blocks allows {self.blocks}"
        return f"{enough}; {most.quantity} of cell {most.cell_id.split(':', 1)[-1]} decides{out}"


def stein_blocks(sd: float, pilot: int, half_width: float, *, level: float = LEVEL) -> int:
    """max(n0, ceil((t(n0 - 1) s0 / d)^2)); sd and half_width in one unit."""
    return max(pilot, math.ceil((t_quantile(level, pilot - 1) * sd / half_width) ** 2))


def decide(
    run_cell: pd.DataFrame,
    pilot_blocks: int,
    max_blocks: int,
    *,
    decode_tok_s_percent: float | None = None,
    t_draft_ms: float | None = None,
    level: float = LEVEL,
) -> Decision:
    """How many blocks this sweep takes, from the valid arms of its first `pilot_blocks` blocks, all cells.

    A depth with fewer than two valid pilot runs is not judged; where nothing is, the pilot is all.
    """
    needs: list[Need] = []
    for cell_id, rows in by_cell(run_cell):
        good = arms(rows)
        good = good[numbers(good, "block") < pilot_blocks]
        if decode_tok_s_percent is not None:
            half = math.log1p(decode_tok_s_percent / 100)
            for k in sorted({int(k) for k in good["k"]}):
                rate = numbers(good[good["k"] == k], "decode_tok_s")
                logs = np.log(rate[np.isfinite(rate) & (rate > 0)])
                needs.append(_need(cell_id, f"decode_tok_s K={k}", logs, half, level))
        if t_draft_ms is not None and not (numbers(good, "concurrency") > 1).any():
            each = block_costs(good)
            needs.append(_need(cell_id, "t_draft", each[:, 1] if len(each) else np.array([]), t_draft_ms, level))
    wanted = max((need.blocks for need in needs if need.blocks is not None), default=pilot_blocks)
    return Decision(min(max(wanted, pilot_blocks), max_blocks), pilot_blocks, tuple(needs), wanted > max_blocks)


def _need(cell_id: str, quantity: str, values: FloatArray, half_width: float, level: float) -> Need:
    n = len(values)
    if n < 2:
        return Need(cell_id, quantity, None, n, None, f"{n} valid runs in the pilot")
    sd = float(values.std(ddof=1))
    return Need(cell_id, quantity, sd, n, stein_blocks(sd, n, half_width, level=level), None)


def block_costs(rows: pd.DataFrame) -> FloatArray:
    """(t_verify_base, t_draft, t_marginal) in ms by a line a block, blocks with every depth alone: (blocks, 3)."""
    cycle = cycle_ms(rows)
    there = np.isfinite(cycle)
    k, block, cycle = numbers(rows, "k")[there], numbers(rows, "block")[there], cycle[there]
    depths = set(np.unique(k))
    if 0 not in depths or len(depths) < 3:
        return np.empty((0, 3))
    whole = [b for b in np.unique(block) if depths <= set(k[block == b])]
    lines = [least_squares(design(k[block == b], None), cycle[block == b]).beta for b in whole]
    return np.array(lines) if lines else np.empty((0, 3))


def pilot_blocks_of(spec_toml: object) -> int | None:
    """Blocks of the pilot by a stored spec: its `blocks` where it has [stop]; None where it has none."""
    if not isinstance(spec_toml, str):
        return None
    try:
        spec = tomllib.loads(spec_toml)
    except tomllib.TOMLDecodeError:
        return None
    return int(spec["blocks"]) if "stop" in spec and isinstance(spec.get("blocks"), int) else None


def with_pilot(run_cell: pd.DataFrame, spec_toml: object) -> pd.DataFrame:
    """Rows of run_cell with column `pilot` where the sweep was stopped by [stop]; as they are where it was not."""
    blocks = pilot_blocks_of(spec_toml)
    if blocks is None or run_cell.empty:
        return run_cell
    return run_cell.assign(**{PILOT: numbers(run_cell, "block") < blocks})


def stein_mean(
    values: FloatArray,
    pilot: Sequence[bool],
    unit: str,
    *,
    level: float = LEVEL,
    what: str = "run",
) -> Estimate:
    """Mean of all values with the pilot's standard deviation and degrees of freedom; values (n,), pilot (n,).

    NaN values are left out. With fewer than two pilot values there is no interval.
    """
    there = np.isfinite(values)
    first = values[there & np.asarray(pilot, dtype=bool)]
    all_, method = values[there], f"Stein's two stages over {what}s: variance and df of the pilot of {len(first)}"
    if not len(all_):
        return missing(unit, "not measured", method=method)
    sd = float(first.std(ddof=1)) if len(first) > 1 else math.nan
    error = sd / math.sqrt(len(all_))
    few = f"fewer than two {what}s in the pilot"
    df = len(first) - 1
    return t_interval(float(all_.mean()), error, df, unit, method=method, n=len(all_), level=level, no_df=few)


def run_mean(rows: pd.DataFrame, values: FloatArray, unit: str, *, level: float = LEVEL, what: str = "run") -> Estimate:
    """Mean over runs: by Stein's rule where the rows have a pilot, else Student t. values (n,) of the rows (n,)."""
    if PILOT not in rows:
        return student_t_mean(values, unit, level=level, what=what)
    return stein_mean(values, list(rows[PILOT]), unit, level=level, what=what)


def run_log_mean(rows: pd.DataFrame, values: FloatArray, unit: str, *, level: float = LEVEL) -> Estimate:
    """Geometric mean over runs: by Stein's rule on the logarithm where the rows have a pilot, else Student t."""
    positive = values[np.isfinite(values)]
    if PILOT not in rows or not len(positive) or positive.min() <= 0:
        return student_t_log_mean(values, unit, level=level)
    logs = stein_mean(np.log(values), list(rows[PILOT]), unit, level=level)
    value, low, high = (None if x is None else math.exp(x) for x in (logs.value, logs.low, logs.high))
    method = logs.method.replace("two stages over", "two stages on the log over")
    return Estimate(value, low, high, logs.level, method, logs.n, unit, logs.reason)


def tightening(run_cell: pd.DataFrame, *, level: float = LEVEL) -> pd.DataFrame:
    """How decode tok/s of every depth of one cell got narrower: a row a depth and number of blocks, from 2 on.

    Columns k, blocks, value, low, high (tok/s), half_width_percent (of the upper side), method. Blocks in run order.
    """
    rows = arms(run_cell)
    order = numbers(rows, "block")
    out = []
    for k in sorted({int(k) for k in rows["k"]}):
        mine = rows[(rows["k"] == k) & np.isfinite(order)]
        mine = mine[np.isfinite(numbers(mine, "decode_tok_s"))].sort_values("block", kind="stable")
        for blocks in range(2, len(mine) + 1):
            upto = mine.iloc[:blocks]
            rate = run_log_mean(upto, numbers(upto, "decode_tok_s"), "tok/s", level=level)
            if rate.value is not None and rate.high is not None:
                half = 100 * (rate.high / rate.value - 1)
                out.append((k, blocks, rate.value, rate.low, rate.high, half, rate.method))
    columns = ["k", "blocks", "value", "low", "high", "half_width_percent", "method"]
    return pd.DataFrame(out, columns=columns)
