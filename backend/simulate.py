"""Sweeps from a known truth, through the same records and journal as measured ones; source "simulated".

`simulate` makes whole sweeps (requests, steps, counters, power) from a `truth.Truth`. The same truth and seed give the
same sweep, everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from backend import __version__
from backend.records import Cell, Counter, PowerSample, Record, Request, Role, Run, Sweep
from backend.store.journal import SWEEP_FILE, Journal, directory_name, run_file
from backend.truth import Truth

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

START_UNIX_S = 1_782_900_000.0


@dataclass(frozen=True, slots=True)
class SimulatedSweep:
    """Records of a sweep: of the sweep file, and of each run's file by run_id."""

    sweep: Sweep
    cells: tuple[Cell, ...]
    runs: dict[str, list[Record]]

    def records(self) -> Iterator[Record]:
        """All records in journal order."""
        yield self.sweep
        yield from self.cells
        for records in self.runs.values():
            yield from records

    def write(self, data_dir: Path) -> Path:
        """Into `<data>/journal/<sweep>/`; the store takes it in like a measured one. Returns the directory."""
        directory = data_dir / "journal" / directory_name(self.sweep.sweep)
        directory.mkdir(parents=True, exist_ok=True)
        with Journal(directory / SWEEP_FILE) as journal:
            journal.append(self.sweep, *self.cells)
        for run_id, records in self.runs.items():
            with Journal(directory / run_file(self.sweep.sweep, run_id)) as journal:
                journal.append(*records)
        return directory


def simulate(truth: Truth, name: str = "simulated") -> SimulatedSweep:
    """A whole sweep: randomised runs with anchors, requests with their steps, counters and power samples."""
    rng = np.random.default_rng(truth.seed)
    k, block = truth.order(rng)
    roles: list[Role] = ["arm"] * k.shape[1]
    if truth.anchors and 0 in truth.depths:
        k = np.concatenate([[[0]], k, [[0]]], axis=1)
        block = np.concatenate([[[0]], block, [[truth.blocks - 1]]], axis=1)
        roles = ["anchor", *roles, "anchor"]
    cycles = truth.run_cycles(k, block, rng)[0]
    cell = Cell(f"{name}:1xtext:sim", name, 1, None, "sim", None, truth.max_tokens, 0.0 if truth.greedy else 1.0, True)
    sweep = Sweep(
        name,
        "simulated",
        START_UNIX_S,
        f"simulated from {truth}",
        "simulated target",
        None,
        "simulated",
        "simulated drafter",
        None,
        max(truth.depths),
        truth.seed,
        truth.blocks,
        {},
        None,
        __version__,
    )
    text = _Text(truth)
    runs: dict[str, list[Record]] = {}
    clock = START_UNIX_S
    for index, role in enumerate(roles):
        depth, in_block = int(k[0, index]), int(block[0, index])
        run_id = f"{name}:r{index:03d}b{in_block}k{depth}a1"
        records = _run(truth, text, cell, run_id, depth, float(cycles[index]), clock + 20, rng)
        end = max(
            r.started_unix_s + r.client_total_s
            for r in records
            if isinstance(r, Request) and r.started_unix_s is not None and r.client_total_s is not None
        )
        run = Run(
            run_id,
            name,
            depth,
            in_block,
            index,
            1,
            role,
            "done",
            None,
            True,
            None,
            clock,
            end + 2,
            20.0,
            2.0,
            depth,
            None,
            None,
            None,
        )
        runs[run_id] = [run, *records]
        clock = end + 2
    return SimulatedSweep(sweep, (cell,), runs)


