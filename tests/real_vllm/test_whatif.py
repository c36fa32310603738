"""A slow-down of the real engine, predicted: 5 ms planted in every drafter or target forward, and the what-if of it."""

from __future__ import annotations

from pathlib import Path
from statistics import median

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

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
PORT, DEPTHS, BLOCKS, SPIN_MS = 18957, (1, 3), 5, 5.0
BRAKES = {"normal": (0.0, 0.0), "drafter": (SPIN_MS, 0.0), "target": (0.0, SPIN_MS)}  # ms in drafter, in target
SLOWED = ("drafter", "target")
WITHIN_PERCENT = 15.0  # 12 errors on 2 slow cores: up to 7.2, SD 3.1; ignoring the brake: 29 and more


def one_run(spec: SweepSpec, client: Client, model: str, k: int, run_id: str) -> dict[str, object]:
    """MEASURE on a running server, as a row of run_cell: ratios of sums by the engine's clock."""
    kept: list[object] = []
    cell = spec.cells()[0]
    prompts = read_prompts(spec.workload.prompts)
    bench = Bench(spec, client, model, k, run_id, False, True, prompts, kept.extend, lambda *_: None)
    ids = prompt_ids(bench, cell)
    warm_up(bench, cell, ids)
    measure(bench, cell, ids, seed=1)
    asked = [row for row in kept if isinstance(row, Request) and row.phase == "measure"]
    decode_s, steps = sum(row.decode_s or 0 for row in asked), sum(row.steps or 0 for row in asked)
    tokens = sum((row.output_tokens or 1) - 1 for row in asked)
    return {
        "run_id": run_id,
        "cell_id": "braked:c",
        "k": k,
        "role": "arm",
        "status": "done",
        "valid": True,
        "concurrency": 1,
        "cycle_ms": 1000 * decode_s / steps,
        "tokens_per_step": tokens / steps,
        "decode_tok_s": tokens / decode_s,
    }


@pytest.fixture(scope="module")
def braked(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, dict[tuple[str, int], float]]:
    """Runs of every brake, interleaved on one server a depth; ms a call that each brake added by its own stop-watch.

    By depth, since a forward takes longer after a brake, and how much is not the same at both.
    """
    folder: Path = tmp_path_factory.mktemp("whatif")
    spec, rows = braking(PORT), []
    added: dict[tuple[str, int], list[float]] = {(where, k): [] for where in SLOWED for k in DEPTHS}
    for k in DEPTHS:
        engine = VllmEngine(spec).launch(k, folder / f"log{k}", folder / f"lease{k}")
        try:
            model = engine.wait_ready().model_name
            with Client(engine.base_url, 120) as client:
                one_run(spec, client, model, k, "braked:warm")
                for block in range(BLOCKS):
                    per_call: dict[str, dict[str, float]] = {}
                    order = list(BRAKES) if block % 2 == 0 else list(BRAKES)[::-1]
                    for name in order:
                        for where, ms in zip(SLOWED, BRAKES[name], strict=True):
                            client.collective_rpc("spin", (where, ms))
                        row = one_run(spec, client, model, k, f"braked:{name}{block}k{k}")
                        rows.append({**row, "brake": name})
                        seen = {where: client.collective_rpc("spin", (where, 0.0))[0] for where in SLOWED}
                        for where, ms in zip(SLOWED, BRAKES[name], strict=True):
                            assert min(call_s for _, call_s in seen[where]["calls"]) >= ms / 1e3
                        per_call[name] = {
                            where: 1e3 * sum(t for _, t in s["calls"]) / len(s["calls"]) for where, s in seen.items()
                        }
                    for where in SLOWED:
                        added[where, k].append(per_call[where][where] - per_call["normal"][where])
        finally:
            engine.stop()
    kept = pd.DataFrame(rows).groupby(["k", "brake"], group_keys=False)[[*rows[0]]].apply(without_the_extremes)
    return kept, {brake: median(values) for brake, values in added.items()}


def without_the_extremes(runs: pd.DataFrame) -> pd.DataFrame:
    """Three of five: one run that something else on the machine disturbed would move a mean by the bound."""
    return runs.sort_values("cycle_ms").iloc[1:-1]


@pytest.mark.parametrize("where", SLOWED)
def test_a_planted_slow_down_is_predicted(
    braked: tuple[pd.DataFrame, dict[tuple[str, int], float]], where: str
) -> None:
    rows, added = braked
    normal, slowed = (rows[rows["brake"] == name].reset_index(drop=True) for name in ("normal", where))
    costs = fitted_costs(normal)
    for k in DEPTHS:
        cost = added[where, k]
        change = Change(draft_position_ms=cost) if where == "drafter" else Change(step_ms=cost)
        predicted = prediction_errors(what_if(normal, change, costs), slowed)[k]
        ignored = prediction_errors(what_if(normal, Change(), costs), slowed)[k]
        print(f"{where} K={k}: {cost:.2f} ms a call; predicted {predicted.text()}, ignored {ignored.text()}")
        assert (
            0.7 * SPIN_MS <= cost <= 2 * SPIN_MS
        )  # between runs: 4.7 to 7.4 seen; what each call spun is checked above
        assert predicted.value is not None
        assert ignored.value is not None
        assert abs(predicted.value) <= WITHIN_PERCENT
        assert ignored.value > abs(predicted.value) + 10
