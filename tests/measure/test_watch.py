"""Nodes watched during whole sweeps of the stand-in: what is stored, what excludes a run, what only warns.

The node is this machine with a played NVML (tests/golden/nvml).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend import sweep as sweep_module
from backend.engines import session
from backend.progress import Progress
from backend.records import Canary, Environment, PowerSample
from backend.store import connection, queries
from tests.measure.agents import play
from tests.sweep.harness import failures, findings, records, runs, sweep

Write = Callable[..., Path]
SPARK = f"""
[nodes.agent]
period_s = 0.05
canary = CANARY
[[node]]
name = "spark-a"
python = "{sys.executable}"
"""


@pytest.fixture
def spec(standin_spec: Write) -> Iterator[Callable[..., Path]]:
    """A spec of the stand-in with one node; exclusions by what a busy test machine does are left out."""
    judge = sweep_module.exclusions
    ours = ("clocks-stuck", "clocks-throttled")

    def write(*, canary: bool = False, nodes: str = SPARK, **changes: object) -> Path:
        path = standin_spec(**{"depths": (1,), "prompts": 8, **changes})
        path.write_text(path.read_text() + nodes.replace("CANARY", str(canary).lower()))
        return path

    sweep_module.exclusions = lambda found: judge(f for f in found if f.code in ours)
    yield write
    sweep_module.exclusions = judge


def facts(data: Path, node: str = "spark-a") -> dict[str, str | None]:
    """The last value of every fact of a node."""
    return {r.name: r.value for r in records(data) if isinstance(r, Environment) and r.node == node}


def test_a_watched_run_has_power_clocks_facts_and_canaries(
    spec: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, "gb10")
    data = tmp_path / "data"
    path = spec(canary=True, fault="slow ms=20")
    assert sweep(path, data).exit_code == 0
    samples = [record for record in records(data) if isinstance(record, PowerSample)]
    assert {(s.node, s.scope, s.source, s.sm_clock_mhz, s.energy_j) for s in samples} == {
        ("spark-a", "gpu", "nvml", 2405, None)
    }
    flown = [(c.moment, c.kind, c.reason) for c in records(data) if isinstance(c, Canary)]
    assert flown == [
        (moment, kind, None)
        for moment in ("before", "after")
        for kind in ("gemv 2048 float32 numpy cpu", "copy 16 MiB cpu")
    ]
    seen = facts(data)
    assert (seen["gpu_name"], seen["nvml_energy_j"]) == ("NVIDIA GB10", "unsupported: Not Supported")
    assert (seen["gpu_throttled"], seen["gpu_utilization_median_percent"]) == ("never", "96")
    assert abs(float(seen["clock_offset_s"] or "nan")) < 0.1
    assert seen["engine_version"] == "0.32.0-standin"  # this machine's facts stand under the node's name
    con = connection.open_snapshot(data / "results.duckdb")
    (row,) = queries.run_cells(con, "quick").to_dict("records")
    con.close()
    assert 29 < row["power_w"] < 35
    assert not findings(data, "node-unwatched")


def test_without_nodes_nothing_is_watched(standin_spec: Write, tmp_path: Path, spec: Callable[..., Path]) -> None:
    path = standin_spec(depths=(1,))
    assert sweep(path, tmp_path / "data").exit_code == 0
    assert not [r for r in records(tmp_path / "data") if isinstance(r, PowerSample | Canary)]


def test_clocks_stuck_low_exclude_the_run_and_name_the_cure(
    spec: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """480-860 MHz at 96% utilisation with no throttle flag: repeated once, then reported as missing."""
    play(monkeypatch, "gb10_stuck_low")
    data = tmp_path / "data"
    outcome = sweep(spec(fault="slow ms=15", server_retries=1), data)
    assert outcome.exit_code == 3
    assert [(run.status, run.valid) for run in runs(data)] == [("done", False)] * 2
    assert "clocks-stuck: spark-a: SM clock" in (runs(data)[0].exclusion_reason or "")
    (first, second) = findings(data, "clocks-stuck")
    assert 480 < (first.figure or 0) < 860
    assert "power supply off the wall" in second.action


def test_power_that_goes_missing_in_the_middle_gives_no_figure(
    spec: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first readings are kept, the rest has its reason, and no half is taken for the whole."""
    play(monkeypatch, "gb10_power_gap")  # its power is lost two seconds after the agent's start
    data = tmp_path / "data"
    assert sweep(spec(fault="slow ms=60", prompts=10), data).exit_code == 0
    samples = [record for record in records(data) if isinstance(record, PowerSample)]
    whole, lost = ([s for s in samples if (s.power_w is None) is gone] for gone in (False, True))
    assert len(whole) > 5
    assert {s.unsupported_reason for s in lost} == {"GPU is lost"}
    con = connection.open_snapshot(data / "results.duckdb")
    found = queries.findings(con, "quick")
    con.close()
    (missing,) = found[found["code"] == "power-missing"].to_dict("records")
    assert "readings are missing" in missing["message"]


