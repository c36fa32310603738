"""`bench serve` results: the right values of the cases, and what must not be believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backend.errors import Refused
from tests.importers.importing import (
    DETAILED_ONLY,
    K0,
    K3,
    answers,
    bench,
    only,
    result,
    run_cell,
    table,
    take,
    written,
)

FULL = "without --save-detailed"


def stripped(path: Path) -> dict[str, Any]:
    return {key: value for key, value in result(path).items() if key not in DETAILED_ONLY}


@pytest.fixture(params=["with --save-detailed", FULL], scope="module")
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """K=0 and K=3 of the golden files imported into one sweep, as they are and without their arrays."""
    folder = tmp_path_factory.mktemp("both")
    paths = [K0, K3]
    if request.param == FULL:
        paths = [written(folder, stripped(path), name=path.name) for path in paths]
    take(folder / "data", *paths)
    return folder / "data"


def test_k0_reads_right(both: Path) -> None:
    row = answers(both)[0, "bench-100in"]
    assert row["decode_tok_s"]["value"] == pytest.approx(642.79, abs=0.005)
    assert row["cycle_ms"]["value"] == pytest.approx(1.5557, abs=5e-5)
    assert (row["acceptance_length"]["value"], row["acceptance_rate"]["value"]) == (1.0, None)
    assert (row["tokens_per_step"]["value"], row["acceptance"], row["flags"]) == (1.0, [], ["too-few-runs"])


def test_k3_reads_right(both: Path) -> None:
    row = answers(both)[3, "bench-100in"]
    assert row["decode_tok_s"]["value"] == pytest.approx(596.96, abs=0.005)
    assert row["cycle_ms"]["value"] == pytest.approx(3.5517, abs=5e-5)
    assert row["acceptance_length"]["value"] == pytest.approx(2.1361, abs=5e-5)
    assert [round(rate["value"], 4) for rate in row["acceptance"]] == [0.5860, 0.3289, 0.2212]
    assert row["acceptance_rate"]["value"] == pytest.approx(1361 / 3594)
    assert row["tokens_per_step"]["value"] == pytest.approx(2540 / 1198)
    assert row["flags"] == ["too-few-runs"]


def test_concurrency_is_max_concurrency(both: Path) -> None:
    """max_concurrent_requests says 6 and is something else."""
    assert {row["concurrency"] for row in run_cell(both)} == {1}


def test_no_peak_of_chunks_is_kept(both: Path) -> None:
    values = table(both, "reported_value")
    assert not [row for row in values if row["value"] in (277.0, 640.0) or "peak" in row["quantity"]]


def test_runs_are_arms_without_block_or_order(both: Path) -> None:
    runs = table(both, "run")
    assert {(r["role"], r["status"], r["valid"], r["attempt"]) for r in runs} == {("arm", "done", True, 1)}
    assert all(str(r["block"]) in ("<NA>", "nan", "None") and r["k"] == r["reported_k"] for r in runs)
    assert [s["source"] for s in table(both, "sweep")] == ["imported"]


def test_accounting_of_k3(tmp_path: Path) -> None:
    """19 tokens of overshoot: AL / cycle = 601.4 against 596.96 decoded, and no error, for K x requests is 60."""
    take(tmp_path, K3)
    (row,) = run_cell(tmp_path)
    assert (row["drafted_steps"], row["drafted_tokens"], row["accepted_tokens"]) == (1198, 3594, 1361)
    assert (row["steps"], row["tokens_after_first"], row["overshoot_tokens"]) == (1198, 2540, 19)
    assert 1e3 * row["acceptance_length"] / row["cycle_ms"] == pytest.approx(601.4, abs=0.05)
    assert (row["n_requests"], row["n_errors"]) == (20, 0)
    assert [finding["code"] for finding in table(tmp_path, "finding")] == ["too-few-runs"]
    requests = sorted(table(tmp_path, "request"), key=lambda row: row["request_index"])
    assert {(r["clock"], r["output_tokens"]) for r in requests} == {("client", 128)}
    assert [r["steps"] for r in requests][:3] == [38, 37, 46]


@pytest.mark.parametrize(("accepted", "valid"), [(1361 + 41, True), (1361 + 42, False), (1342, True), (1341, False)])
def test_overshoot_up_to_k_times_requests(tmp_path: Path, accepted: int, valid: bool) -> None:
    path = written(tmp_path, result(spec_decode_accepted_tokens=accepted))
    imported = take(tmp_path / "data", path)
    assert imported.runs[0].run.valid is valid
    codes = {row["code"] for row in table(tmp_path / "data", "finding")}
    assert ("token-accounting" in codes) is not valid


def test_more_accepted_than_drafted_is_shown_and_excluded(tmp_path: Path) -> None:
    path = written(tmp_path, bench([5], [[0.1]], drafts=(1, 2, 4), rates=[1.0, 1.0]))
    run = take(tmp_path / "data", path).runs[0].run
    assert not run.valid
    assert "impossible-counts" in (run.exclusion_reason or "")
    assert run_cell(tmp_path / "data")[0]["acceptance"] == 2.0  # never clamped


def test_chunks_are_not_tokens(tmp_path: Path) -> None:
    """400 tokens in 100 chunks in 1 s: 400 tok/s, and the 10 ms gap is the cycle."""
    take(tmp_path / "d", written(tmp_path, bench([401], [[0.01] * 100], drafts=(100, 300, 300), rates=[1.0, 1.0, 1.0])))
    row = only(tmp_path / "d")
    assert row["decode_tok_s"]["value"] == pytest.approx(400)
    assert (row["cycle_ms"]["value"], row["acceptance_length"]["value"]) == (pytest.approx(10), 4.0)


def test_merged_chunks_are_no_steps(tmp_path: Path) -> None:
    """50 chunks for 100 drafts: tok/s stands, steps and cycle are unknown."""
    path = written(tmp_path, bench([401], [[0.02] * 50], drafts=(100, 300, 300), rates=[1.0, 1.0, 1.0]))
    imported = take(tmp_path / "d", path)
    row = only(tmp_path / "d")
    assert row["decode_tok_s"]["value"] == pytest.approx(400)
    assert (row["cycle_ms"]["value"], row["tokens_per_step"]["value"]) == (None, None)
    assert row["acceptance_length"]["value"] == 4.0
    assert "50 chunks for 100 drafts" in imported.runs[0].notes[0]


def test_k_of_merged_chunks_without_drafts_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, bench([401], [[0.02] * 50]))
    with pytest.raises(Refused, match=r"does not tell K.*--k N"):
        take(tmp_path / "d", path)
    take(tmp_path / "d", path, k=0)  # K=0 emits one token a step, however its tokens are packed
    assert only(tmp_path / "d")["cycle_ms"]["value"] == pytest.approx(2.5)


def test_given_k_leaves_steps_unknown(tmp_path: Path) -> None:
    take(tmp_path / "d", written(tmp_path, bench([401], [[0.02] * 50])), k=7)
    row = only(tmp_path / "d")
    assert (row["k"], row["cycle_ms"]["value"], row["acceptance_length"]["value"]) == (7, None, None)
    assert row["decode_tok_s"]["value"] == pytest.approx(400)


@pytest.mark.parametrize(("path", "k"), [(K3, 5), (K3, 0), (K0, 3)])
def test_a_k_that_contradicts_the_file_is_refused(tmp_path: Path, path: Path, k: int) -> None:
    with pytest.raises(Refused, match=f"--k says {k}"):
        take(tmp_path, path, k=k)


def test_k_of_draft_tokens_over_drafts(tmp_path: Path) -> None:
    path = written(tmp_path, result(spec_decode_per_position_acceptance_rates=None))
    assert take(tmp_path / "d", path, k=3).runs[0].run.k == 3
    uneven = result(spec_decode_per_position_acceptance_rates=None, spec_decode_draft_tokens=3593)
    with pytest.raises(Refused, match="drafts differ in length"):
        take(tmp_path / "d", written(tmp_path, uneven))


def test_failed_requests_are_counted(tmp_path: Path) -> None:
    imported = take(tmp_path / "d", written(tmp_path, bench([11, 0, 11], [[0.1] * 10, [], [0.1] * 10])))
    (row,) = run_cell(tmp_path / "d")
    assert (row["n_requests"], row["n_errors"], row["decode_tok_s"]) == (2, 1, pytest.approx(10))
    errors = {r["request_index"]: r["error"] for r in table(tmp_path / "d", "request")}
    assert errors[1] == "TimeoutError: late"
    assert only(tmp_path / "d")["flags"] == ["failed-requests", "too-few-runs"]
    assert "1 requests failed (TimeoutError: late)" in imported.runs[0].notes[0]


def test_failed_requests_leave_no_overshoot(tmp_path: Path) -> None:
    """The server's totals hold what failed requests drafted too, so they are not set against finished tokens."""
    told = bench([5, 0], [[0.1, 0.1], []], drafts=(3, 6, 3), rates=[0.7, 0.3])
    take(tmp_path / "d", written(tmp_path, told))
    (row,) = run_cell(tmp_path / "d")
    assert str(row["overshoot_tokens"]) in ("<NA>", "nan", "None")
    assert row["acceptance_length"] == 2.0


