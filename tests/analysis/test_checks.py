"""Checks: what each finds, what it leaves alone, and that only K-blind evidence excludes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from backend.analysis.checks import EXCLUDES, exclusions, run_checks
from backend.analysis.checks_runs import best_split, drift, split_null
from backend.simulate import simulate
from backend.truth import FastSweeps, Truth
from tests.analysis.frames import runs, tables

TRUTH = Truth(depths=(0, 1, 3), blocks=3, prompts=8, max_tokens=60, run_sd=0.003)


@pytest.fixture(scope="module")
def data() -> dict[str, pd.DataFrame]:
    return tables(simulate(TRUTH))


def findings(data: dict[str, pd.DataFrame], **changed: pd.DataFrame) -> dict[str, object]:
    used = {**data, **changed}
    found = run_checks(used["run_cell"], requests=used["request"], counters=used["counter"], canary=used.get("canary"))
    return {f.code: f for f in found}


def test_a_clean_sweep_has_no_finding(data: dict[str, pd.DataFrame]) -> None:
    assert findings(data) == {}


@pytest.mark.parametrize(("bounds", "severity"), [(1.0, "warning"), (2.2, "error")])
def test_starved_client(data: dict[str, pd.DataFrame], bounds: float, severity: str) -> None:
    """Just beyond the bound warns; beyond twice the bound the machine was not the sweep's alone, which excludes."""
    late = data["request"].copy()
    victim = late["run_id"].iloc[0]
    late.loc[late["run_id"] == victim, "client_total_s"] += bounds * np.maximum(0.02 * late["client_total_s"], 0.008)
    f = findings(data, request=late)["client-starved"]
    assert f.severity == severity  # type: ignore[attr-defined]
    assert f.figure > 8  # type: ignore[attr-defined]
    assert set(exclusions([f])) == ({victim} if severity == "error" else set())  # type: ignore[list-item]


def test_a_single_late_request_only_warns(data: dict[str, pd.DataFrame]) -> None:
    late = data["request"].copy()
    late.loc[0, "client_total_s"] += 1.0
    f = findings(data, request=late)["client-starved"]
    assert f.severity == "warning"  # type: ignore[attr-defined]
    assert exclusions([f]) == {}  # type: ignore[list-item]


def test_a_client_faster_than_the_engine_is_a_clock_fault(data: dict[str, pd.DataFrame]) -> None:
    assert "clocks-disagree" in findings(data, request=data["request"].assign(client_total_s=0.01))


def test_foreign_traffic(data: dict[str, pd.DataFrame]) -> None:
    counters = data["counter"].copy()
    hit = (counters["name"] == "vllm:generation_tokens_total") & (counters["run_id"] == counters["run_id"].iloc[-1])
    counters.loc[hit, "after"] += 37
    f = findings(data, counter=counters)["foreign-requests"]
    assert (f.figure, f.unit, f.severity) == (37.0, "tokens", "error")  # type: ignore[attr-defined]


def test_lost_tokens_disagree(data: dict[str, pd.DataFrame]) -> None:
    counters = data["counter"].copy()
    hit = (counters["name"] == "vllm:generation_tokens_total") & (counters["run_id"] == counters["run_id"].iloc[-1])
    counters.loc[hit, "after"] -= 100
    found = findings(data, counter=counters)
    assert found["counters-disagree"].figure == -100.0  # type: ignore[attr-defined]
    assert found["rate-identity"].figure < -1  # type: ignore[attr-defined]


def test_a_failed_request_switches_the_foreign_check_off(data: dict[str, pd.DataFrame]) -> None:
    requests = data["request"].copy()
    requests.loc[0, "error"] = "500"
    requests.loc[0, "output_tokens"] = None
    assert "foreign-requests" not in findings(data, request=requests)


