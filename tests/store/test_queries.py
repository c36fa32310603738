"""The read side: what it answers, and what it refuses."""

from __future__ import annotations

import io
import json
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from backend.errors import Refused, StoreError
from backend.records import Canary, Counter, Environment, Failure, Finding, PowerSample, StageTimes
from backend.store import queries
from backend.store.connection import Connection, frame, schema_version
from tests.store.store_samples import CELL, SWEEP, blank, cell, drafted, fill, open_store, reported, request, run, sweep

ODD = "x'; DROP TABLE run; --"


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    keyed = {"run_id": "s:a", "cell_id": CELL}
    with open_store(tmp_path_factory.mktemp("queries"), code_version="v9") as store:
        fill(
            store,
            sweep(reference_depths={"production": 2}, description="naïve, \"quoted\"\nand two lines"),
            cell(),
            run("a", 3, order_index=1),
            drafted("a", 0, 3, [3, 1]),
            request("a", 9, phase="warmup"),
            run("b", 0, order_index=0),
            request("b", 0, output_tokens=3, decode_s=0.5, steps=2),
            run("c", 1, order_index=2, status="failed", reason="died"),
            Failure("s:c", "died", "exit code 1", "last words", 1.0),
            Environment("s:a", "n1", "kernel", None),
            Canary("s:a", "n1", "before", "matmul", 0.5, None),
            blank(Finding, sweep=SWEEP, run_id="s:a", code="info-code", severity="info"),
            blank(Finding, sweep=SWEEP, run_id="s:a", code="error-code", severity="error"),
            blank(Counter, **keyed, phase="measure", span="phase", name="n", after=1.0),
            blank(PowerSample, run_id="s:a", node="n1", t_unix_s=1.0, scope="gpu"),
            blank(
                StageTimes,
                **keyed,
                request_id="s:a:q",
                source="perf_counter",
                stages=("draft_forward", "verify_forward"),
                positions=(0, -1),
                durations_us=((1000.0, None),),
            ),
            reported("b", "power_w", 44.0),
        )  # fmt: skip
        return store.publish()


@pytest.fixture(scope="module")
def con(snapshot: Path) -> Connection:
    return queries.connect(snapshot)


def test_sweeps_say_what_they_hold(con: Connection) -> None:
    row = queries.require_sweep(con, SWEEP)
    assert (row["runs_done"], row["runs_failed"], list(row["depths"]), row["cells"]) == (2, 1, [0, 1, 3], 1)
    assert json.loads(row["reference_depths"]) == {"production": 2}


@pytest.mark.parametrize("name", ["", "nope", ODD])
def test_an_unknown_sweep_is_refused_with_those_there_are(con: Connection, name: str) -> None:
    with pytest.raises(Refused, match=r"unknown sweep .*\(there are: s\)"):
        queries.require_sweep(con, name)


def test_rows_come_in_run_order_with_their_run(con: Connection) -> None:
    assert queries.runs(con, SWEEP)["run_id"].tolist() == ["s:b", "s:a", "s:c"]
    assert queries.run_cells(con, SWEEP)["k"].tolist() == [0, 3]
    assert queries.requests(con, SWEEP)["run_id"].tolist() == ["s:b", "s:a"]
    assert queries.requests(con, SWEEP, phase=None)["phase"].tolist() == ["measure", "measure", "warmup"]
    assert queries.requests(con, SWEEP, run_id="s:a", cell_id=CELL)["k"].tolist() == [3]
    assert queries.steps(con, SWEEP)["accepted_tokens"].tolist() == [3, 1]
    assert queries.steps(con, SWEEP)["start_token_index"].tolist() == [1, 5]
    assert queries.findings(con, SWEEP)["code"].tolist() == ["error-code", "info-code"]
    assert queries.failures(con, SWEEP)["k"].tolist() == [1]
    for ask in (queries.environment, queries.canaries, queries.counters, queries.power_samples, queries.stage_times):
        assert ask(con, SWEEP)["order_index"].tolist() == [1], ask.__name__
    assert queries.reported_values(con, SWEEP)["value"].tolist() == [44.0]
    assert queries.k_summary(con)["k"].tolist() == [0, 3]
    assert queries.positions(con, SWEEP)["position"].tolist() == [0, 1, 2]
    assert queries.cells(con, SWEEP)["cell_id"].tolist() == [CELL]
    assert len(queries.estimates(con, SWEEP)) == len(queries.cycle_fit(con, SWEEP)) == 0


def test_parameters_are_bound(con: Connection) -> None:
    """Nothing is found under a hostile name, and nothing happens."""
    for ask in (
        queries.cells, queries.runs, queries.run_cells, queries.requests, queries.steps, queries.k_summary,
        queries.positions, queries.findings, queries.environment, queries.failures, queries.counters, queries.estimates,
        queries.cycle_fit, queries.power_samples, queries.canaries, queries.stage_times, queries.reported_values,
    ):  # fmt: skip
        assert ask(con, ODD).empty, ask.__name__
    assert queries.run_cells(con, SWEEP, ODD).empty
    assert len(queries.runs(con, SWEEP)) == 3