def test_failed_requests_of_totals_are_counted(tmp_path: Path) -> None:
    told = {key: value for key, value in bench([11, 0], [[0.1] * 10, []]).items() if key not in DETAILED_ONLY}
    take(tmp_path / "d", written(tmp_path, told), k=0)
    row = only(tmp_path / "d")
    assert (row["flags"], row["decode_tok_s"]["value"]) == (["failed-requests", "too-few-runs"], None)


def test_above_concurrency_1_there_is_no_tok_s(tmp_path: Path) -> None:
    take(tmp_path / "d", written(tmp_path, result(max_concurrency=8)))
    row = only(tmp_path / "d")
    assert (row["decode_tok_s"]["value"], row["cycle_ms"]["value"]) == (None, None)
    assert row["acceptance_length"]["value"] == pytest.approx(2.1361, abs=5e-5)
    quantities = {r["quantity"]: r["value"] for r in table(tmp_path / "d", "reported_value")}
    assert quantities["output_throughput_tok_s"] == pytest.approx(568.22, abs=0.01)


def test_an_open_arrival_rate_has_no_concurrency(tmp_path: Path) -> None:
    told = {**result(), "max_concurrency": None}
    assert take(tmp_path / "d", written(tmp_path, told)).runs[0].run.k == 3
    assert run_cell(tmp_path / "d")[0]["concurrency"] == 20  # all at once
    with pytest.raises(Refused, match=r"arrived at 4.0/s.*--max-concurrency"):
        take(tmp_path / "d", written(tmp_path, {**told, "request_rate": 4.0}))


