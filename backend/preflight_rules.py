"""What the answers of the nodes mean for a sweep, as pure rules: memory, drafter, models, links, and what runs there.

Sources: the known failures of GB10 pairs (docs/gb10.md). A rule whose answer is missing says so; it is never passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from backend.preflight import native_depth_of
from backend.records import Severity
from backend.spec import SweepSpec
from backend.spec_nodes import Node

GIB = 1 << 30
UNIFIED_SHARE = 0.75  # a GPU that claims this much of the machine's memory shares it (GB10)
FRESH_BOOT_S = 600.0


@dataclass(frozen=True, slots=True)
class Check:
    """One finding of the pre-flight. `node`: "" for the spec or all nodes."""

    code: str
    severity: Severity
    node: str
    message: str
    action: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What one node answered (see measure/agent_facts.py); None: not asked, or in `unanswered` with the reason."""

    node: Node
    hello: dict[str, Any]
    target: dict[str, Any] | None
    drafter: dict[str, Any] | None
    disk: dict[str, Any] | None
    vllm: dict[str, Any] | None
    left: dict[str, Any] | None
    offset_s: float
    round_trip_s: float
    unanswered: dict[str, str]

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    def fact(self, name: str) -> str | None:
        """A fact's value; None where it is unknown or unsupported."""
        value = self.hello["facts"].get(name)
        return None if value is None or value.startswith("unsupported") else str(value)

    def number(self, name: str) -> float | None:
        """A fact as a number: of several GPUs the smallest."""
        parts = (self.fact(name) or "").split(" | ")
        try:
            return min(float(part) for part in parts)
        except ValueError:
            return None


def judge(spec: SweepSpec, seen: Sequence[Seen]) -> list[Check]:
    """Every rule on every node, then the rules that compare nodes."""
    found = [
        check for each in seen for rule in (facts, gpu, memory, drafter, links, machine) for check in rule(spec, each)
    ]
    return [*found, *models(spec, seen), *alike(spec, seen)]


def facts(spec: SweepSpec, seen: Seen) -> Iterator[Check]:
    """One line that records what the node is."""
    told = {
        "": seen.fact("gpu_name") or "no GPU seen",
        "driver": seen.fact("gpu_driver"),
        "VBIOS": seen.fact("gpu_vbios"),
        "firmware": seen.fact("firmware"),
        "kernel": seen.fact("kernel"),
        "vLLM": (seen.vllm or {}).get("version"),
        "RDMA": seen.fact("rdma"),
    }
    words = ", ".join(f"{name} {value}".strip() for name, value in told.items() if value)
    sensors = ", ".join(
        f"{s[0]} ({s[1]})" for s in seen.hello["sample"]["sensors"] if s[2] is not None or s[3] is not None
    )
    yield Check("node", "info", seen.name, f"{words}; power sensors: {sensors or 'none'}", "")
    for what, why in seen.unanswered.items():
        yield Check("unanswered", "error", seen.name, f"{what}: {why}", "the check of it is open")


def gpu(spec: SweepSpec, seen: Seen) -> Iterator[Check]:
    """A GPU where one is needed, nobody else on it, its power readable."""
    needs = spec.speculator.method == "dspark" or spec.nodes.roce
    if seen.fact("gpu_name") is None:
        why = str(seen.hello["facts"].get("gpu", "")).removeprefix("unsupported: ") or "its name cannot be read"
        yield Check(
            "no-gpu",
            "error" if needs else "info",
            seen.name,
            f"no GPU can be seen: {why}",
            "install the driver, and nvidia-ml-py in the Python that [[node]] python names",
        )
        return
    if others := seen.hello["gpu_processes"]:
        names = ", ".join(f"{other['program']} ({other['pid']})" for other in others)
        fix = "end them: they take memory and time that the sweep would blame on a depth"
        yield Check("gpu-in-use", "error", seen.name, f"compute processes on the GPU: {names}", fix)
    if why := seen.hello["unsupported"].get("power_w"):
        fix = "without a wall meter or spark_hwmon there will be no energy of this node, so none at all"
        yield Check("power-unsupported", "warning", seen.name, f"GPU power cannot be read: {why}", fix)


def memory(spec: SweepSpec, seen: Seen) -> Iterator[Check]:
    """Checkpoint share + drafter + KV cache + reserve against what is free: of the GPU, or of the machine it shares."""
    gpus = int(seen.number("gpu_count") or 1)
    weights = spec.nodes.checkpoint_bytes or (seen.target or {}).get("weights_bytes")
    if not weights:
        fix = "give nodes.checkpoint_bytes, or target_model in [[node]] as the folder it lies in"
        yield Check("memory-unknown", "warning", seen.name, "the checkpoint's size is not known", fix)
        return
    helper = spec.nodes.drafter_bytes or (seen.drafter or {}).get("weights_bytes") or 0
    cache, reserve = spec.server.kv_cache_bytes or 0, spec.nodes.reserve_bytes
    share = weights / (len(spec.node) * gpus)
    need = share + helper + cache + reserve
    have, where = _available(seen)
    if have is None:
        yield Check("memory-unknown", "warning", seen.name, f"free memory cannot be read: {where}", "look by hand")
    elif need > have:
        parts = f"{_gib(share)} checkpoint share + {_gib(helper)} drafter + {_gib(cache)} KV + {_gib(reserve)} reserve"
        yield Check(
            "memory-short",
            "error",
            seen.name,
            f"needs {_gib(need)} GiB ({parts}), has {_gib(have)} GiB ({where})",
            "more nodes, a smaller checkpoint or KV cache, or end what holds the memory",
        )


