"""What the node agent reads at every sample: GPUs by NVML, hwmon and RAPL counters, a wall meter, free memory.

Part of the agent (agent.py): standard library only, pynvml where the node has it. Every reading is a value, or None
and the reason; what the probe at the start finds unsupported is not asked again. Units are in the names.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

SYS = Path(os.environ.get("SOUNDING_SYS", "/sys"))  # a test's own tree
REASONS = {  # NVML's clock event bits that mean "slower than it could be"
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x200: "board_limit",
    0x400: "reliability",
}
# hwmon labels -> what they cover; spark_hwmon (spbm): dc_input is the whole machine, pkg the package's energy counter
LABELS = {"dc_input": "node", "sys_total": "node", "soc_pkg": "soc", "pkg": "soc", "gpu": "gpu"}
Reading = tuple[Any, "str | None"]  # a value, or None and why


def attempt(read: Callable[[], Any]) -> Reading:
    """A value, or None and the reason in the library's or kernel's own words."""
    try:
        return read(), None
    except Exception as error:  # noqa: BLE001 - NVML's errors are the driver's: any of them is a reason, none is ours to repair
        return None, str(error) or type(error).__name__


def text(path: Path | str) -> str | None:
    """A small file's content; None where it cannot be read."""
    try:
        return Path(path).read_text(errors="replace").strip("\0\n ")
    except OSError:
        return None


