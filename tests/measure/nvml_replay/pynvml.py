"""Plays recorded NVML behaviours under the name of the real bindings; put its folder on an agent's PYTHONPATH.

NVML_REPLAY names a JSON file (tests/golden/nvml). A reading there is a value, {"error": words}, {"cycle": [values],
"each_s": s} (a sensor that updates so often), {"from": v, "per_s": r} (a counter) or {"phases": [[s, reading], ...]}.
Functions and constants are those of nvidia-ml-py that the agent calls, and no other.
"""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NVML_TEMPERATURE_GPU = 0
NVML_CLOCK_SM = 1
BEGAN_S = time.monotonic()
PLAYED: dict[str, Any] = {}
READINGS = {  # function -> key of a device in the file
    "nvmlDeviceGetName": "name",
    "nvmlDeviceGetUUID": "uuid",
    "nvmlDeviceGetVbiosVersion": "vbios",
    "nvmlDeviceGetMemoryInfo": "memory",
    "nvmlDeviceGetEnforcedPowerLimit": "power_limit_mw",
    "nvmlDeviceGetMaxClockInfo": "sm_clock_max_mhz",
    "nvmlDeviceGetPerformanceState": "pstate",
    "nvmlDeviceGetPowerUsage": "power_mw",
    "nvmlDeviceGetTotalEnergyConsumption": "energy_mj",
    "nvmlDeviceGetTemperature": "temp_c",
    "nvmlDeviceGetClockInfo": "sm_clock_mhz",
    "nvmlDeviceGetUtilizationRates": "utilization_percent",
    "nvmlDeviceGetCurrentClocksEventReasons": "throttle_bits",
    "nvmlDeviceGetComputeRunningProcesses": "compute_pids",
}
WRAPPED = {  # what the bindings return as an object
    "memory": lambda value: SimpleNamespace(**value),
    "utilization_percent": lambda value: SimpleNamespace(gpu=value),
    "compute_pids": lambda pids: [SimpleNamespace(pid=pid) for pid in pids],
}


class NVMLError(Exception):
    """What the driver answers instead of a value."""


def now(reading: Any) -> Any:
    """The reading at this moment. Raises NVMLError."""
    age_s = time.monotonic() - BEGAN_S
    if not isinstance(reading, dict):
        return reading
    if "error" in reading:
        raise NVMLError(reading["error"])
    if "cycle" in reading:
        return reading["cycle"][int(age_s / reading["each_s"]) % len(reading["cycle"])]
    if "phases" in reading:
        return now(next(part for until_s, part in reading["phases"] if until_s is None or age_s < until_s))
    if "per_s" in reading:
        return int(reading["from"] + reading["per_s"] * age_s)
    return reading


def read(key: str, device: dict[str, Any], *_which: int) -> Any:
    """One reading of one device."""
    value = now(device[key])
    return WRAPPED[key](value) if key in WRAPPED else value


def init() -> None:
    """Load the file; its "init" may be an error."""
    PLAYED.update(json.loads(Path(os.environ["NVML_REPLAY"]).read_text(encoding="utf-8")))
    now(PLAYED.get("init"))


globals().update({name: partial(read, key) for name, key in READINGS.items()})
globals().update(
    {
        "nvmlInit": init,
        "nvmlDeviceGetCount": lambda: len(PLAYED["devices"]),
        "nvmlDeviceGetHandleByIndex": lambda index: PLAYED["devices"][index],
        "nvmlSystemGetDriverVersion": lambda: now(PLAYED["driver"]),
    }
)