def _available(seen: Seen) -> tuple[float | None, str]:
    total, free = seen.number("gpu_memory_total_bytes"), seen.number("gpu_memory_free_bytes")
    machine = float(seen.fact("memory_total_kb") or 0) * 1024
    if total and free is not None and (not machine or total < UNIFIED_SHARE * machine or total > 1.5 * machine):
        return free, "free on the GPU"
    available = seen.hello["sample"]["memory_available_bytes"]
    return available, "MemAvailable" + (", memory shared with the GPU" if seen.fact("gpu_name") else "")


def _gib(size: float) -> str:
    return f"{size / GIB:.1f}"


def drafter(spec: SweepSpec, seen: Seen) -> Iterator[Check]:
    """K against the block that the drafter on this node has."""
    if not seen.drafter or not seen.drafter["exists"]:
        return
    limit = native_depth_of(seen.drafter["config"] or {})
    if limit is None:
        return
    block, key = limit
    if (deepest := max(spec.depths)) > block:
        yield Check(
            "depth-above-block",
            "error",
            seen.name,
            f"depth {deepest} is above the drafter's block of {block} ({key}): every position would collapse",
            f"depths up to {block}, or another drafter",
        )
    if trimmed := [str(k) for k in spec.depths if 0 < k < block]:
        words = (
            f"K = {', '.join(trimmed)} trims the drafter's block of {block}: all its layers run, the rest is cut off"
        )
        yield Check("drafter-trimmed", "info", seen.name, words, "compare outputs over depths (page Acceptance)")


def links(spec: SweepSpec, seen: Seen) -> Iterator[Check]:
    """The interface, its address and the HCAs that the spec names exist here and are up."""
    node = seen.node
    known = {each["name"]: each for each in seen.hello["interfaces"]}
    if node.interface:
        mine = known.get(node.interface)
        if mine is None:
            there = ", ".join(f"{n} {each['address'] or ''}".strip() for n, each in known.items())
            fix = "names differ between nodes: give each its own"
            yield Check(
                "interface-missing", "error", node.name, f"no interface {node.interface}; there are {there}", fix
            )
        elif mine["state"] not in ("up", "unknown"):
            yield Check("interface-down", "error", node.name, f"{node.interface} is {mine['state']}", "check the cable")
        elif node.address and _literal(node.address) and mine["address"] != node.address:
            words = f"{node.interface} has {mine['address'] or 'no address'}, the spec says {node.address}"
            yield Check("address-wrong", "error", node.name, words, "correct [[node]] address or the interface")
    adapters = {each["name"]: each for each in seen.hello["hcas"]}
    for hca in node.hcas:
        state = (adapters.get(hca) or {}).get("state")
        if hca not in adapters:
            words = f"no RDMA adapter {hca}; there are: {', '.join(adapters) or 'none'}"
            yield Check("hca-missing", "error", node.name, words, "NCCL would fall back to TCP: name the node's own")
        elif "ACTIVE" not in str(state):
            yield Check("hca-down", "error", node.name, f"{hca} is {state}", "check cable, switch and RoCE settings")
    if spec.nodes.roce and not node.hcas:
        words = "RoCE is asked, but the spec names no HCA here"
        yield Check("hca-unnamed", "error", node.name, words, "give [[node]] hcas (ls /sys/class/infiniband)")


def _literal(address: str) -> bool:
    return address.replace(".", "").isdigit()


