"""Small sweeps that time one kind of proposer each, through `time-proposer`, as a user would."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.analysis.stages import PARTS, stages_of
from backend.store import queries, queries_timing

ROOT = Path(__file__).parents[2]
INSIDE = Path(__file__).with_name("inside")
SPEC = """
name = "{name}"
depths = {depths}
blocks = 1
anchors = false
context_tokens = [64]
[target]
model = "{root}/data/models/target"
[speculator]
{speculator}
[workload]
prompts = "{root}/data/prompts/smoke.jsonl"
max_tokens = 40
ignore_eos = true
warmup_requests = 2
[timing]
prompts = 4
[server]
python = "{root}/.venv-vllm/bin/python"
argv = ["--dtype", "float32", "--enforce-eager", "--max-model-len", "256", "--max-num-seqs", "2", {more}]
env = {env}
kv_cache_bytes = 134217728
port = {port}
ready_timeout_s = 300
"""
ONE_PROCESS = ('"--distributed-executor-backend", "uni"', {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"})


@dataclass(frozen=True)
class Timed:
    """The answer of `timing --json` about one small sweep, by depth."""

    answer: dict[str, Any]
    snapshot: Path

    @property
    def by_k(self) -> dict[int, dict[str, Any]]:
        return {row["k"]: row for row in self.answer["by_k"]}

    def ms(self, k: int, name: str) -> float:
        """A part's time at a depth."""
        return float(self.by_k[k][name]["value"])

    def median_ms(self, k: int, part: str) -> float:
        """A part's median over single steps: what another process takes of the machine hardly moves it."""
        (cell,) = self.answer["cells"]
        con = queries.connect(self.snapshot)
        groups = {name: stages_of(name) for name in PARTS}
        found = queries_timing.step_quantiles(con, self.answer["sweep"], cell["cell_id"], groups)
        con.close()
        return 1e3 * float(found.loc[(found["k"] == k) & (found["part"] == part), "p50_s"].iloc[0])

    def rows(self, kind: str, k: int) -> list[dict[str, Any]]:
        """ "stages", "positions" or "ranks" of a depth."""
        return [row for row in self.answer["cells"][0][kind] if row["k"] == k]


def time_proposer(
    folder: Path,
    name: str,
    depths: list[int],
    speculator: str,
    port: int,
    *,
    more: str = ONE_PROCESS[0],
    env: dict[str, str] | None = None,
) -> Timed:
    """Write the spec, run it, ask for the answer. Raises AssertionError with the output where the sweep failed."""
    env = {"HF_HUB_OFFLINE": "1", **(ONE_PROCESS[1] if env is None else env)}
    inline = "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in env.items()) + " }"
    folder.mkdir(parents=True, exist_ok=True)
    spec = folder / f"{name}.toml"
    spec.write_text(
        SPEC.format(name=name, depths=depths, root=ROOT, speculator=speculator, port=port, more=more, env=inline)
    )
    command = [sys.executable, "-m", "backend"]
    run = [*command, "time-proposer", str(spec), "--as", name, "--data", str(folder / "data")]
    ran = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    logs = "\n".join(path.read_text()[-3000:] for path in (folder / "data" / "logs").rglob("*.log"))
    assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}\n{logs}"
    ask = [*command, "timing", name, "--json", "--db", str(folder / "data" / "results.duckdb")]
    answer = json.loads(subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    return Timed(answer, folder / "data" / "results.duckdb")
