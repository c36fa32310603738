"""Whatever is missing, every analysis answers with reasons instead of raising, and its JSON holds no NaN."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.analysis.checks import run_checks
from backend.analysis.compare import compare
from backend.analysis.cycle_model import fit_json
from backend.analysis.export import per_batch_size, static_depth
from backend.analysis.gains import gains, reported_figures
from backend.analysis.sentence import answer_sentence
from backend.analysis.summary import headline_estimates, summarise
from backend.analysis.trend import trend
from tests.analysis.frames import published_run_cell

COLUMNS = list(published_run_cell().columns)


@st.composite
def run_cells(draw: st.DrawFn) -> pd.DataFrame:
    """Up to 20 rows with any depth, block, state and figures; None anywhere a figure may be missing."""
    figure = st.none() | st.floats(0.1, 500)
    rows = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "k": st.integers(0, 4),
                    "block": st.none() | st.integers(0, 3),
                    "order_index": st.none() | st.integers(0, 30),
                    "role": st.sampled_from(["arm", "arm", "anchor"]),
                    "status": st.sampled_from(["done", "done", "failed"]),
                    "valid": st.booleans() | st.just(True),
                    "concurrency": st.sampled_from([1, 1, 8]),
                    "decode_tok_s": figure,
                    "tokens_per_step": figure,
                    "acceptance_length": figure,
                    "cycle_ms": figure,
                    "power_w": figure,
                    "tokens_per_joule": figure,
                }
            ),
            max_size=20,
        )
    )
    frame = pd.DataFrame(rows, columns=COLUMNS)
    frame["sweep"], frame["source"] = "s", "measured"
    frame["run_id"] = [f"s:r{i}" for i in range(len(frame))]
    frame["cell_id"] = [f"s:{c}xtext:w" for c in frame["concurrency"]]
    return frame


@settings(deadline=None, max_examples=60)
@given(run_cells())
def test_nothing_raises_and_json_is_safe(frame: pd.DataFrame) -> None:
    comparisons = compare(frame, {"native": 4}, draws=50)
    out = [
        [r.to_dict() for r in summarise(frame, draws=50)],
        fit_json(frame, study=True, assumed_ms=32.0),
        [c.to_dict() for c in comparisons],
        [answer_sentence(c) for c in comparisons],
        [static_depth(c) for c in comparisons],
        per_batch_size(comparisons),
        headline_estimates(frame, sweep="s", code_version="0", draws=50),
        trend(frame).to_dict(),
        [f.message for f in run_checks(frame)],
        [g.to_dict() for g in gains(reported_figures(frame, None))] if len(frame) else [],
    ]
    json.dumps(out, allow_nan=False)


@pytest.mark.parametrize("dtype", ["float64", "Float64", "object"])
def test_columns_of_any_dtype_mean_the_same(dtype: str) -> None:
    plain = published_run_cell()
    other = plain.assign(**{c: plain[c].astype(dtype) for c in ("decode_tok_s", "cycle_ms", "power_w", "block")})
    assert json.dumps(fit_json(other)) == json.dumps(fit_json(plain))
    assert [r.to_dict() for r in summarise(other)] == [r.to_dict() for r in summarise(plain)]


def test_no_rows_at_all() -> None:
    empty = published_run_cell().iloc[:0]
    assert summarise(empty) == []
    assert compare(empty) == []
    assert run_checks(empty) == []
    assert fit_json(empty)["windows"] == []
    assert np.isnan(trend(empty).slope_per_k.value or np.nan)
