"""Checks on the figures of runs: drift over the order, anchors, spread, two states, too few runs. They only warn."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.analysis.estimate import LEVEL, Estimate, FloatArray, missing, t_quantile
from backend.analysis.layout import fit_layout
from backend.analysis.selection import arms, numbers
from backend.records import Finding

MIN_RUNS = 3
SPREAD_PERCENT = 5.0  # standard deviation of one K's runs
STATE_PERCENT = 3.0  # distance of two states that is worth a word
ANCHOR_PERCENT = 3.0  # change of the anchors, where the scatter is not known
DRIFT_PERCENT = 1.0


def run_findings(run_cell: pd.DataFrame, sweep: str) -> list[Finding]:
    """Findings of one cell's runs."""
    cell_id = str(run_cell["cell_id"].iloc[0]) if len(run_cell) else ""
    rows = arms(run_cell)
    rows = rows[numbers(rows, "decode_tok_s") > 0]
    out = [*_too_few(rows, run_cell, sweep, cell_id), *_anchors(run_cell, sweep, cell_id)]
    if rows.empty:
        return out
    total = drift(run_cell)
    if (
        total.value is not None
        and total.low is not None
        and total.high is not None
        and (total.low > 0 or total.high < 0)
        and abs(total.value) > DRIFT_PERCENT
    ):
        out.append(
            Finding(
                sweep,
                "",
                cell_id,
                "drift",
                "warning",
                total.value,
                "%",
                f"throughput drifted by {total.text(1)} from the first run to the last",
                "random blocks keep it out of the differences; compare with the order as covariate, warm up longer",
            )
        )
    return [*out, *_spread(rows, sweep, cell_id), *_two_states(rows, sweep, cell_id)]


def residuals(rows: pd.DataFrame, *, median: bool = False) -> FloatArray:
    """Log decode tok/s minus the mean (or median) of its K; NaN where a K has a single run."""
    log_rate = pd.Series(np.log(numbers(rows, "decode_tok_s")), index=rows.index)
    groups = log_rate.groupby(rows["k"])
    centre = groups.transform("median" if median else "mean")
    return np.where(groups.transform("size") > 1, log_rate - centre, np.nan)


def drift(run_cell: pd.DataFrame, *, level: float = LEVEL) -> Estimate:
    """Change of throughput from first to last run in %: Theil-Sen slope of residuals after K means over run order.

    The interval is Sen's (1968), from the ranks of the pairwise slopes.
    """
    method = "Theil-Sen on residuals after K means"
    rows = arms(run_cell)
    rows = rows[numbers(rows, "decode_tok_s") > 0]
    order = numbers(rows, "order_index")
    left = residuals(rows) if len(rows) else np.array([])
    known = np.isfinite(order) & np.isfinite(left)
    if known.sum() < 6 or len(np.unique(order[known])) < 6:
        return missing(
            "%",
            "drift needs six runs in a known order, of depths with two runs or more",
            method=method,
            n=int(known.sum()),
        )
    from scipy import stats  # here, since it is slow to import: see quantiles.py

    slope, _, low, high = stats.theilslopes(left[known], order[known], alpha=level)
    span = float(np.ptp(order[known]))
    value, low, high = (100 * math.expm1(float(s) * span) for s in (slope, low, high))
    return Estimate(value, low, high, level, method, int(known.sum()), "%", None)


def _too_few(rows: pd.DataFrame, run_cell: pd.DataFrame, sweep: str, cell_id: str) -> list[Finding]:
    wanted = sorted({int(k) for k in run_cell.loc[run_cell["role"] == "arm", "k"].dropna()})
    counts = {k: int((rows["k"] == k).sum()) for k in wanted}
    few = {k: n for k, n in counts.items() if n < MIN_RUNS}
    if not few:
        return []
    least = min(few.values())
    names = ", ".join(f"K={k}: {n}" for k, n in few.items())
    consequence = "no interval can be given with one" if least <= 1 else "intervals are very wide"
    ours = "source" not in run_cell or bool(run_cell["source"].isin(["measured", "simulated"]).all())
    return [
        Finding(
            sweep,
            "",
            cell_id,
            "too-few-runs",
            "warning",
            float(least),
            "runs",
            f"fewer than {MIN_RUNS} valid runs ({names}): {consequence}",
            f"run at least {MIN_RUNS} blocks (blocks = {MIN_RUNS} in the spec, then --resume)"
            if ours
            else "the source gives no more; measure the sweep yourself to know its scatter",
        )
    ]