class Nvml:
    """The GPUs of this node, by pynvml. Powers and energies are added up; clocks are the slowest's."""

    def __init__(self, devices: list[int] | None) -> None:
        self.api: Any = None
        self.handles: list[Any] = []
        self.reason: str | None = None
        try:
            import pynvml

            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            wanted = devices if devices is not None else range(count)
            self.handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in wanted]
            self.api = pynvml
        except ImportError:
            self.reason = "pynvml is not installed in this Python (package nvidia-ml-py)"
        except Exception as error:  # noqa: BLE001 - as above
            self.reason = f"NVML: {error}"
        if self.reason is None and not self.handles:
            self.reason = "NVML finds no GPU"
        n = self.api
        sums: dict[str, tuple[Callable[[Any], Any], Callable[[list[Any]], Any]]] = {
            "power_w": (lambda h: n.nvmlDeviceGetPowerUsage(h) / 1e3, sum),
            "energy_j": (lambda h: n.nvmlDeviceGetTotalEnergyConsumption(h) / 1e3, sum),
            "temp_c": (lambda h: n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU), max),
            "sm_clock_mhz": (lambda h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM), min),
            "utilization_percent": (lambda h: n.nvmlDeviceGetUtilizationRates(h).gpu, min),
            "throttle": (lambda h: n.nvmlDeviceGetCurrentClocksEventReasons(h), lambda bits: or_all(bits)),
        }
        self.readings = sums
        self.unsupported = {name: why for name in sums if (why := self.read(name)[1]) is not None}

    def read(self, name: str) -> Reading:
        """One reading over all GPUs: all of them or none."""
        if self.reason is not None:
            return None, self.reason
        ask, join = self.readings[name]
        return attempt(lambda: join([ask(handle) for handle in self.handles]))

    def sample(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Everything that the probe found supported, and why the rest is not there."""
        found = {name: self.read(name) for name in self.readings if name not in self.unsupported}
        missing = {**self.unsupported, **{name: why for name, (_, why) in found.items() if why is not None}}
        return {name: value for name, (value, why) in found.items() if why is None}, missing

    def facts(self) -> dict[str, str | None]:
        """Names, driver, firmware, memory and limits of the GPUs; of several, joined where they differ."""
        n = self.api
        if self.reason is not None:
            return {"gpu": f"unsupported: {self.reason}"}
        asks: dict[str, Callable[[Any], Any]] = {
            "gpu_name": n.nvmlDeviceGetName,
            "gpu_uuid": n.nvmlDeviceGetUUID,
            "gpu_vbios": n.nvmlDeviceGetVbiosVersion,
            "gpu_memory_total_bytes": lambda h: n.nvmlDeviceGetMemoryInfo(h).total,
            "gpu_memory_free_bytes": lambda h: n.nvmlDeviceGetMemoryInfo(h).free,
            "gpu_power_limit_w": lambda h: n.nvmlDeviceGetEnforcedPowerLimit(h) / 1e3,
            "gpu_sm_clock_max_mhz": lambda h: n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_SM),
            "gpu_pstate": lambda h: f"P{n.nvmlDeviceGetPerformanceState(h)}",
        }
        out: dict[str, str | None] = {"gpu_count": str(len(self.handles))}
        driver, why = attempt(n.nvmlSystemGetDriverVersion)
        out["gpu_driver"] = plain(driver) if why is None else f"unsupported: {why}"
        for name, ask in asks.items():
            values = [attempt(partial(ask, handle)) for handle in self.handles]
            out[name] = " | ".join(dict.fromkeys(f"unsupported: {w}" if w else str(plain(v)) for v, w in values))
        return out

    def processes(self) -> list[dict[str, Any]]:
        """Compute processes on the GPUs: pid and program."""
        found: dict[int, dict[str, Any]] = {}
        for handle in self.handles:
            for process in attempt(partial(self.api.nvmlDeviceGetComputeRunningProcesses, handle))[0] or []:
                found[process.pid] = {"pid": process.pid, "program": text(f"/proc/{process.pid}/comm") or "?"}
        return list(found.values())


def or_all(bits: list[int]) -> str:
    """Throttle reasons of all GPUs in words; "" when none is flagged."""
    return ",".join(word for bit, word in REASONS.items() if any(each & bit for each in bits))


def plain(value: Any) -> Any:
    """Older bindings return bytes."""
    return value.decode() if isinstance(value, bytes) else value


def counters() -> dict[tuple[str, str], dict[str, list[Path]]]:
    """(scope, source) -> files of its power (uW) and energy (uJ): hwmon by label, RAPL by zone."""
    found: dict[tuple[str, str], dict[str, list[Path]]] = {}
    labelled = {((text(path) or "").lower(), path.name[:5]): path for path in SYS.glob("class/hwmon/hwmon*/*_label")}
    for label, scope in LABELS.items():  # in this order: two labels of one scope are the same watts seen twice
        for kind, stem in (("power_w", "power"), ("energy_j", "energ")):
            if path := labelled.get((label, stem)):
                found.setdefault((scope, "hwmon"), {}).setdefault(kind, [path.with_name(path.name[:-5] + "input")])
    for zone in sorted(SYS.glob("class/powercap/*/energy_uj")):
        name = text(zone.with_name("name")) or ""
        if name == "psys" or name.startswith("package"):  # of every socket; core and dram zones lie inside them
            scope = "node" if name == "psys" else "cpu"
            found.setdefault((scope, "powercap"), {}).setdefault("energy_j", []).append(zone)
    return found


def micro(files: list[Path]) -> float:
    """The sum of counters in millionths."""
    return sum(int(file.read_text()) for file in files) / 1e6


def numbers(line: str) -> list[float]:
    """One or two numbers of a line."""
    found = [float(part) for part in line.split()[:2]]
    if not found:
        raise ValueError("the meter printed an empty line")
    return found


class Sensors:
    """Every power sensor of this node."""

    def __init__(self, devices: list[int] | None, wall_meter: list[str]) -> None:
        self.nvml, self.files, self.has_meter = Nvml(devices), counters(), bool(wall_meter)
        self.meter: Reading = (None, "the meter has said nothing yet")
        if wall_meter:
            threading.Thread(target=self.follow_meter, args=(wall_meter,), daemon=True).start()

    def follow_meter(self, argv: list[str]) -> None:
        """A wall meter is a program that prints "WATTS" or "WATTS JOULES" a line, as often as it reads."""
        try:
            with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
                for line in process.stdout or ():
                    self.meter = attempt(partial(numbers, line))
                self.meter = (None, f"the meter's program ended ({process.wait()})")
        except OSError as error:
            self.meter = (None, f"the meter's program cannot start: {error.strerror}")

    def sample(self) -> dict[str, Any]:
        """One reading of everything: {"t_unix_s", "gpu": {...}, "sensors": [[scope, source, W, J, reason], ...]}."""
        t = time.time()
        values, missing = self.nvml.sample()
        power, energy = values.pop("power_w", None), values.pop("energy_j", None)
        rows: list[list[Any]] = [
            ["gpu", "nvml", power, energy, missing.get("power_w") if power is None and energy is None else None]
        ]
        for (scope, source), kinds in self.files.items():
            sums: dict[str, Reading] = {kind: attempt(partial(micro, files)) for kind, files in kinds.items()}
            reasons = [why for _, why in sums.values() if why is not None]
            row = [sums.get(kind, (None, None))[0] for kind in ("power_w", "energy_j")]
            rows.append([scope, source, *row, reasons[0] if reasons and row == [None, None] else None])
        if self.has_meter:
            said, why = self.meter
            rows.append(["wall", "meter", *([*said, None][:2] if said else (None, None)), why])
        return {"t_unix_s": t, "gpu": values, "sensors": rows, "memory_available_bytes": meminfo("MemAvailable")}


def meminfo(key: str) -> int | None:
    """A line of /proc/meminfo in bytes."""
    for line in (text("/proc/meminfo") or "").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return None