def test_an_agent_lost_in_mid_run_flags_the_run_and_keeps_what_it_gave(
    spec: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, "gb10")
    data = tmp_path / "data"

    def cut(now: Progress) -> None:
        if now.phase == "measure" and now.requests_done == 4:
            for pid in own_agents():
                os.kill(pid, signal.SIGKILL)

    assert sweep(spec(canary=True, fault="slow ms=30"), data, listener=cut).exit_code == 0
    (found,) = findings(data, "agent-lost")
    assert "spark-a was lost from sight" in found.message
    assert [run.valid for run in runs(data)] == [True]
    assert len([r for r in records(data) if isinstance(r, PowerSample)]) >= 4
    assert {c.moment for c in records(data) if isinstance(c, Canary)} == {"before"}


def own_agents() -> list[int]:
    """Agents that this process started."""
    found = []
    for pid in session.processes():
        line = Path(f"/proc/{pid}/cmdline")
        try:
            words, parent = line.read_bytes(), Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if b"agent.py" in words and int(parent) == os.getpid():
            found.append(pid)
    return found


def test_an_unreachable_node_is_a_finding_and_the_run_goes_on(spec: Callable[..., Path], tmp_path: Path) -> None:
    data = tmp_path / "data"
    path = spec(nodes='[[node]]\nname = "spark-a"\npython = "no-such-python"\n')
    assert sweep(path, data).exit_code == 0
    (found,) = findings(data, "node-unwatched")
    assert "spark-a was not watched: cannot start no-such-python" in found.message
    assert own_agents() == []


PAIR = """
[nodes]
roce = true
[nodes.agent]
on = false
[[node]]
name = "spark-a"
address = "10.77.0.1"
[[node]]
name = "spark-b"
host = "spark-b.invalid"
address = "10.77.0.2"
"""


@pytest.mark.parametrize(
    ("says", "fault"),
    [
        ("NCCL INFO NET/Socket : Using [0]enP7s7:10.77.1.1<0>", "NCCL fell back to TCP (NET/Socket)"),
        ("NCCL INFO NET/IB : Using [0]rocep1s0f0:1/RoCE [RO]; OOB enP7s7:10.77.1.1<0>", ""),
        ("INFO: loading", "does not say which network NCCL uses"),
    ],
)
def test_roce_asked_is_roce_or_no_measurement(spec: Callable[..., Path], tmp_path: Path, says: str, fault: str) -> None:
    """NCCL falls back to TCP without an error; its log is read before anything is measured."""
    data, path = tmp_path / "data", spec(nodes=PAIR, server_retries=0)
    text = path.read_text()
    start = text.index('argv = ["') + len("argv = [")
    shell = f'"sh", "-c", "echo \'{says}\'; exec \\"$0\\" \\"$@\\"", '
    path.write_text(text[:start] + shell + text[start:])
    outcome = sweep(path, data)
    assert outcome.exit_code == (3 if fault else 0)
    assert [fault in failure.reason and failure.kind == "transport" for failure in failures(data)] == [True] * bool(
        fault
    )
    assert bool([r for r in records(data) if type(r).__name__ == "Request"]) is not bool(fault)
