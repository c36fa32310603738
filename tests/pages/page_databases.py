"""Databases that pages are tested on, built through the store as a sweep builds them, from a small known truth."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import duckdb

from backend.publish import publish
from backend.records import Cell, Environment, Failure, Finding, Record, Request, Run, Sweep
from backend.store.database import Store
from backend.store.paths import BUNDLED
from tests.importers.importing import K0, K3, take

IMPORTED = (K0, K3)  # real result files of another tool
PROMPTS = ("p0", "p1", "p2", "p3", "p4")
TOKENS = 48
BASE_MS, DRAFT_MS, MARGINAL_MS = 20.0, 6.0, 2.2  # the known truth: best K is 2 or 3, K=7 loses to the best
SURVIVES = 0.62


def accepts(prompt: str, token: int) -> int:
    """How many drafts would be accepted from this token on; greedy decoding repeats it in every run."""
    rng = random.Random(f"{prompt}:{token}")
    accepted = 0
    while accepted < 7 and rng.random() < SURVIVES:
        accepted += 1
    return accepted


def request(run: Run, cell: Cell, index: int, prompt: str, cycle_ms: float) -> Request:
    """One MEASURE request of a run."""
    emitted, accepted = 1, []
    while emitted < TOKENS:
        taken = min(accepts(prompt, emitted), run.k, TOKENS - emitted - 1)
        accepted.append(taken)
        emitted += taken + 1
    steps = len(accepted)
    decode_s = steps * cycle_ms / 1000
    start = (run.started_unix_s or 0) + index
    return Request(
        f"{run.run_id}:{cell.concurrency}:measure:{index}",
        run.run_id,
        cell.cell_id,
        "measure",
        index,
        prompt,
        "text",
        None,
        start,
        decode_s + 0.03,
        "engine",
        0.001,
        0.02,
        0.021,
        decode_s,
        12,
        TOKENS,
        steps,
        steps if run.k else 0,
        steps * run.k,
        sum(accepted),
        (run.k,) * steps if run.k else None,
        tuple(accepted) if run.k else None,
        tuple(range(TOKENS)),
        "same",
        "length",
        None,
    )


def run_of(sweep: str, order: int, block: int | None, k: int, **changes: object) -> Run:
    """A finished run."""
    began = 1_790_000_000.0 + 60 * order
    run = Run(
        f"{sweep}:r{order}b{block}k{k}a1",
        sweep,
        k,
        block,
        order,
        1,
        "arm",
        "done",
        None,
        True,
        None,
        began,
        began + 45,
        12.5,
        1.5,
        k or None,
        f"python -m vllm.entrypoints.cli.main serve target --port 18931 --k {k}",
        {"VLLM_CPU_KVCACHE_SPACE": "1"},
        f"logs/{sweep}/r{order}.log",
    )
    return replace(run, **changes)


def sweep_of(name: str, **changes: object) -> Sweep:
    """A sweep of the bundled pair's kind."""
    sweep = Sweep(
        name,
        "simulated",
        1_790_000_000.0,
        "A sweep from a known truth",
        "tiny-target",
        None,
        "draft_model",
        "tiny-draft",
        None,
        7,
        1,
        3,
        {"production": 1, "recipe": 3, "native": 7},
        None,
        "test",
    )
    return replace(sweep, **changes)


def cell_of(sweep: str, concurrency: int = 1) -> Cell:
    """A cell at a concurrency."""
    name = f"{sweep}:{concurrency}xtext:mixed"
    return Cell(name, sweep, concurrency, None, "mixed", "completions", TOKENS, 0.0, True)


def measured(run: Run, cell: Cell) -> list[Record]:
    """A run with its requests, and one fact about the machine; blocks multiply the cycle, runs scatter by 1%."""
    rng = random.Random(run.run_id)
    cycle = (BASE_MS + (DRAFT_MS if run.k else 0) + MARGINAL_MS * run.k) * (1 + 0.02 * (run.block or 0))
    cycle *= 1 + rng.gauss(0, 0.01)
    return [
        run,
        Environment(run.run_id, "here", "cpu", "a test machine"),
        Environment(run.run_id, "here", "cpu_governor", None),
        *(request(run, cell, i, prompt, cycle) for i, prompt in enumerate(PROMPTS)),
    ]