def test_all_tokens_in_one_chunk_have_no_window(tmp_path: Path) -> None:
    take(tmp_path / "d", written(tmp_path, bench([9, 9], [[], []])), k=0)
    assert only(tmp_path / "d")["decode_tok_s"]["value"] is None


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (bench([11, 11], [[0.1] * 10] * 2, ttfts=[0.1]), "arrays of unequal lengths: output_lens 2, ttfts 1"),
        (bench([11], [[0.1] * 10], errors=[]), "arrays of unequal lengths"),
        ({k: v for k, v in bench([11], [[0.1] * 10]).items() if k != "itls"}, "has .* but no itls"),
        (bench([11], [[0.1] * 10], total_output_tokens=12), "output_lens add up to 11"),
        (bench([], []), "holds no finished request"),
        (bench([0, 0], [[], []]), "holds no finished request: 2 of them failed"),
        (bench([11], [[0.1] * 9 + [-0.1]]), r"bad itls\.0\.9"),
        (bench([11], [[0.1] * 9 + [float("nan")]]), r"bad itls\.0\.9"),
        (bench([11], [[0.1] * 10], completed="1"), "bad completed"),
        (bench([11], [[0.1] * 10], max_concurrency=0), "bad max_concurrency"),
        ({k: v for k, v in bench([11], [[0.1] * 10]).items() if k != "total_output_tokens"}, "bad total_output_tokens"),
    ],
)
def test_malformed_results_are_refused(tmp_path: Path, told: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said) as caught:
        take(tmp_path / "d", written(tmp_path, told))
    assert caught.value.where.endswith("result.json")
    assert not list((tmp_path / "d").glob("journal/*/*"))
