"""The node agent as a subprocess at home: what it says of the node, what it reads, and how it ends.

NVML is played from tests/golden/nvml, whose files say that they were constructed from the known facts.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from backend.engines.ssh import Piped
from backend.errors import NodeError
from backend.measure import agent_canary, agent_facts, agent_sensors, nodes
from backend.spec_nodes import Node
from tests.measure.agents import HERE, REPLAYS, agent, eventually, play


def test_every_played_behaviour_says_where_it_is_from() -> None:
    for path in REPLAYS.glob("*.json"):
        assert json.loads(path.read_text())["made"].startswith("constructed"), path


def test_the_replay_has_every_name_the_agent_calls() -> None:
    called = set(re.findall(r"\bnvml[A-Z]\w+|\bNVML_[A-Z_]+", Path(agent_sensors.__file__).read_text()))
    played = (HERE / "nvml_replay" / "pynvml.py").read_text()
    assert {name for name in called if not re.search(rf'^{name} =|"{name}":', played, re.MULTILINE)} == set()


def test_gb10_readings_are_values_or_unsupported_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "gb10")
    with agent() as here:
        facts, sample = here.hello["facts"], here.hello["sample"]
    assert here.hello["unsupported"] == {"energy_j": "Not Supported"}
    assert facts["gpu_memory_total_bytes"] == facts["gpu_power_limit_w"] == "unsupported: Not Supported"
    assert (facts["gpu_name"], facts["gpu_driver"], facts["gpu_pstate"]) == ("NVIDIA GB10", "580.95.05", "P0")
    ((scope, source, power_w, energy_j, reason),) = sample["sensors"]
    assert (scope, source, energy_j, reason) == ("gpu", "nvml", None, None)
    assert 30 < power_w < 34
    assert sample["gpu"] == {"temp_c": 61, "sm_clock_mhz": 2405, "utilization_percent": 96, "throttle": ""}
    assert sample["memory_available_bytes"] > 1 << 20


def test_several_gpus_add_up_and_the_slowest_clock_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "discrete")
    with agent() as here:
        sample, facts = here.hello["sample"], here.hello["facts"]
    assert here.hello["unsupported"] == {}
    assert 2 * 398 <= sample["sensors"][0][2] <= 2 * 423
    assert sample["sensors"][0][3] >= 2 * 9_000_000
    assert (sample["gpu"]["sm_clock_mhz"], sample["gpu"]["temp_c"]) == (1965, 51)
    assert facts["gpu_memory_total_bytes"] == str(141 << 30)  # the same on both: said once
    with agent(env={"CUDA_VISIBLE_DEVICES": "1"}) as second:
        assert second.hello["facts"]["gpu_count"] == "1"
        assert second.hello["facts"]["gpu_uuid"].endswith("01")


@pytest.mark.parametrize(("name", "why"), [("no_driver", "NVML: Driver Not Loaded"), ("", "pynvml is not installed")])
def test_without_nvml_there_is_the_reason_and_no_zero(monkeypatch: pytest.MonkeyPatch, name: str, why: str) -> None:
    if name:
        play(monkeypatch, name)
    else:
        monkeypatch.setenv("PYTHONPATH", "")
    with agent(**({} if name else {"python": f"{sys.executable}"})) as here:
        ((_, _, power_w, energy_j, reason),) = here.hello["sample"]["sensors"]
    assert (power_w, energy_j) == (None, None)
    assert reason.startswith(why)
    assert here.hello["facts"]["gpu"] == f"unsupported: {reason}"


def test_hwmon_and_rapl_counters_by_what_they_cover(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """spark_hwmon's labels: of two for the whole machine the input counts; package power and energy are one sensor."""
    chip = tmp_path / "class/hwmon/hwmon3"
    rows = {
        "power1": ("sys_total", 52_000_000),
        "power7": ("dc_input", 55_500_000),
        "power2": ("soc_pkg", 40_000_000),
        "power5": ("cpu_p", 9_000_000),
        "energy1": ("pkg", 7_000_000_000),
    }
    chip.mkdir(parents=True)
    for stem, (label, value) in rows.items():
        (chip / f"{stem}_label").write_text(f"{label}\n")
        (chip / f"{stem}_input").write_text(f"{value}\n")
    for index in range(2):
        zone = tmp_path / f"class/powercap/intel-rapl:{index}"
        zone.mkdir(parents=True)
        (zone / "name").write_text(f"package-{index}\n")
        (zone / "energy_uj").write_text("3000000\n")
    monkeypatch.setenv("SOUNDING_SYS", str(tmp_path))
    with agent() as here:
        found = {(scope, source): rest for scope, source, *rest in here.hello["sample"]["sensors"]}
        (chip / "power7_input").unlink()
        gone = here.ask("facts") and None
    del found[("gpu", "nvml")]
    assert gone is None
    assert found == {
        ("node", "hwmon"): [55.5, None, None],
        ("soc", "hwmon"): [40.0, 7000.0, None],
        ("cpu", "powercap"): [None, 6.0, None],
    }


