"""Depths of the bundled demo predicted from the others: the known answers."""

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


def test_no_error_is_above_10_percent_and_each_has_its_interval(held: list[HeldOut]) -> None:
    for one in held:
        assert abs(one.error_percent.value or 99) <= MOST_PERCENT, one
        assert one.error_percent.has_interval, one


def test_tokens_per_step_follow_from_the_survival_curves(held: list[HeldOut]) -> None:
    assert max(abs(one.tokens_error_percent) for one in held) < 1.5
