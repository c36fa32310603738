"""The published study, as printed: what was published is there, what was not is missing."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.errors import StoreError
from backend.importers import published
from backend.records import ReportedValue, Run
from backend.store import journal, queries
from backend.store.connection import Connection
from backend.store.database import Store
from backend.store.paths import BUNDLED


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with Store(tmp_path_factory.mktemp("data"), bundled={"published": BUNDLED["published"]}) as store:
        store.ingest()
        path = store.publish()
    con = queries.connect(path)
    yield con
    con.close()


def test_the_bundled_journal_is_what_the_importer_reads() -> None:
    """After a change of the CSV or the importer: python -m backend.importers.published."""
    kept = journal.read(published.JOURNALS / published.SWEEP / journal.SWEEP_FILE)
    assert kept.records == published.read()
    assert [path.name for path in published.JOURNALS.rglob("*.jsonl")] == [journal.SWEEP_FILE]


def test_writing_the_journal_again_changes_nothing(tmp_path: Path) -> None:
    first = published.write_journal(tmp_path).read_bytes()
    assert published.write_journal(tmp_path).read_bytes() == first


def test_every_printed_figure_and_no_other_is_a_row() -> None:
    with published.FIGURES.open() as file:
        table = list(csv.DictReader(file))
    printed = {
        (f"{published.SWEEP}:k{row['k']}", published.COLUMNS[column][0]): float(value)
        for row in table
        for column, value in row.items()
        if column != "k" and value
    }
    rows = [row for row in published.read() if isinstance(row, ReportedValue)]
    assert {(row.run_id, row.quantity): row.value for row in rows if row.quantity != "acceptance_length"} == printed
    assert [(row.run_id, row.value) for row in rows if row.quantity == "acceptance_length"] == [
        (f"{published.SWEEP}:k3", 2.259)
    ]


def test_runs_are_arms_without_an_order() -> None:
    runs = [row for row in published.read() if isinstance(row, Run)]
    assert [run.k for run in runs] == list(range(8))
    assert {(run.role, run.status, run.valid, run.block, run.order_index, run.started_unix_s) for run in runs} == {
        ("arm", "done", True, None, None, None)
    }


def test_the_sweep_says_what_it_is(con: Connection) -> None:
    row = queries.require_sweep(con, "published-glm52-gb10")
    assert (row["source"], row["target_model"], row["speculator_method"], row["max_depth"]) == (
        "published", "GLM-5.2", "dspark", 7,
    )  # fmt: skip
    assert row["reference_depths"] == '{"production": 2, "recipe": 3, "native": 7}'


def test_cycles_follow_from_the_printed_figures(con: Connection) -> None:
    """study.md: 62.27 (K=0), 90.61, 89.40, 105.81, 167.56 (K=6) ms; no throughput, no cycle."""
    found = queries.k_summary(con, "published-glm52-gb10").set_index("k")
    cycles = found["cycle_ms"].round(2)
    assert cycles.dropna().to_dict() == {0: 62.27, 1: 90.61, 2: 89.40, 3: 105.81, 6: 167.56}
    assert found["acceptance_length"].dropna().to_dict() == {3: 2.259}
    assert found["decode_tok_s"].dropna().to_dict() == {0: 16.06, 1: 18.43, 2: 24.05, 3: 21.36, 6: 14.92}
    assert found["tokens_per_step"].tolist() == [1.0, 1.67, 2.15, 2.26, 2.38, 2.40, 2.50, 2.79]
    assert found["power_w"].dropna().to_dict() == {0: 44.0, 6: 49.0}  # K=2 would follow, and was not printed
    assert found["tokens_per_joule"].dropna().to_dict() == {0: 0.365, 2: 0.512, 6: 0.304}
    assert found["n_runs"].tolist() == [1] * 8
    assert found["n_requests"].isna().all()
    assert found["acceptance"].isna().all()


def test_acceptance_by_position_is_survival_and_only_where_printed(con: Connection) -> None:
    found = queries.positions(con, "published-glm52-gb10")
    assert [(r.k, r.position, r.survival) for r in found.itertuples()] == [
        (2, 0, 0.689), (3, 0, 0.644), (3, 1, 0.383), (3, 2, 0.232),
    ]  # fmt: skip
    assert found["conditional"].round(3).tolist() == [0.689, 0.644, 0.595, 0.606]
    assert found["drafted_steps"].isna().all()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("k,tok_s\n0,1\n", "columns are"),
        ("k,decode_tok_s,tokens_per_verify,power_w,tokens_per_joule,acceptance_pos0,acceptance_pos1,acceptance_pos2\n"
         "0,1,1,,,,,\n1,fast,1,,,,,\n", "line 3: could not convert string to float: 'fast'"),
        ("", "columns are None"),
    ],
)  # fmt: skip
def test_another_table_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "figures.csv"
    path.write_text(text)
    with pytest.raises(StoreError, match=said):
        published.read(path)
    with pytest.raises(StoreError, match="No such file"):
        published.read(tmp_path / "none.csv")
