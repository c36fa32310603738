"""The queries of direct times, on the bundled n-gram sweep: every one runs, and they agree with each other."""

from __future__ import annotations

import pytest

from backend.analysis.stages import PARTS, stages_of
from backend.analysis.timing_report import timing_report
from backend.store import queries, queries_timing
from backend.store.paths import BUNDLED_SNAPSHOT

SWEEP = "ngram-vllm-cpu"
CELL = f"{SWEEP}:c1-x100-python"


def test_medians_over_steps_lie_near_the_means_of_runs() -> None:
    con = queries.connect(BUNDLED_SNAPSHOT)
    asked = (queries_timing.timed_requests, queries_timing.stage_totals, queries_timing.rank_waits)
    report = timing_report(*(ask(con, SWEEP) for ask in asked))
    spread = queries_timing.step_quantiles(con, SWEEP, CELL, {part: stages_of(part) for part in PARTS})
    con.close()
    assert [row.k for row in report.times] == [0, 1, 3, 5]
    medians = {(int(row["k"]), row["part"]): 1e3 * row["p50_s"] for _, row in spread.iterrows()}
    for times in report.times:
        assert medians[times.k, "verify"] == pytest.approx(times.t_verify_ms.value, rel=0.3)
        assert (times.k, "draft") in medians or times.k == 0
    assert report.hidden is None