def full() -> dict[str, list[list[Record]]]:
    """Three blocks of K=0..7 with an anchor, a failed and an excluded run, findings; two cells in another sweep."""
    name = "full"
    cell = cell_of(name)
    runs: list[list[Record]] = []
    order = 0
    for block in range(3):
        depths = list(range(8))
        random.Random(block).shuffle(depths)
        for k in depths:
            runs.append(measured(run_of(name, order, block, k), cell))
            order += 1
    failed = run_of(name, order, 2, 5, status="failed", reason="the server ended by itself with exit code 1")
    runs.append([failed, Failure(failed.run_id, "died", str(failed.reason), "INFO loading\nERROR out of memory", 1.0)])
    odd = run_of(name, order + 1, 2, 5, valid=False, exclusion_reason="the canary ran 30% slower after it")
    runs.append(
        [
            *measured(odd, cell),
            Finding(
                name,
                odd.run_id,
                "",
                "canary-slow",
                "warning",
                30.0,
                "%",
                "The canary ran 30% slower.",
                "Look for other programs on this machine.",
            ),
        ]
    )
    runs.append(measured(run_of(name, order + 2, None, 0, role="anchor"), cell))
    other = "two-cells"
    cells = [cell_of(other, 1), cell_of(other, 4)]
    two = [
        [*measured(run_of(other, k, 0, k), cells[0]), *measured(run_of(other, k, 0, k), cells[1])[2:]] for k in range(4)
    ]
    return {
        name: [[sweep_of(name), cell], *runs],
        other: [[sweep_of(other, created_unix_s=1_780_000_000.0), *cells], *two],
    }


def one_run() -> dict[str, list[list[Record]]]:
    """A single run at K=3."""
    cell = cell_of("single")
    return {"single": [[sweep_of("single", source="measured"), cell], measured(run_of("single", 0, 0, 3), cell)]}


def all_failed() -> dict[str, list[list[Record]]]:
    """Every run failed before it was ready."""
    runs: list[list[Record]] = []
    for k in range(3):
        run = run_of("broken", k, 0, k, status="failed", reason="not ready after 600 s", command="serve --k 1")
        runs.append([run, Failure(run.run_id, "not_ready", "not ready after 600 s", "ERROR: no such model", 1.0)])
    return {"broken": [[sweep_of("broken", source="measured"), cell_of("broken")], *runs]}


def anchor_only() -> dict[str, list[list[Record]]]:
    """A sweep that has finished its first run, the anchor."""
    cell = cell_of("young")
    return {"young": [[sweep_of("young"), cell], measured(run_of("young", 0, None, 0, role="anchor"), cell)]}


def sparse() -> dict[str, list[list[Record]]]:
    """Three blocks with figures, and nothing known that need not be; another sweep has no cell and no run."""
    cell = cell_of("sparse")
    unknown = dict.fromkeys(("speculator_method", "speculator_model", "seed", "blocks", "max_depth"))
    head = sweep_of("sparse", **unknown, target_model="", description="")
    of_runs = ("order_index", "started_unix_s", "ended_unix_s", "server_start_s", "server_stop_s", "reported_k")
    bare = dict.fromkeys((*of_runs, "command", "env", "log_path"))
    runs = [measured(run_of("sparse", 3 * block + k, block, k), cell) for block in range(3) for k in range(3)]
    bare_runs: list[list[Record]] = [[replace(run, **bare), *rest] for run, *rest in runs]  # type: ignore[type-var]
    return {"sparse": [[head, cell], *bare_runs], "no-cells": [[sweep_of("no-cells", created_unix_s=1.0)]]}


def build(directory: Path, sweeps: Mapping[str, list[list[Record]]], bundled: Mapping[str, Path]) -> Path:
    """Journal these sweeps, take them in, estimate, publish. Returns the data directory."""
    with Store(directory, bundled=bundled) as store:
        for name, (head, *runs) in sweeps.items():
            with store.sweep_journal(name) as journal:
                journal.append(*head)
            for records in runs:
                with store.run_journal(name, records[0].run_id) as journal:
                    journal.append(*records)
        publish(store)
    return directory


def databases(root: Path) -> dict[str, dict[str, str]]:
    """Environment variables of a viewer on each kind of database."""
    made = {
        "full": build(root / "full", full(), {"published": BUNDLED["published"]}),
        "published": build(root / "published", {}, {"published": BUNDLED["published"]}),
        "empty": build(root / "empty", {}, {}),
        "one run": build(root / "one", one_run(), {}),
        "all failed": build(root / "failed", all_failed(), {}),
        "anchor only": build(root / "young", anchor_only(), {}),
        "sparse": build(root / "sparse", sparse(), {}),
    }
    take(root / "imported", *IMPORTED, name="imported")
    made["imported"] = root / "imported"
    environments = {kind: {"SOUNDING_DATA": str(path)} for kind, path in made.items()}
    for kind, change in (
        ("newer", "INSERT INTO migration VALUES (999, 'future', 0)"),
        ("older", "DELETE FROM migration WHERE version > 1"),
    ):
        other = root / f"{kind}.duckdb"
        shutil.copy(root / "empty" / "results.duckdb", other)
        with duckdb.connect(str(other)) as con:
            con.execute(change)
        environments[kind] = {"SOUNDING_DB": str(other)}
    foreign = root / "foreign.duckdb"
    with duckdb.connect(str(foreign)) as con:
        con.execute("CREATE TABLE other (x INTEGER)")
    (root / "text.duckdb").write_text("not a database")
    environments["missing"] = {"SOUNDING_DB": str(root / "nowhere" / "results.duckdb")}
    environments["foreign"] = {"SOUNDING_DB": str(foreign)}
    environments["not a database"] = {"SOUNDING_DB": str(root / "text.duckdb")}
    return environments
