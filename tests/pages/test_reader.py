"""What pages read is what the analysis gives of the raw tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.analysis.categories import category_rows, category_run_cell
from backend.analysis.stored_summary import stored_summary
from backend.analysis.summary import summarise
from backend.store import queries, queries_explorer


@pytest.fixture(scope="module")
def con(environments: dict[str, dict[str, str]]) -> queries.Connection:
    return queries.connect(Path(environments["full"]["SOUNDING_DATA"]) / "results.duckdb")


def test_category_sums_are_those_of_the_requests(con: queries.Connection) -> None:
    (cell_id,) = queries.cells(con, "full")["cell_id"]
    rows = queries.run_cells(con, "full", cell_id)
    by_request = category_run_cell(queries.requests(con, "full", cell_id=cell_id), rows)
    by_sum = category_rows(queries_explorer.category_sums(con, "full", cell_id), rows)
    assert set(by_sum) == set(by_request) == {"text"}
    for name, frame in by_sum.items():
        expected = by_request[name].set_index("run_id")
        assert len(frame) == len(expected) == 24  # the failed, the excluded and the anchor run are out
        for column in ("decode_tok_s", "tokens_per_step", "cycle_ms", "n_requests", "k"):
            found = frame.set_index("run_id")[column].astype(float)
            assert found.to_dict() == pytest.approx(expected[column].astype(float).to_dict(), rel=1e-12)


@pytest.mark.parametrize("sweep", ["full", "two-cells", "published-glm52-gb10"])
def test_the_stored_summary_is_the_computed_one(sweep: str, con: queries.Connection) -> None:
    rows, findings = queries.run_cells(con, sweep), queries.findings(con, sweep)
    computed = summarise(
        rows,
        requests=queries.requests(con, sweep),
        steps=queries.steps(con, sweep),
        positions=queries.positions(con, sweep),
        findings=findings,
    )
    stored = stored_summary(queries.estimates(con, sweep), rows, findings)
    assert stored is not None
    assert [(row.cell_id, row.k, row.n_runs, row.figures(), row.acceptance) for row in stored] == [
        (row.cell_id, row.k, row.n_runs, row.figures(), row.acceptance) for row in computed
    ]