def test_missing_keeps_the_kind_of_its_column(con: Connection) -> None:
    found = queries.requests(con, SWEEP)
    assert str(found["accepted_tokens"].dtype) == "Int64"
    assert found["accepted_tokens"].isna().tolist() == [True, False]
    assert found["error"].isna().all()
    assert found["ttft_s"].dtype == float


def test_tables_and_columns_are_listed_with_their_meaning(con: Connection) -> None:
    known = queries.tables(con).set_index("name")
    assert known.loc["run", ["kind", "rows"]].tolist() == ["table", 3]
    assert known.loc["k_summary", ["kind", "rows"]].tolist() == ["view", 2]
    assert known["comment"].str.len().min() > 10
    found = queries.columns(con, "run_cell").set_index("name")
    assert found.loc["cycle_ms", "type"] == "DOUBLE"
    assert "ms" in found.loc["cycle_ms", "comment"]
    assert len(queries.table(con, "run", limit=2)) == 2
    assert len(queries.table(con, "run")) == 3


@pytest.mark.parametrize("name", ["nope", ODD, 'run"', "duckdb_tables", "information_schema.tables"])
def test_only_our_tables_are_shown_and_exported(con: Connection, name: str) -> None:
    for ask in (
        lambda: queries.table(con, name),
        lambda: queries.columns(con, name),
        lambda: queries.export(con, name, "csv"),
    ):
        with pytest.raises(Refused, match="unknown table"):
            ask()


def test_exports_hold_what_the_table_holds(con: Connection) -> None:
    for name in queries.tables(con)["name"]:
        rows = json.loads(queries.export(con, name, "json"))
        parquet = pd.read_parquet(io.BytesIO(queries.export(con, name, "parquet")))
        csv = pd.read_csv(io.BytesIO(queries.export(con, name, "csv")))
        shown = queries.table(con, name)
        assert len(rows) == len(parquet) == len(csv) == len(shown), name
        assert list(parquet) == list(csv) == list(shown), name
    request_row = json.loads(queries.export(con, "request", "json"))[0]
    assert request_row["step_accepted"] == [3, 1]
    assert request_row["error"] is None
    csv = pd.read_csv(io.BytesIO(queries.export(con, "request", "csv")))
    assert json.loads(csv["step_accepted"][0]) == [3, 1]
    text = pd.read_csv(io.BytesIO(queries.export(con, "sweep", "csv")))["description"][0]
    assert text == 'naïve, "quoted"\nand two lines'
    with pytest.raises(Refused, match="unknown format 'xlsx'"):
        queries.export(con, "run", "xlsx")


def test_a_snapshot_says_what_it_is(con: Connection) -> None:
    info = queries.snapshot_info(con)
    assert (info["schema_version"], info["code_version"]) == (schema_version(), "v9")


@pytest.mark.parametrize(
    "sql",
    ["SELECT * FROM read_csv('/etc/passwd')", "COPY run TO '/tmp/sounding-copy.csv'", "DELETE FROM run",
     "ATTACH '/tmp/sounding-other.duckdb'", "SET enable_external_access = true", "INSTALL httpfs"],
)  # fmt: skip
def test_a_reader_reaches_no_other_file_and_changes_nothing(con: Connection, sql: str) -> None:
    with pytest.raises(StoreError, match="query failed"):
        frame(con, sql)


def test_bad_files_are_one_clear_line(snapshot: Path, tmp_path: Path) -> None:
    def fault(path: Path) -> str:
        with pytest.raises(StoreError) as caught:
            queries.connect(path)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "no results here" in fault(tmp_path / "none.duckdb")
    assert "no results here" in fault(tmp_path)
    with pytest.raises(StoreError, match="no results here"):
        queries.snapshot_key(tmp_path / "none.duckdb")

    (tmp_path / "text").write_text("hello " * 5000)
    (tmp_path / "half").write_bytes(snapshot.read_bytes()[:5000])
    (tmp_path / "empty").touch()
    assert "cannot be opened as a DuckDB database" in fault(tmp_path / "text")
    assert "half" in fault(tmp_path / "half")
    assert "empty" in fault(tmp_path / "empty")

    with duckdb.connect(str(tmp_path / "foreign")) as other:
        other.execute("CREATE TABLE migration (x INTEGER)")
    assert "is not a Sounding database" in fault(tmp_path / "foreign")
    for name, change, said in (
        ("newer", "INSERT INTO migration VALUES (99, 'x', 0)", "has schema 99"),
        ("older", "DELETE FROM migration WHERE version > 1", "has the older schema 1"),
        ("none", "DELETE FROM migration", "is not a Sounding database"),
    ):
        (tmp_path / name).write_bytes(snapshot.read_bytes())
        with duckdb.connect(str(tmp_path / name)) as other:
            other.execute(change)
        assert said in fault(tmp_path / name)