def test_a_wall_meter_is_a_program_that_prints(tmp_path: Path) -> None:
    meter = tmp_path / "meter.py"
    meter.write_text("import time\nfor i in range(3):\n  print(80 + i, 1000 + 80 * i, flush=True); time.sleep(0.3)\n")
    seen: list[dict[str, Any]] = []
    with agent(lambda _agent, sample: seen.append(sample), wall_meter=(sys.executable, str(meter))) as here:
        here.ask("sample", period_s=0.05)
        eventually(lambda: seen and "ended" in (seen[-1]["sensors"][-1][4] or ""))
    walls = [sample["sensors"][-1] for sample in seen]
    assert ["wall", "meter", 82.0, 1160.0, None] in walls
    assert walls[-1] == ["wall", "meter", None, None, "the meter's program ended (0)"]


def test_sampling_keeps_its_beat_and_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "gb10")
    seen: list[float] = []
    with agent(lambda _agent, sample: seen.append(sample["t_unix_s"])) as here:
        here.ask("sample", period_s=0.1)
        eventually(lambda: len(seen) >= 8)
        here.ask("sample", period_s=0)
        time.sleep(0.3)
        stopped = len(seen)
        time.sleep(0.3)
    assert len(seen) == stopped
    assert min(b - a for a, b in itertools.pairwise(seen)) > 0.02
    assert (seen[7] - seen[0]) / 7 == pytest.approx(0.1, rel=0.5)


def test_canary_says_which_and_measures_the_power_period(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "discrete")  # its power changes every 0.1 s
    with agent(python=sys.executable) as here:
        for _ in range(5):  # on a busy machine a canary may see too few readings to measure their period
            answer = here.ask("canary", 60)
            if answer["power_period"][1] is None:
                break
    kinds = {each["kind"]: each["duration_s"] for each in answer["canaries"]}
    assert list(kinds) == ["gemv 2048 float32 numpy cpu", "copy 16 MiB cpu"]
    assert all(0 < duration_s < 5 for duration_s in kinds.values())
    period_s, why = answer["power_period"]
    assert why is None
    assert period_s == pytest.approx(0.1, rel=0.9)


def test_canary_without_numpy_is_plain_python_and_says_so() -> None:
    source = Path(agent_canary.__file__).read_text().replace("CPU_REPEATS = 60, 60", "CPU_REPEATS = 60, 2")
    done = subprocess.run([sys.executable, "-I", "-S", "-c", source], capture_output=True, text=True, check=True)
    assert [each["kind"] for each in json.loads(done.stdout)] == ["gemv 256 float64 plain python", "copy 16 MiB cpu"]


def test_a_canary_that_cannot_run_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise RuntimeError('broken numpy')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with agent() as here, pytest.raises(NodeError, match="broken numpy"):
        here.ask("canary", 60)


def test_clock_offset_at_home_is_within_the_round_trip() -> None:
    with agent() as here:
        assert here.round_trip_s is not None
        assert abs(here.offset_s) <= here.round_trip_s


def test_it_ends_by_itself_when_nobody_speaks() -> None:
    """The deadman: its input stays open, as over a cut link, but no word comes."""
    config = json.dumps({"deadman_s": 0.5})
    program = Piped(Node(name="here"), nodes.program(), config, name="agent.py")
    assert b"hello" in (program.line(20) or b"")
    began = time.monotonic()
    assert program.line(20) is None  # its output ends
    assert 0.3 < time.monotonic() - began < 15
    assert program.ended(5)[0] == 3


