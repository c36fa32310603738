"""Depths of the bundled demo predicted from their neighbours: the known answers, as far as its scatter allows."""

from __future__ import annotations

import numpy as np
import pytest

from backend.analysis.hold_out import HeldOut, hold_out, survival_of
from backend.analysis.selection import by_cell
from backend.store import queries
from backend.store.paths import BUNDLED_SNAPSHOT

DEMO = "demo-vllm-cpu"
MEDIAN_PERCENT, MOST_PERCENT = 5.0, 10.0


@pytest.fixture(scope="module")
def held() -> list[HeldOut]:
    con = queries.connect(BUNDLED_SNAPSHOT)
    try:
        (cell_id, rows), *_ = by_cell(queries.run_cells(con, DEMO))
        return hold_out(rows, survival_of(queries.positions(con, DEMO), cell_id))
    finally:
        con.close()


def test_the_median_error_is_at_most_5_percent(held: list[HeldOut]) -> None:
    assert [one.k for one in held] == [2, 3, 4, 5, 6]
    assert float(np.median([abs(one.error_percent.value or 99) for one in held])) <= MEDIAN_PERCENT


def test_no_error_is_above_10_percent_that_the_runs_could_show(held: list[HeldOut]) -> None:
    """A depth whose own three runs spread so far that 10% are inside its error's interval shows nothing."""
    for one in held:
        error = one.error_percent
        assert error.has_interval, one
        shown = min(abs(error.low), abs(error.high)) if error.low * error.high > 0 else 0.0  # nearest to 0 inside
        assert abs(error.value) <= MOST_PERCENT or shown == 0.0, one


def test_tokens_per_step_follow_from_the_survival_curves(held: list[HeldOut]) -> None:
    assert max(abs(one.tokens_error_percent) for one in held) < 1.5
