"""Where a sweep's wall time goes: `python -m tests.bench.bench_sweep [SPEC]` (without one: the stand-in engine).

Budget: everything outside server start, requests and settle time is at most 5% of the wall time of a sweep whose server
starts as slowly as real ones do (20 s and more; with the stand-in, see --start-s).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from backend import sweep as sweep_module
from backend.progress import Progress
from backend.records import Request, Run
from backend.spec_file import load
from backend.store import journal
from backend.store.database import Store
from tests.standin.specs import write_spec

BUDGET = 0.05


@dataclass(frozen=True)
class Profile:
    """Seconds of a sweep's wall time, by what they went into. `overhead_s` are the parts that the budget is for."""

    runs: int
    wall_s: float
    parts_s: dict[str, float]
    overhead_s: dict[str, float]

    @property
    def share(self) -> float:
        """Overhead as a share of the wall time."""
        return sum(self.overhead_s.values()) / self.wall_s

    def table(self) -> str:
        """A line a part: seconds, seconds a run, share."""
        lines = [f"{self.runs} runs in {self.wall_s:.1f} s"]
        for title, parts in (("", self.parts_s), ("overhead: ", self.overhead_s)):
            lines += [
                f"{title + name:48s} {part_s:8.2f} s {part_s / self.runs:8.3f} s/run {100 * part_s / self.wall_s:6.2f}%"
                for name, part_s in parts.items()
            ]
        return "\n".join([*lines, f"{'overhead in all':48s} {100 * self.share:32.2f}%  (budget {100 * BUDGET:.0f}%)"])


def profile(spec_path: Path, data_dir: Path) -> Profile:
    """Run a sweep and account for every second of it, by its progress and its records."""
    spec = load(spec_path)
    phase_s: dict[str, float] = {}
    last: list[tuple[float, str]] = []

    def listen(now: Progress) -> None:
        moment = time.perf_counter()
        if last:
            began, phase = last.pop()
            phase_s[phase] = phase_s.get(phase, 0.0) + moment - began
        last.append((moment, now.phase or "between"))

    started = time.perf_counter()
    with Store(data_dir, code_version="bench") as store:
        outcome = sweep_module.run_sweep(spec, spec_path.read_text(), store, resume=False, listener=listen)
    wall_s = time.perf_counter() - started
    if outcome.missing:
        raise SystemExit(f"runs without a result: {outcome.missing}")
    records = [r for path in (data_dir / "journal" / spec.name).glob("*.jsonl") for r in journal.read(path).records]
    runs = {r.run_id: r for r in records if isinstance(r, Run)}
    start_s = sum(run.server_start_s or 0.0 for run in runs.values())
    stop_s = sum(run.server_stop_s or 0.0 for run in runs.values())
    requests_s = sum((r.client_total_s or 0.0) for r in records if isinstance(r, Request))
    settle_s = spec.server.settle_s * (len(runs) - 1)
    overhead = {
        "stopping, release verified": stop_s,
        "judging and journalling": phase_s.get("stop", 0.0) - stop_s,
        "between requests (journal, scrapes)": sum(phase_s.get(p, 0.0) for p in ("warmup", "measure")) - requests_s,
        "around the start (launch, last store)": phase_s.get("launch", 0.0) - start_s,
        "last snapshot": phase_s.get("store", 0.0),
    }
    parts = {"server start": start_s, "requests": requests_s, "settle time": settle_s}
    overhead["the rest (opening, planning)"] = wall_s - sum(parts.values()) - sum(overhead.values())
    return Profile(len(runs), wall_s, parts, overhead)


def main() -> None:
    """Print the profile of one sweep; exit 1 above the budget."""
    options = argparse.ArgumentParser()
    options.add_argument("spec", type=Path, nargs="?", help="a spec to sweep (real servers); default: the stand-in")
    options.add_argument("--start-s", type=float, default=20.0, help="how long the stand-in loads")
    asked = options.parse_args()
    sweep_module.exclusions = lambda _found: {}  # the bench may share its cores; validity is not what it measures
    with tempfile.TemporaryDirectory() as folder:
        spec = asked.spec
        if spec is None:
            spec = write_spec(
                Path(folder) / "specs", blocks=2, prompts=24, workload={"max_tokens": 128},
                arguments=("--start-s", str(asked.start_s)), server_ready_timeout_s=120,
            )  # fmt: skip
        measured = profile(spec, Path(folder) / "data")
    print(measured.table())
    raise SystemExit(measured.share > BUDGET)


if __name__ == "__main__":
    main()
