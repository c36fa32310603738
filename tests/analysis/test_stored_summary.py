"""The stored headline table is the computed one."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from backend.analysis.stored_summary import stored_summary
from backend.analysis.summary import headline_estimates, summarise
from backend.simulate import simulate
from backend.truth import Truth
from tests.analysis.frames import tables


@pytest.fixture(scope="module")
def prepared() -> dict[str, pd.DataFrame]:
    return tables(simulate(Truth(depths=(0, 1, 3), blocks=2, prompts=6, run_sd=0.02)))


@pytest.fixture(scope="module")
def stored(prepared: dict[str, pd.DataFrame]) -> pd.DataFrame:
    rows = headline_estimates(
        prepared["run_cell"],
        sweep="s",
        code_version="v",
        requests=prepared["request"],
        steps=prepared["step"],
        draws=500,
    )
    return pd.DataFrame(rows)


def test_it_is_the_computed_one(prepared: dict[str, pd.DataFrame], stored: pd.DataFrame) -> None:
    computed = summarise(prepared["run_cell"], requests=prepared["request"], steps=prepared["step"], draws=500)
    found = stored_summary(stored, prepared["run_cell"])
    assert found is not None
    assert [replace(row, flags=()) for row in found] == [replace(row, flags=()) for row in computed]
    assert all(row.decode_tok_s.has_interval for row in found)


def test_a_depth_without_stored_figures_is_not_made_up(prepared: dict[str, pd.DataFrame], stored: pd.DataFrame) -> None:
    assert stored_summary(stored[stored["k"] != 3], prepared["run_cell"]) is None
    assert stored_summary(stored.iloc[:0], prepared["run_cell"]) is None


def test_flags_are_those_of_the_findings_at_hand(prepared: dict[str, pd.DataFrame], stored: pd.DataFrame) -> None:
    finding = {"sweep": "s", "run_id": "", "cell_id": "", "code": "spread", "severity": "warning"}
    excluded = prepared["run_cell"].assign(valid=prepared["run_cell"]["k"] != 1)
    found = stored_summary(stored, excluded, pd.DataFrame([finding]))
    assert found is not None
    assert {row.k: (row.n_runs, row.flags) for row in found} == {
        0: (2, ("spread",)),
        1: (0, ("spread", "no-valid-run")),
        3: (2, ("spread",)),
    }
