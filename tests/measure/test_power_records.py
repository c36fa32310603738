"""Samples of nodes as records: on our clock, each sensor its own row, and batches that a fault of the journal ends."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from backend.errors import StoreError
from backend.measure import power
from backend.measure.nodes import NodeAgent
from backend.measure.power import Recorder, samples_of
from backend.records import PowerSample, Record

SAMPLE: dict[str, Any] = {
    "t_unix_s": 1000.5,
    "gpu": {"temp_c": 61, "sm_clock_mhz": 2405, "utilization_percent": 96, "throttle": "sw_thermal"},
    "sensors": [
        ["gpu", "nvml", 31.5, None, None],
        ["soc", "hwmon", 40.0, 7000.0, None],
        ["wall", "meter", None, None, "off"],
    ],
    "memory_available_bytes": 5 << 30,
}


def node(name: str, offset_s: float = 0.0) -> NodeAgent:
    """As much of an agent as the recorder looks at."""
    return cast(NodeAgent, SimpleNamespace(node=SimpleNamespace(name=name), offset_s=offset_s))


def test_both_nodes_are_on_our_clock() -> None:
    """Node b's clock is 2.5 s ahead: two readings of one moment get one time."""
    late = {**SAMPLE, "t_unix_s": 1003.0}
    ours = [sample.t_unix_s for sample in samples_of("r", "a", SAMPLE, 0.0)]
    theirs = [sample.t_unix_s for sample in samples_of("r", "b", late, 2.5)]
    assert ours == theirs == [1000.5] * 3


def test_every_sensor_has_a_row_and_a_missing_reading_its_reason() -> None:
    gpu, soc, wall = samples_of("r", "a", SAMPLE, 0.0)
    assert gpu == PowerSample("r", "a", 1000.5, 31.5, None, 61, 2405, "gpu", "nvml", None)
    assert (soc.power_w, soc.energy_j, soc.source) == (40.0, 7000.0, "hwmon")
    assert (wall.power_w, wall.energy_j, wall.unsupported_reason) == (None, None, "off")


def test_what_is_read_beside_power_is_summed_up_per_node() -> None:
    recorder = Recorder("r", lambda _records: None)
    for throttle, busy in (("sw_thermal", 96), ("", 90), ("", 92), ("sw_thermal,hw_slowdown", 94)):
        gpu = {**SAMPLE["gpu"], "throttle": throttle, "utilization_percent": busy}
        recorder.take(node("a"), {**SAMPLE, "gpu": gpu})
    recorder.take(node("b"), {**SAMPLE, "gpu": {}, "memory_available_bytes": None})
    facts = {(fact.node, fact.name): fact.value for fact in recorder.facts()}
    assert facts["a", "gpu_throttled"] == "hw_slowdown 25%, sw_thermal 50%"
    assert facts["a", "gpu_utilization_median_percent"] == "93"
    assert facts["a", "memory_available_min_bytes"] == str(5 << 30)
    assert {value for (name, _), value in facts.items() if name == "b"} == {None}  # unknown, not 0 and not "never"


def test_batches_and_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written for each sample; what the journal raised on a listener's thread is raised by flush."""
    kept: list[Record] = []
    full = False

    def append(records: Sequence[Record]) -> None:
        if full:
            raise StoreError("cannot be written: No space left on device")
        kept.extend(records)

    recorder = Recorder("r", append)
    recorder.take(node("a"), SAMPLE)
    assert kept == []
    recorder.flush()
    assert len(kept) == 3
    full = True
    monkeypatch.setattr(power, "FLUSH_S", -1.0)
    recorder.take(node("a"), SAMPLE)
    with pytest.raises(StoreError, match="No space left"):
        recorder.flush()
