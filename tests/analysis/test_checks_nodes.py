"""Hidden machine states: canaries against the node's own history, clocks under load; nothing else excludes a run."""

from __future__ import annotations

import pandas as pd
import pytest

from backend.analysis.checks import exclusions
from backend.analysis.checks_nodes import canary_findings, clock_findings

GEMV = "gemv 8192 float16 torch cuda"


def canaries(
    times: dict[str, tuple[float, float]], node: str = "a", kind: str = GEMV, sweep: str = "s"
) -> pd.DataFrame:
    """run -> (before, after) in ms."""
    return pd.DataFrame(
        [
            {"run_id": f"{sweep}:{run}", "node": node, "moment": moment, "kind": kind, "duration_s": ms / 1000}
            for run, pair in times.items()
            for moment, ms in zip(("before", "after"), pair, strict=True)
        ]
    )


def test_a_slow_product_excludes_the_run_though_the_copy_is_as_ever() -> None:
    """GB10's power fault: the product 3.3 times slower, the copy not."""
    times = {"r0": (0.50, 0.50), "r1": (0.51, 0.50), "r2": (0.50, 0.50), "r3": (1.65, 1.66)}
    copy = canaries(dict.fromkeys(times, (0.9, 0.9)), kind="copy 128 MiB torch cuda")
    found = canary_findings(pd.concat([canaries(times), copy]), "s")
    assert [(f.run_id, f.code, f.severity) for f in found] == [("s:r3", "canary-slow", "error")]
    assert found[0].figure == pytest.approx(231, abs=3)
    assert "power supply off the wall" in found[0].action
    assert list(exclusions(found)) == ["s:r3"]


def test_earlier_sweeps_are_the_history_of_a_first_run() -> None:
    now, before = canaries({"r0": (0.8, 0.8)}), canaries({f"r{i}": (0.5, 0.5) for i in range(4)}, sweep="old")
    assert canary_findings(now, "s") == []
    assert [(f.run_id, round(f.figure or 0)) for f in canary_findings(now, "s", before)] == [("s:r0", 60)]
    assert canary_findings(now, "s", before.assign(node="another")) == []
    assert canary_findings(now, "s", before.assign(kind="gemv 2048 float32 numpy cpu")) == []


def test_a_change_during_the_run_needs_no_history() -> None:
    (found,) = canary_findings(canaries({"r0": (0.5, 0.7)}), "s")
    assert (found.code, round(found.figure or 0)) == ("canary-changed", 40)


def test_a_canary_that_scatters_inside_its_runs_proves_nothing() -> None:
    """A shared CPU: 20% up and down within every run, so 40% more than usual is no evidence."""
    noisy = {f"r{i}": (0.5, 0.6) if i % 2 else (0.6, 0.5) for i in range(6)}
    assert canary_findings(canaries({**noisy, "r9": (0.75, 0.7)}), "s") == []
    found = canary_findings(canaries({**noisy, "r9": (1.9, 1.8)}), "s")
    assert [(f.run_id, f.code) for f in found] == [("s:r9", "canary-slow")]


def test_a_canary_on_the_cpu_needs_more() -> None:
    """It shares the cores with the idle server beside it."""
    assert canary_findings(canaries({"r0": (0.5, 0.6)}, kind="gemv 2048 float32 numpy cpu"), "s") == []
    (found,) = canary_findings(canaries({"r0": (0.5, 0.7)}, kind="copy 16 MiB cpu"), "s")
    assert found.code == "canary-changed"


def test_two_states_over_runs_are_not_taken_for_scatter() -> None:
    times = {f"r{i}": (0.5, 0.5) if i < 4 else (0.75, 0.75) for i in range(7)}
    assert {f.run_id for f in canary_findings(canaries(times), "s")} == {"s:r4", "s:r5", "s:r6"}


def test_two_slow_nodes_are_one_finding_of_the_run() -> None:
    times = {"r0": (0.5, 0.5), "r1": (0.5, 0.5), "r2": (0.5, 0.5), "r3": (1.0, 1.0)}
    (found,) = canary_findings(pd.concat([canaries(times), canaries({**times, "r3": (2.0, 2.0)}, node="b")]), "s")
    assert round(found.figure or 0) == 300
    assert "on a took 100%" in found.message
    assert "on b took 300%" in found.message


def test_a_canary_without_a_value_says_nothing() -> None:
    frame = canaries({"r0": (0.5, 0.5)}).assign(duration_s=None)
    assert canary_findings(frame, "s") == []


def run(
    clock_mhz: float | None, busy: str | None = "96", throttled: str | None = "never", top: str = "3003"
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Samples, facts and requests of one run of one node, measured from second 10 to 20."""
    samples = pd.DataFrame(
        {
            "run_id": "s:r0",
            "node": "a",
            "t_unix_s": [float(t) for t in range(30)],
            "sm_clock_mhz": [210.0 if t < 10 or t > 20 else clock_mhz for t in range(30)],
        }
    )
    facts = {
        "gpu_utilization_median_percent": busy,
        "gpu_throttled": throttled,
        "gpu_sm_clock_max_mhz": top,
        "gpu_name": "NVIDIA GB10",
    }
    rows = [{"run_id": "s:r0", "node": "a", "name": name, "value": value} for name, value in facts.items()]
    requests = pd.DataFrame([{"run_id": "s:r0", "phase": "measure", "started_unix_s": 10.0, "client_total_s": 10.0}])
    return samples, pd.DataFrame(rows), requests


@pytest.mark.parametrize("top", ["3003", "unsupported: Not Supported"])
def test_clocks_stuck_low_at_high_utilisation_without_a_flag(top: str) -> None:
    (found,) = clock_findings(*run(655, top=top), "s")
    assert (found.code, found.severity, found.figure) == ("clocks-stuck", "error", 655)
    assert "without a throttle flag" in found.message
    assert "off the wall" in found.action
    assert list(exclusions([found])) == ["s:r0"]


def test_a_healthy_run_an_idle_gpu_and_unreadable_ones_say_nothing() -> None:
    """Idle clocks outside MEASURE do not count; an idle GPU may clock as low as it likes."""
    for case in (run(2405), run(300, busy="4"), run(655, busy=None), run(None)):
        assert clock_findings(*case, "s") == []


def test_throttling_is_named() -> None:
    (warned,) = clock_findings(*run(2300, throttled="hw_thermal 2%, sw_thermal 40%"), "s")
    assert (warned.code, warned.severity) == ("clocks-throttled", "warning")
    assert exclusions([warned]) == {}
    (stopped,) = clock_findings(*run(900, throttled="hw_slowdown 100%"), "s")
    assert (stopped.code, stopped.severity) == ("clocks-throttled", "error")
    assert clock_findings(*run(2405, throttled="sw_thermal 2%"), "s") == []