def test_canaries() -> None:
    rows = [
        {"run_id": f"r{i}", "node": "n0", "moment": m, "kind": "gemv", "duration_s": 1.0, "reason": None}
        for i in range(4)
        for m in ("before", "after")
    ]
    rows[3]["duration_s"] = 3.3
    found = {(f.run_id, f.code): f for f in run_checks(runs({0: [1.0]}), canary=pd.DataFrame(rows))}
    assert found[("r1", "canary-slow")].figure == pytest.approx(230.0)
    assert found[("r1", "canary-changed")].figure == pytest.approx(230.0)
    assert {run for run, code in found if code.startswith("canary")} == {"r1"}


def test_drift_is_seen_with_its_size_and_only_warns() -> None:
    frame = FastSweeps(Truth(drift=0.05, blocks=5, run_sd=0.003), 1).frame(0)
    f = next(f for f in run_checks(frame) if f.code == "drift")
    assert f.severity == "warning"
    assert f.figure == pytest.approx(-4.8, abs=0.8)
    assert exclusions([f]) == {}
    assert (
        drift(FastSweeps(Truth(run_sd=0.003), 1).frame(0)).low
        < 0
        < drift(  # type: ignore[operator]
            FastSweeps(Truth(run_sd=0.003), 1).frame(0)
        ).high
    )  # type: ignore[operator]
    assert "six runs" in (drift(runs({0: [1.0], 1: [2.0]})).reason or "")


def test_anchors() -> None:
    frame = runs({0: [10.0], 1: [12.0]})
    anchors = frame[frame["k"] == 0]
    both = pd.concat(
        [
            frame,
            anchors.assign(role="anchor", order_index=-1, run_id="a0"),
            anchors.assign(role="anchor", order_index=9, run_id="a1", decode_tok_s=9.0),
        ]
    )
    f = next(f for f in run_checks(both) if f.code == "anchor-drift")
    assert f.figure == pytest.approx(-10.0)
    still = both.assign(decode_tok_s=lambda d: np.where(d["run_id"] == "a1", 9.9, d["decode_tok_s"]))
    assert "anchor-drift" not in {f.code for f in run_checks(still)}


def test_too_few_runs_names_the_depths() -> None:
    f = next(f for f in run_checks(runs({0: [10.0] * 3, 2: [20.0]})) if f.code == "too-few-runs")
    assert (f.figure, f.severity) == (1.0, "warning")
    assert "K=2: 1" in f.message
    assert "K=0" not in f.message


def test_spread_points_at_the_furthest_run() -> None:
    f = next(f for f in run_checks(runs({0: [10.0, 10.1, 9.9], 2: [20.0, 20.2, 15.0]})) if f.code == "spread")
    assert f.run_id == "s:b2k2"
    assert f.figure > 5  # type: ignore[operator]


def test_two_states() -> None:
    frame = FastSweeps(Truth(blocks=5, run_sd=0.01, slow_share=0.25, slow_factor=1.4, seed=3), 1).frame(0)
    f = next(f for f in run_checks(frame) if f.code == "two-states")
    assert f.figure == pytest.approx(40, abs=8)
    assert f.severity == "warning"


def test_two_states_are_rarely_seen_where_there_is_one() -> None:
    seen = sum(
        "two-states" in {f.code for f in run_checks(frame)}
        for frame in FastSweeps(Truth(blocks=4, run_sd=0.03), 60).frames()
    )
    assert seen <= 4


def test_best_split_by_hand() -> None:
    share, at = best_split(np.array([[0.0, 0.0, 0.0, 1.0, 1.0, 1.0], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]]))
    assert share[0] == pytest.approx(1.0)
    assert at[0] == 3
    assert share[1] == pytest.approx(1 - 4 / 17.5)
    assert split_null(12).shape == (2000,)


def test_every_finding_says_what_to_do(data: dict[str, pd.DataFrame]) -> None:
    broken = data["request"].assign(client_total_s=99.0, accepted_tokens=10**6)
    found = run_checks(data["run_cell"], requests=broken, counters=data["counter"])
    assert found
    for f in found:
        assert f.message
        assert f.action
        assert f.code == f.code.lower()
        assert (f.code in EXCLUDES) or f.severity != "error"
    assert len({(f.run_id, f.cell_id, f.code) for f in found}) == len(found)