class _Text:
    """What the drafter would get right, by prompt and start: fixed, so that greedy repeats are copies at every K."""

    def __init__(self, truth: Truth) -> None:
        rng = np.random.default_rng([truth.seed, 1])
        self.truth = truth
        self.tokens = rng.integers(0, 32_000, (truth.prompts, truth.max_tokens))
        self.effect = truth.prompt_sd * rng.standard_normal(truth.prompts)
        self.luck = rng.random((truth.prompts, truth.max_tokens, max(max(truth.depths), 1)))

    def steps(self, prompt: int, k: int, rng: np.random.Generator) -> tuple[int, ...]:
        """Accepted drafts of every verify step until max_tokens are out (the last one may overshoot)."""
        truth = self.truth
        luck = self.luck[prompt] if truth.greedy else rng.random(self.luck[prompt].shape)
        rates = truth._conditional(k)
        odds = np.log(rates / (1 - rates)) + self.effect[prompt] if k else rates
        hits = luck[:, :k] < 1 / (1 + np.exp(-odds))
        accepted = np.cumprod(hits, axis=1).sum(axis=1)
        out: list[int] = []
        start = 1  # the prefill emitted token 0
        while start < truth.max_tokens:
            out.append(int(accepted[start]))
            start += out[-1] + 1
        return tuple(out)


def _run(
    truth: Truth,
    text: _Text,
    cell: Cell,
    run_id: str,
    k: int,
    cycle_ms: float,
    start: float,
    rng: np.random.Generator,
) -> list[Record]:
    records: list[Record] = []
    clock = start
    suffix = cell.cell_id.partition(":")[2]
    for index, prompt in enumerate(rng.permutation(truth.prompts)):
        accepted = text.steps(int(prompt), k, rng)
        steps = len(accepted)
        window = steps * cycle_ms / 1000 * (1 + truth.request_sd * float(rng.standard_normal()))
        queue, prefill = 0.0005, 0.050
        total = queue + prefill + window + 0.005
        drafts = (k,) * steps if k else None
        records.append(
            Request(
                f"{run_id}:{suffix}:measure:{index}",
                run_id,
                cell.cell_id,
                "measure",
                index,
                f"p{int(prompt):03d}",
                ("code", "prose")[int(prompt) % 2],
                None,
                clock,
                total,
                "engine",
                queue,
                prefill,
                queue + prefill,
                window,
                64,
                truth.max_tokens,
                steps,
                steps if k else 0,
                k * steps,
                sum(accepted),
                drafts,
                accepted if k else None,
                tuple(int(t) for t in text.tokens[prompt]),
                f"{int(prompt):016x}",
                "length",
                None,
            )
        )
        clock += total
    records += _counters(cell, run_id, k, [r for r in records if isinstance(r, Request)], start, clock)
    if truth.power_base_w is not None:
        for second in np.arange(start, clock, truth.power_interval_s):
            watts = truth.power_base_w + truth.power_per_k_w * k + truth.power_sd_w * float(rng.standard_normal())
            records.append(
                PowerSample(run_id, "sim0", float(second), watts, None, None, None, "node", "simulated", None)
            )
    return records


def _counters(cell: Cell, run_id: str, k: int, requests: list[Request], start: float, end: float) -> list[Record]:
    steps = [a for r in requests for a in (r.step_accepted or ())]
    values = {
        "vllm:generation_tokens_total": sum(r.output_tokens or 0 for r in requests),
        "vllm:prefix_cache_queries_total": 0,
        "vllm:prefix_cache_hits_total": 0,
    }
    labels = 'engine="0",model_name="simulated"'
    table: list[tuple[str, str, float]] = [(name, labels, v) for name, v in values.items()]
    table.append(
        ("vllm:request_success_total", 'engine="0",finished_reason="length",model_name="simulated"', len(requests))
    )
    if k:
        table += [
            ("vllm:spec_decode_num_drafts_total", labels, len(steps)),
            ("vllm:spec_decode_num_draft_tokens_total", labels, k * len(steps)),
            ("vllm:spec_decode_num_accepted_tokens_total", labels, sum(steps)),
        ]
        table += [
            (
                "vllm:spec_decode_num_accepted_tokens_per_pos_total",
                f'{labels},position="{i}"',
                sum(a > i for a in steps),
            )
            for i in range(k)
        ]
    return [
        Counter(run_id, cell.cell_id, "measure", "phase", name, label, 0.0, float(value), start, end)
        for name, label, value in table
    ]