def machine(spec: SweepSpec, seen: Seen) -> Iterator[Check]:
    """What else could end or disturb a run: OOM killers, a listener on our port, a full disk, clocks, a fresh boot."""
    name = seen.name
    if (oom := seen.fact("earlyoom")) not in (None, "not running"):
        fix = "stop it for the sweep: it kills a server that loads, as that fills the memory on purpose"
        yield Check("oom-killer", "warning", name, f"{oom} runs", fix)
    if seen.fact("ray_memory_monitor") == "on":
        fix = "start Ray with RAY_memory_monitor_refresh_ms=0: with unified memory it kills workers that load"
        yield Check("ray-memory-monitor", "warning", name, "Ray's memory monitor is on", fix)
    if seen.left and seen.left["listening"] and seen.node is spec.node[0]:
        fix = "end it, or give server.port another value"
        yield Check("port-taken", "error", name, f"something listens on port {spec.server.port}", fix)
    if seen.disk and seen.disk["free_bytes"] < spec.nodes.log_bytes:
        free, folder = _gib(seen.disk["free_bytes"]), seen.disk["folder"]
        words = f"{free} GiB free at {folder}, logs may take {_gib(spec.nodes.log_bytes)}"
        yield Check("disk-full", "error", name, words, "make room, or set log_dir")
    if seen.disk and not seen.disk["writable"]:
        yield Check("disk-readonly", "error", name, f"{seen.disk['folder']} cannot be written", "set [[node]] log_dir")
    if abs(seen.offset_s) > spec.nodes.clock_offset_s + seen.round_trip_s / 2:
        words = f"its clock is {seen.offset_s:+.2f} s off (known to {seen.round_trip_s / 2:.3f} s)"
        yield Check("clock-offset", "warning", name, words, "set up chrony; samples are corrected by it, logs are not")
    if (uptime_s := seen.number("uptime_s")) is not None and uptime_s < FRESH_BOOT_S:
        words = f"booted {uptime_s / 60:.0f} min ago"
        yield Check("fresh-boot", "warning", name, words, "let it warm up: a freshly booted GB10 reads low")


def models(spec: SweepSpec, seen: Sequence[Seen]) -> Iterator[Check]:
    """Target and drafter are there, equal on all nodes, and of the revision that the spec pins."""
    asked = {
        "target": (spec.target.model, spec.target.revision),
        "drafter": (spec.speculator.model, spec.speculator.revision),
    }
    for what, (model, revision) in asked.items():
        folders = {each.name: each.target if what == "target" else each.drafter for each in seen}
        if model is None or what in {key for each in seen for key in each.unanswered}:
            continue
        if unnamed := [name for name, folder in folders.items() if folder is None]:
            words = f"{what} {model} names no folder, so it cannot be compared over nodes"
            fix = f"give {'target_model' if what == 'target' else 'speculator_model'} in [[node]]"
            yield Check(f"{what}-unchecked", "warning", unnamed[0] if len(unnamed) == 1 else "", words, fix)
            continue
        there = {name: folder for name, folder in folders.items() if folder and folder["exists"]}
        for name in folders:
            if name not in there:
                yield Check(f"{what}-missing", "error", name, f"no {what} in {model}", "copy it there, same revision")
        digests = {name: folder["digest"] for name, folder in there.items()}
        if len(set(digests.values())) > 1:
            words = "; ".join(f"{name} {digest[:12]}" for name, digest in digests.items())
            fix = "copy one node's folder to the others: ranks of different models give nonsense without an error"
            yield Check(f"{what}-differs", "error", "", f"the {what} is not the same on all nodes: {words}", fix)
        elif there and not all(folder["whole"] for folder in there.values()):
            words = f"the {what} was compared by sizes and by first and last MiB of its large files"
            yield Check(f"{what}-compared-in-part", "info", "", words, "")
        seen_revisions = {folder["revision"] for folder in there.values()} - {None}
        if revision and seen_revisions - {revision}:
            words = f"{what}.revision is {revision}, the folders say {', '.join(sorted(seen_revisions))}"
            yield Check(f"{what}-revision", "error", "", words, "pin what is there, or fetch what is pinned")
        if revision is None and not seen_revisions:
            digest = next(iter(digests.values()), "")[:16]
            words = f"the {what}'s revision is not pinned" + (f"; its digest is {digest}" if digest else "")
            key = "target.revision" if what == "target" else "speculator.revision"
            yield Check(f"{what}-unpinned", "warning", "", words, f"give {key}, so that a later sweep can be compared")


def alike(spec: SweepSpec, seen: Sequence[Seen]) -> Iterator[Check]:
    """Drivers, firmware and vLLM are the same everywhere; the KV cache is pinned."""
    for name in ("gpu_driver", "gpu_vbios", "firmware", "kernel"):
        values = {each.name: each.fact(name) for each in seen}
        if len(set(values.values())) > 1:
            words = f"{name.replace('_', ' ')} differs: " + ", ".join(f"{n} {v}" for n, v in values.items())
            yield Check(
                "nodes-differ", "warning", "", words, "bring the nodes to one state: the slower one sets the pace"
            )
    versions = {each.name: each.vllm for each in seen if each.vllm is not None}
    for name, vllm in versions.items():
        if vllm["version"] is None:
            yield Check("vllm-missing", "error", name, f"vLLM: {vllm['reason']}", "name its Python in vllm_python")
    known = {name: vllm["version"] for name, vllm in versions.items() if vllm["version"]}
    if len(set(known.values())) > 1:
        words = ", ".join(f"{name} {version}" for name, version in known.items())
        yield Check("vllm-differs", "error", "", f"vLLM is not the same everywhere: {words}", "install one version")
    if 0 in spec.depths and spec.server.kv_cache_bytes is None and spec.server.launcher != "command":
        fix = "give server.kv_cache_bytes"
        yield Check(
            "kv-not-pinned", "warning", "", "without a drafter K=0 gets a larger KV cache than other depths", fix
        )