def test_we_keep_it_alive_beyond_its_deadman() -> None:
    with agent(deadman_s=2) as here:
        time.sleep(3)
        assert here.ask("ping")["t_unix_s"] == pytest.approx(time.time(), abs=5)


def test_a_killed_agent_is_lost_with_the_reason_and_asking_says_so() -> None:
    with agent() as here:
        here._program._process.kill()
        eventually(lambda: here.lost)
        with pytest.raises(NodeError, match="here: the link to its agent ended"):
            here.ask("ping")


def test_closing_does_not_wait_for_an_answer() -> None:
    """An interruption in the middle of a canary: who asked is told at once."""
    with agent() as here, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(here.ask, "canary", 120)
        time.sleep(0.3)
        began = time.monotonic()
        here.close()
        with pytest.raises(NodeError, match="its agent was ended by us"):
            asking.result(10)
    assert time.monotonic() - began < 5


def test_a_python_that_is_not_there_is_one_clear_line() -> None:
    with pytest.raises(NodeError, match="here: cannot start no-such-python"), agent(python="no-such-python"):
        pass


def test_model_digest_finds_one_changed_byte(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text('{"dspark_block_size": 7}')
        (tmp_path / name / "model.safetensors").write_bytes(b"\0" * 3_000_000)
    with agent() as here:

        def digest(name: str) -> str:
            return str(here.ask("model", folder=str(tmp_path / name), whole_bytes=1 << 30)["digest"])

        same = digest("a") == digest("b")
        with (tmp_path / "b" / "model.safetensors").open("r+b") as file:
            file.seek(1_500_000)
            file.write(b"\1")
        answer = here.ask("model", folder=str(tmp_path / "a"), whole_bytes=1 << 30)
        assert (same, digest("a") == digest("b")) == (True, False)
        assert (answer["weights_bytes"], answer["config"], answer["whole"]) == (
            3_000_000,
            {"dspark_block_size": 7},
            True,
        )
        assert here.ask("model", folder=str(tmp_path / "none"), whole_bytes=1) == {"exists": False}


def test_released_and_alive(tmp_path: Path) -> None:
    mark = f"SOUNDING_TEST={tmp_path}"
    with (
        agent() as here,
        subprocess.Popen(["sleep", "30"], env={"SOUNDING_TEST": str(tmp_path), "PATH": "/usr/bin:/bin"}) as process,
    ):
        left = eventually(lambda: here.ask("released", port=1, mark=mark)["processes"])
        assert left == [{"pid": process.pid, "program": "sleep"}]
        assert here.ask("alive", pid=process.pid, start_ticks=None) is True
        assert here.ask("alive", pid=process.pid, start_ticks=1) is False  # another process of that number
        process.kill()
        process.wait()
        assert here.ask("alive", pid=process.pid, start_ticks=None) is False
        assert here.ask("released", port=1, mark=mark)["processes"] == []


def test_a_process_that_is_just_starting_is_named_by_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """It carries its parent's name until its program starts, which here happens right after its name was read."""
    becoming = "import os; os.read(0, 1); os.execve('/bin/sleep', ['sleep', '30'], {'SOUNDING_TEST': 'starting'})"
    with subprocess.Popen([sys.executable, "-c", becoming], stdin=subprocess.PIPE) as process:
        assert process.stdin
        let_it_start = process.stdin.close

        def start_once_named(path: str | Path) -> str | None:
            name = agent_sensors.text(path)
            if str(path) == f"/proc/{process.pid}/comm":
                let_it_start()
                eventually(lambda: agent_sensors.text(path) == "sleep")
            return name

        with monkeypatch.context() as patched:
            patched.setattr(agent_facts, "text", start_once_named)
            assert list(agent_facts.programs("SOUNDING_TEST=starting")) == []  # it has no such environment yet
        let_it_start()
        assert eventually(lambda: list(agent_facts.programs("SOUNDING_TEST=starting"))) == [(process.pid, "sleep")]
        assert list(agent_facts.programs("SOUNDING_TEST=start")) == []  # another value
        process.kill()
