"""The smoke sweep on real vLLM, through the command line: what `make demo` does, smaller."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from backend.engines.process import port_in_use
from backend.store import queries, queries_acceptance

from .conftest import ROOT, SmokeSweep

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


def ask(smoke: SmokeSweep, command: str, *more: str) -> dict:
    line = [sys.executable, "-m", "backend", command, "smoke", "--json", "--db", str(smoke.snapshot), *more]
    return json.loads(subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def test_it_finishes_and_leaves_nothing_behind(smoke: SmokeSweep) -> None:
    assert smoke.exit_code == 0, smoke.output
    assert not (smoke.data_dir / "server.json").exists()
    assert not port_in_use("127.0.0.1", 18941)
    progress = json.loads((smoke.data_dir / "progress.json").read_text())
    assert (progress["state"], progress["runs_done"], progress["runs_total"]) == ("done", 3, 3)


def test_outputs_are_identical_for_every_depth(smoke: SmokeSweep) -> None:
    """float32 and greedy: speculation must not change a single token."""
    requests = queries.requests(queries.connect(smoke.snapshot), "smoke")
    assert sorted(requests["k"].unique()) == [0, 1, 3]
    per_prompt = requests.groupby("prompt_id")["output_hash"].nunique()
    assert len(per_prompt) == 4
    assert (per_prompt == 1).all()
    assert requests["token_ids"].map(len).eq(requests["output_tokens"]).all()


def test_the_proposer_is_timed_in_every_sweep(smoke: SmokeSweep) -> None:
    """The default: no key in the spec asks for it. Here the engine core is another process, and the books close too."""
    rows = {row["k"]: row for row in ask(smoke, "timing")["by_k"]}
    assert sorted(rows) == [0, 1, 3]
    assert (rows[0]["t_draft_ms"]["value"], rows[0]["t_draft_ms"]["reason"]) == (None, "K=0 drafts nothing")
    assert rows[3]["t_draft_ms"]["value"] > rows[1]["t_draft_ms"]["value"] > 0
    assert all(abs(row["residual_pct"]["value"]) < 3 for row in rows.values())
    assert {row["overhead_pct"]["n"] for row in rows.values()} == {4}


def test_measure_knows_no_probe(smoke: SmokeSweep) -> None:
    requests = queries.requests(queries.connect(smoke.snapshot), "smoke", phase=None)
    by_phase = requests.groupby("phase")["probe_on"]
    counts = by_phase.count().to_dict()
    assert counts.pop("instrument") == 3 * 16
    assert set(counts.values()) == {0}
    assert requests.loc[requests["phase"] == "instrument", "probe_on"].mean() == 0.5


def test_summary_figures(smoke: SmokeSweep) -> None:
    rows = {row["k"]: row for row in ask(smoke, "summary")["rows"]}
    assert sorted(rows) == [0, 1, 3]
    for k, row in rows.items():
        assert row["n_runs"] == 1
        assert row["flags"] in (["too-few-runs"], ["client-starved", "too-few-runs"])  # one block; a busy machine
        assert len(row["acceptance"]) == k
        total = 1 + sum(position["value"] for position in row["acceptance"])
        assert row["acceptance_length"]["value"] == pytest.approx(total, abs=1e-9)
        assert row["power_w"]["value"] is None
        assert row["decode_tok_s"]["value"] == pytest.approx(
            1000 * row["tokens_per_step"]["value"] / row["cycle_ms"]["value"], rel=1e-6
        )
    assert rows[0]["acceptance_length"]["value"] == 1.0
    assert rows[0]["acceptance_rate"]["value"] is None
    assert rows[3]["tokens_per_step"]["value"] > rows[1]["tokens_per_step"]["value"] > 1.2


def test_fit_has_no_interval_without_degrees_of_freedom(smoke: SmokeSweep) -> None:
    fit = ask(smoke, "fit")
    assert [window["k"] for window in fit["windows"]] == [[1, 3]]
    assert fit["windows"][0]["t_draft_ms"]["low"] is None
    assert fit["windows"][0]["t_draft_ms"]["reason"]
    assert fit["t_verify_base_ms"]["value"] > 0


def test_warm_up_is_stored_and_never_counted(smoke: SmokeSweep) -> None:
    con = queries.connect(smoke.snapshot)
    everything = queries.requests(con, "smoke", phase=None)
    assert (everything["phase"] == "warmup").sum() == 3 * 2
    assert (queries.run_cells(con, "smoke")["n_requests"] == 4).all()


def test_requests_reconcile_with_the_servers_counters(smoke: SmokeSweep) -> None:
    """/metrics before and after MEASURE against the sums of our requests, exactly."""
    con = queries.connect(smoke.snapshot)
    requests, counters = queries.requests(con, "smoke"), queries.counters(con, "smoke")
    counters = counters[(counters["phase"] == "measure") & (counters["span"] == "phase")]
    for run_id, mine in requests.groupby("run_id"):
        rows = counters[counters["run_id"] == run_id]
        gained = (rows["after"] - rows["before"].fillna(0)).groupby(rows["name"]).sum()
        assert gained["vllm:generation_tokens_total"] == mine["output_tokens"].sum()
        assert gained["vllm:prefix_cache_hits_total"] == 0
        if mine["k"].iloc[0] > 0:
            assert gained["vllm:spec_decode_num_drafts_total"] == mine["drafted_steps"].sum()
            assert gained["vllm:spec_decode_num_accepted_tokens_total"] == mine["accepted_tokens"].sum()
        assert gained["vllm:iteration_tokens_total_count"] == mine["steps"].sum() + len(mine)


def test_the_run_says_how_it_was_made(smoke: SmokeSweep) -> None:
    con = queries.connect(smoke.snapshot)
    runs = queries.runs(con, "smoke")
    assert (runs["reported_k"] == runs["k"]).all()
    at_0, at_3 = (runs[runs["k"] == k]["command"].iloc[0] for k in (0, 3))
    assert "speculative" not in at_0
    assert "spec-decode" not in at_0
    assert '"num_speculative_tokens": 3' in at_3
    assert all(Path(path).is_file() for path in runs["log_path"])
    facts = queries.environment(con, "smoke")
    assert set(facts[facts["name"] == "engine_version"]["value"]) == {"0.32.0"}


def test_the_same_name_is_refused(smoke: SmokeSweep) -> None:
    command = [sys.executable, "-m", "backend", "sweep", "data/specs/smoke.toml", "--data", str(smoke.data_dir)]
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert again.returncode == 2
    assert "--resume" in again.stderr
    assert "--as NAME" in again.stderr


def test_forced_starts_agree_and_are_the_measured_steps(smoke: SmokeSweep) -> None:
    """The real engine takes a prefix as prompt and drafts from it as it did within the answer, at every depth.

    An autoregressive drafter cannot be poisoned: the difference on equal starts is exactly 0.
    """
    answer = ask(smoke, "acceptance", "--against", "1")
    for phase in ("measure", "forced"):
        (effect,) = answer[f"depth_effect_{phase}"]
        (position,) = effect["positions"]
        assert (effect["k"], effect["diverged_prompts"], effect["reason"]) == (3, 0, None)
        assert (position["difference"]["value"], position["discordant_starts"]) == (0, 0)
        assert position["difference"]["high"] == pytest.approx(1 - 0.05**0.25)
    assert effect["positions"][0]["shared_starts"] == 4 * 5
    assert effect["shared_share"]["value"] == effect["shared_share_against"]["value"] == 1.0
    con = queries.connect(smoke.snapshot)
    keys = ["k", "prefix_hash"]
    measured = queries_acceptance.starts(con, "smoke").set_index(keys)["accepted_tokens"]
    forced = queries_acceptance.starts(con, "smoke", phase="forced").set_index(keys)["accepted_tokens"]
    both = measured.index.intersection(forced.index)
    assert len(both) > 5
    assert (measured[both] == forced[both]).all()