def _anchors(run_cell: pd.DataFrame, sweep: str, cell_id: str) -> list[Finding]:
    """First against last K=0 anchor; the bound is the scatter's own where it is known, else 3%."""
    rows = run_cell[(run_cell["role"] == "anchor") & (run_cell["status"] == "done")]
    rows = rows[numbers(rows, "decode_tok_s") > 0]
    rows = rows[rows["order_index"].notna()].sort_values("order_index")
    if len(rows) < 2:
        return []
    rate = numbers(rows, "decode_tok_s")
    change = math.log(rate[-1] / rate[0])
    layout = fit_layout(run_cell)
    bound = -math.log1p(-ANCHOR_PERCENT / 100)
    if layout is not None and layout.df >= 3:
        bound = t_quantile(LEVEL, layout.df) * math.sqrt(2 * layout.variance)
    if abs(change) <= bound:
        return []
    return [
        Finding(
            sweep,
            "",
            cell_id,
            "anchor-drift",
            "warning",
            100 * math.expm1(change),
            "%",
            f"K=0 changed by {100 * math.expm1(change):+.1f}% from the first anchor to the last, more than "
            f"{100 * bound:.1f}%",
            "let the machine warm up before the sweep; look at temperature and clocks over the order",
        )
    ]


def _spread(rows: pd.DataFrame, sweep: str, cell_id: str) -> list[Finding]:
    out = []
    for _, runs in rows.groupby("k", sort=True):
        log_rate = np.log(numbers(runs, "decode_tok_s"))
        if len(runs) < 2:
            continue
        sd = 100 * float(log_rate.std(ddof=1))
        if sd > SPREAD_PERCENT:
            far = int(np.argmax(np.abs(log_rate - np.median(log_rate))))
            out.append(
                Finding(
                    sweep,
                    str(runs["run_id"].iloc[far]),
                    cell_id,
                    "spread",
                    "warning",
                    sd,
                    "%",
                    f"K={int(runs['k'].iloc[0])}: its {len(runs)} runs spread by {sd:.1f}% (SD), this one furthest",
                    "compare this run's canary, clocks and power with the others; more blocks narrow the interval",
                )
            )
    return out


def _two_states(rows: pd.DataFrame, sweep: str, cell_id: str) -> list[Finding]:
    """Two groups in the residuals after K medians: share of variance that the best split explains, against normal."""
    left = residuals(rows, median=True)
    known = np.isfinite(left)
    left, names = left[known], rows["run_id"].to_numpy()[known]
    if len(left) < 8:
        return []
    share, cut = best_split(np.sort(left)[None, :])
    p = float((split_null(len(left)) >= share[0]).mean())
    ordered = np.sort(left)
    low, high = ordered[: cut[0]], ordered[cut[0] :]
    distance = 100 * math.expm1(float(high.mean() - low.mean()))
    if p >= 0.01 or distance < STATE_PERCENT:
        return []
    slow = ", ".join(str(n) for n in names[left <= low.max()][:8])
    return [
        Finding(
            sweep,
            "",
            cell_id,
            "two-states",
            "warning",
            distance,
            "%",
            f"the runs fall into two groups {distance:.0f}% apart (p = {max(p, 0.001):.2g}); the slow ones: {slow}",
            "a hidden machine state is likely: compare canaries, clocks and power of the two groups",
        )
    ]


def best_split(ordered: FloatArray) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """Sorted rows (m, n): the largest share of variance that a split in two groups (2 or more) explains, and where."""
    n = ordered.shape[1]
    size = np.arange(2, n - 1)
    sums = np.cumsum(ordered, axis=1)
    first, total = sums[:, size - 1], sums[:, [-1]]
    between = first**2 / size + (total - first) ** 2 / (n - size) - total**2 / n
    spread = ((ordered - ordered.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    at = between.argmax(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = between[np.arange(len(ordered)), at] / spread
    return np.where(spread > 0, share, 0.0), size[at]


@lru_cache(maxsize=64)
def split_null(n: int, draws: int = 2000) -> FloatArray:
    """Shares (draws,) that the best split explains in `n` normal values (seeded)."""
    rng = np.random.default_rng(20260701)
    return best_split(np.sort(rng.standard_normal((draws, n)), axis=1))[0]
