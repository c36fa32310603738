"""What direct times cost and leave out, from a bundled sweep: `python -m tests.bench.bench_timing [SWEEP]`.

Ratios to the engine clock's cycle, with 95% intervals. Targets: the stages make 0.97 to 1.03 of it, and with timers on
it is at most 1.03 times as long (aim 1.01), by the bounds of the intervals.
"""

from __future__ import annotations

import sys

from backend.analysis.estimate import Estimate
from backend.analysis.timing_report import timing_report
from backend.store import queries, queries_timing

TOLERANCE = 0.03


def ratio(percent: Estimate, sign: int) -> tuple[float, float, float]:
    """(value, low, high) of 1 + sign x percent / 100."""
    bounds = sorted(1 + sign * (bound or float("nan")) / 100 for bound in (percent.low, percent.high))
    return 1 + sign * (percent.value or 0.0) / 100, bounds[0], bounds[1]


def main(sweep: str) -> int:
    """Print a line a depth; 1 where a target is missed."""
    con = queries.connect(queries.resolve())
    asked = (queries_timing.timed_requests, queries_timing.stage_totals, queries_timing.rank_waits)
    report = timing_report(*(ask(con, sweep) for ask in asked))
    missed = not report.times
    print(f"{sweep}: K, stages / cycle (target 0.97-1.03), cycle with timers on / off (target <= 1.03, aim 1.01)")
    for row in report.times:
        books, overhead = ratio(row.residual_pct, -1), ratio(row.overhead_pct, 1)
        ok = 1 - TOLERANCE < books[1] <= books[2] < 1 + TOLERANCE and overhead[2] < 1 + TOLERANCE
        missed |= not ok
        shown = ["{:.4f} [{:.4f}, {:.4f}]".format(*three) for three in (books, overhead)]
        print(f"  K={row.k}  {shown[0]}  {shown[1]}  {'' if ok else 'MISSED'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or ["demo-vllm-cpu"])))
