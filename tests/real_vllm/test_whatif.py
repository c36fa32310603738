"""A slow-down of the real engine, predicted: 5 ms planted in every drafter or target forward, and the what-if of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import pandas as pd
import pytest

from backend.analysis.whatif import prediction_errors, what_if
from backend.analysis.whatif_runs import Change, fitted_costs
from backend.engines import VllmEngine
from backend.measure.cell import Bench, measure, prompt_ids, warm_up
from backend.measure.client import Client
from backend.measure.workload import read_prompts
from backend.records import Request
from backend.spec import SweepSpec

from .conftest import braking

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500)]  # two servers and up to three tries
PORTS, BLOCKS, SPIN_MS = {1: 18957, 3: 18958}, 5, 5.0  # a server for each depth, at once: their runs lie side by side
BRAKES = ("drafter", "target")
WITHIN_PERCENT = 15.0  # 20 errors on 2 slow cores: up to 8.5; ignoring the brake: 19.8 and more
TRIES = 3  # a shared machine slows some seconds of runs by as much


@dataclass(frozen=True)
class Braked:
    """A ready server with the braking probe."""

    spec: SweepSpec
    client: Client
    model: str
    k: int

    def brake(self, where: str, milliseconds: float) -> list[float]:
        """Put a brake on, 0 for none; ms of each call since the last time, by the brake's own watch."""
        (seen,) = self.client.collective_rpc("spin", (where, milliseconds))
        return [1e3 * call_s for _, call_s in seen["calls"]]

    def run(self, run_id: str) -> dict[str, object]:
        """MEASURE, as a row of run_cell: ratios of sums by the engine's clock."""
        kept: list[object] = []
        cell = self.spec.cells()[0]
        prompts = read_prompts(self.spec.workload.prompts)
        bench = Bench(
            self.spec, self.client, self.model, self.k, run_id, False, True, prompts, kept.extend, lambda *_: None
        )
        ids = prompt_ids(bench, cell)
        warm_up(bench, cell, ids)
        measure(bench, cell, ids, seed=1)
        asked = [row for row in kept if isinstance(row, Request) and row.phase == "measure"]
        decode_s, steps = sum(row.decode_s or 0 for row in asked), sum(row.steps or 0 for row in asked)
        tokens = sum((row.output_tokens or 1) - 1 for row in asked)
        return {
            "run_id": run_id,
            "cell_id": "braked:c",
            "k": self.k,
            "role": "arm",
            "status": "done",
            "valid": True,
            "concurrency": 1,
            "cycle_ms": 1000 * decode_s / steps,
            "tokens_per_step": tokens / steps,
            "decode_tok_s": tokens / decode_s,
        }


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Braked]]:
    folder: Path = tmp_path_factory.mktemp("whatif")
    with ExitStack() as stack:
        found = []
        for k, port in PORTS.items():
            spec = braking(port)
            engine = VllmEngine(spec).launch(k, folder / f"log{k}", folder / f"lease{k}")
            stack.callback(engine.stop)
            model = engine.wait_ready().model_name
            found.append(Braked(spec, stack.enter_context(Client(engine.base_url, 120)), model, k))
            found[-1].run("braked:warm")
        yield found


def blocks(servers: list[Braked], where: str) -> tuple[pd.DataFrame, dict[int, float]]:
    """Runs with and without one brake in turn, and the ms that it added to a call at each depth.

    Added by its own watch and by depth: a forward takes longer after a brake, and not as much at both.
    """
    rows, added = [], {server.k: [] for server in servers}
    for block in range(BLOCKS):
        for server in servers:
            call_ms = {}
            for braked in (False, True) if block % 2 == 0 else (True, False):
                server.brake(where, SPIN_MS if braked else 0.0)
                row = server.run(f"braked:{braked}{block}k{server.k}")
                calls = server.brake(where, 0.0)
                assert not braked or min(calls) >= SPIN_MS
                rows.append({**row, "braked": braked})
                call_ms[braked] = mean(calls)
            added[server.k].append(call_ms[True] - call_ms[False])
    kept = pd.DataFrame(rows).groupby(["k", "braked"], group_keys=False)[[*rows[0]]].apply(without_the_extremes)
    return kept, {k: median(values) for k, values in added.items()}


def without_the_extremes(runs: pd.DataFrame) -> pd.DataFrame:
    """Three of five: one run that something else on the machine disturbed would move a mean by the bound."""
    return runs.sort_values("cycle_ms").iloc[1:-1]


@pytest.mark.parametrize("where", BRAKES)
def test_a_planted_slow_down_is_predicted(servers: list[Braked], where: str) -> None:
    seen = []
    for _ in range(TRIES):
        rows, added = blocks(servers, where)
        normal, braked = (rows[rows["braked"] == it].reset_index(drop=True) for it in (False, True))
        costs = fitted_costs(normal)
        errors = []
        for k, cost in added.items():
            change = Change(draft_position_ms=cost) if where == "drafter" else Change(step_ms=cost)
            predicted = prediction_errors(what_if(normal, change, costs), braked)[k]
            ignored = prediction_errors(what_if(normal, Change(), costs), braked)[k]
            print(f"{where} K={k}: {cost:.2f} ms a call; predicted {predicted.text()}, ignored {ignored.text()}")
            assert predicted.value is not None
            assert ignored.value is not None
            errors.append((abs(predicted.value), ignored.value))
        seen.append(errors)
        if all(error <= WITHIN_PERCENT and ignored > error + 10 for error, ignored in errors):
            break
    else:
        raise AssertionError(
            f"no try of {TRIES} predicted both depths within {WITHIN_PERCENT}%, by ignoring more: {seen}"
        )
