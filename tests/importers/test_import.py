"""`import` as a whole: what is recognised, names, several files and depths, importing again, the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from backend import cli
from backend.analysis.cycle_model import fit_cycle
from backend.errors import Refused
from backend.importers import files
from backend.importers.take_in import import_files, sweep_name
from backend.store import journal, queries
from backend.store.database import Store
from tests.importers.importing import (
    GOLDEN,
    K0,
    K3,
    LOG,
    answers,
    bench,
    only,
    result,
    run_cell,
    table,
    take,
    written,
)
from tests.store import store_samples


def at_depth(k: int, cycle_s: float = 0.01, requests: int = 4) -> dict[str, object]:
    """Ten steps a request, every draft refused; each K is its own result."""
    drafts = (10 * requests, 10 * requests * k, 0) if k else None
    return bench([11] * requests, [[cycle_s] * 10] * requests, drafts=drafts, rates=[0.0] * k)


# -- recognising ------------------------------------------------------------------------------------------------------
def test_content_decides_not_the_name(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(LOG.read_bytes())
    (tmp_path / "b.log").write_bytes(K3.read_bytes())
    assert files.read(tmp_path / "a.json")[0].format == "vLLM server log"
    assert files.read(tmp_path / "b.log")[0].format == "vLLM bench serve result"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (K3.read_bytes()[:-100], "looks like JSON that is cut off or broken at line 1"),
        (json.dumps(result()).encode() + b"\n" + K3.read_bytes()[:500], "cut off or broken at line 2"),
        (b'{"a": 1, "b": 2}', r"looks like other JSON \(a, b\)"),
        (b"[]", "JSON without a result"),
        (b"[1]", "looks like text that begins"),
        (b"[[1]]", "looks like other JSON"),
        (b" \n", "is empty"),
        (b"\x89PNG\0\0", "binary data"),
        ((GOLDEN / "completion_stream_k3.txt").read_bytes(), "looks like the event stream of a completion"),
        (b"hello\nworld", "looks like text that begins 'hello'"),
    ],
)
def test_anything_else_is_one_refusal(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(Refused, match=said) as caught:
        files.read(path)
    assert caught.value.where == str(path)
    assert "bench serve" in caught.value.fix or "save the result again" in caught.value.fix


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(Refused, match="cannot be read"):
            files.read(path)


@pytest.mark.parametrize("layout", ["lines", "list", "indented"])
def test_several_results_in_a_file_are_several_runs(tmp_path: Path, layout: str) -> None:
    told = [at_depth(0), at_depth(2), at_depth(2, 0.02)]
    path = written(tmp_path, *told)
    if layout == "list":
        path.write_text(json.dumps(told))
    elif layout == "indented":
        path.write_text("\n".join(json.dumps(one, indent=2) for one in told))
    assert [one.run.k for one in take(tmp_path / "d", path).runs] == [0, 2, 2]
    assert [one["cycle_ms"]["value"] for one in answers(tmp_path / "d").values()] == pytest.approx([10, 15])


# -- sweeps -----------------------------------------------------------------------------------------------------------
def test_golden_files_together(tmp_path: Path) -> None:
    """The log's run is a cell of its own: nothing of it is pooled with the benchmark's."""
    take(tmp_path, K0, K3, LOG)
    assert set(answers(tmp_path)) == {(0, "bench-100in"), (3, "bench-100in"), (3, "server-log")}
    assert answers(tmp_path)[3, "bench-100in"]["decode_tok_s"]["value"] == pytest.approx(596.96, abs=0.005)


def test_a_sweep_of_many_depths_fits(tmp_path: Path) -> None:
    paths = [
        written(tmp_path, at_depth(k, 0.005 + (0.002 if k else 0) + 0.001 * k), name=f"r{k}.json") for k in range(6)
    ]
    take(tmp_path / "d", *paths)
    con = queries.connect(tmp_path / "d" / "results.duckdb")
    fit = fit_cycle(queries.run_cells(con, "s"))
    stored = queries.cycle_fit(con, "s")
    con.close()
    assert fit.full is not None
    assert fit.t_verify_base_ms.value == pytest.approx(5)
    assert (fit.full.t_draft_ms.value, fit.full.t_marginal_ms.value) == (pytest.approx(2), pytest.approx(1))
    assert list(stored["window_k"].map(len)) == [2, 3, 4, 5]
    assert stored["source"].unique().tolist() == ["imported"]


def test_importing_again_changes_nothing(tmp_path: Path) -> None:
    take(tmp_path, K0, K3, LOG)
    before, row = {p: p.read_bytes() for p in tmp_path.glob("journal/*/*")}, run_cell(tmp_path)
    copy = tmp_path / "renamed"
    copy.write_bytes(K3.read_bytes())
    again = take(tmp_path, K0, copy, LOG, K3)
    assert [one.new for one in again.runs] == [False] * 4
    assert {p: p.read_bytes() for p in tmp_path.glob("journal/*/*")} == before
    assert str(run_cell(tmp_path)) == str(row)


def test_an_import_that_was_killed_is_completed(tmp_path: Path) -> None:
    take(tmp_path, K3)
    (path,) = tmp_path.glob("journal/s/k3-*")
    path.write_bytes(path.read_bytes()[:3000])
    assert take(tmp_path, K3).runs[0].new
    assert only(tmp_path)["decode_tok_s"]["value"] == pytest.approx(596.96, abs=0.005)


def test_another_file_adds_a_run(tmp_path: Path) -> None:
    take(tmp_path / "d", K0)
    take(tmp_path / "d", K3)
    slower = result(itls=[[2 * gap for gap in gaps] for gaps in result()["itls"]], latencies=None)
    take(tmp_path / "d", written(tmp_path, slower))
    row = answers(tmp_path / "d")[3, "bench-100in"]
    assert (row["n_runs"], row["decode_tok_s"]["low"] is not None) == (2, True)
    assert row["cycle_ms"]["value"] == pytest.approx(1.5 * 3.5517, abs=1e-4)
    assert row["acceptance_length"]["value"] == pytest.approx(2.1361, abs=5e-5)
    assert len(table(tmp_path / "d", "cell")) == 1


def test_a_measured_sweep_is_never_added_to(tmp_path: Path) -> None:
    with Store(tmp_path, bundled={}) as store:
        store_samples.fill(store, store_samples.sweep(), store_samples.cell(), store_samples.run("a", 0))
    with pytest.raises(Refused, match="'s' is a measured sweep"):
        take(tmp_path, K3)
    assert len(list(tmp_path.glob("journal/s/*"))) == 2


def test_bundled_names_and_bad_names_are_refused(tmp_path: Path) -> None:
    bundled = tmp_path / "bundled"
    (bundled / "demo").mkdir(parents=True)
    with Store(tmp_path / "d", bundled={"demo": bundled}) as store, pytest.raises(Refused, match="bundled sweep"):
        import_files(store, [K3], name="demo")
    for name in ("", "a/b", "../x", ".a", "A b"):
        with pytest.raises(Refused, match="cannot be a sweep's name"):
            take(tmp_path / "d", K3, name=name)


def test_one_bad_file_keeps_everything_out(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_text("nothing")
    with pytest.raises(Refused, match="looks like text"):
        take(tmp_path / "d", K0, bad)
    assert not list((tmp_path / "d").glob("journal/*"))


def test_other_models_are_refused(tmp_path: Path) -> None:
    take(tmp_path / "d", K3)
    with pytest.raises(Refused, match="is of model 'big'"):
        take(tmp_path / "d", written(tmp_path, result(model_id="big", tokenizer_id=None)))
    take(tmp_path / "d", LOG)  # 'models/target', served as 'tiny'
    other = tmp_path / "other.log"
    other.write_text(LOG.read_text().replace("draft_model", "eagle").replace("pid=5702", "pid=1"))
    with pytest.raises(Refused, match="speculator method 'eagle', 's' with 'draft_model'"):
        take(tmp_path / "d", other)


def test_the_same_result_at_another_k_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, bench([401], [[0.02] * 50]))
    take(tmp_path / "d", path, k=3)
    with pytest.raises(Refused, match=r"was imported as s:k3-.* now it is K=4"):
        take(tmp_path / "d", path, k=4)


@pytest.mark.parametrize(
    ("names", "name"),
    [
        (["vllm_bench_serve_k0.json", "vllm_bench_serve_k3.json"], "vllm_bench_serve"),
        (["Run A-k1.json", "Run A-k2.json"], "run-a"),
        (["glm-a.json", "glm-b.json"], "glm"),
        (["k3.json"], "imported"),
        (["x.json", "y.json"], "imported"),
    ],
)
def test_a_sweep_is_named_after_its_files(names: list[str], name: str) -> None:
    assert sweep_name([Path(one) for one in names]) == name


# -- command line -----------------------------------------------------------------------------------------------------
def run(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["backend", *map(str, arguments)])
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_the_command_imports_and_summary_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "import", K0, K3, "--data", tmp_path) == 0
    said = capsys.readouterr().out
    assert "vllm_bench_serve: K=3 from" in said
    assert "python -m backend summary vllm_bench_serve" in said
    assert run(monkeypatch, "summary", "vllm_bench_serve", "--json", "--db", tmp_path / "results.duckdb") == 0
    rows = {row["k"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows[3]["acceptance_length"]["value"] == pytest.approx(2.1361, abs=5e-5)
    assert run(monkeypatch, "fit", "vllm_bench_serve", "--db", tmp_path / "results.duckdb") == 0
    assert journal.read(next(tmp_path.glob("journal/*/sweep.jsonl"))).records


def test_a_refusal_exits_with_2_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    path.write_text("{")
    assert run(monkeypatch, "import", path, "--data", tmp_path / "d") == 2
    said = capsys.readouterr().err
    assert said.startswith(f"refused: {path}: looks like JSON that is cut off")
    assert said.count("\n") == 1
    assert run(monkeypatch, "import") == 2
