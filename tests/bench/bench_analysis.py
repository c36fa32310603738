"""Coverage of every interval by simulation, and the time of a whole analysis. Run: python tests/bench/bench_analysis.py

--sweeps N (2,000) sweeps a cell; --only coverage,convex,best,flat,prompts,drift,stop,time. Prints shares with binomial
standard errors and medians; the targets stand beside them, met or not.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from backend.analysis.categories import compare_categories  # noqa: E402
from backend.analysis.checks import run_checks  # noqa: E402
from backend.analysis.compare import compare, compare_cell  # noqa: E402
from backend.analysis.cycle_model import fit_json  # noqa: E402
from backend.analysis.gains import figures_of, gains  # noqa: E402
from backend.analysis.prompts import cell_counts  # noqa: E402
from backend.analysis.summary import summarise  # noqa: E402
from backend.analysis.trend import trend  # noqa: E402
from backend.simulate import simulate  # noqa: E402
from backend.truth import FastSweeps, Truth  # noqa: E402
from tests.analysis.coverage import BLOCK_EFFECTS, best_k_right, convex, coverage, drift_bias, prompt_clusters  # noqa: E402
from tests.analysis.frames import tables  # noqa: E402
from tests.analysis.stopping_coverage import two_stage_coverage  # noqa: E402


def bench_coverage(sweeps: int) -> None:
    print(f"\nCoverage of nominal 95%, linear truth, {sweeps} sweeps a cell (target 93-97%; loss at least 94%)")
    for name, truth in BLOCK_EFFECTS.items():
        for blocks in (3, 5, 10):
            print(f"  blocks {name}, n={blocks}")
            for quantity, share in coverage(replace(truth, blocks=blocks, seed=blocks), sweeps).items():
                print(f"    {quantity:24s} {share}")
    print("  run scatter of 5% instead of 3 ms, blocks multiplicative 5%, n=5")
    for quantity, share in coverage(Truth(run_sd=0.05, block_sd=0.05, blocks=5), sweeps).items():
        print(f"    {quantity:24s} {share}")


def bench_convex(sweeps: int) -> None:
    print("\nConvex truth (K^2 term) read with a line, 3 ms scatter")
    for curvature in (0.0, 0.25, 0.5, 1.0):
        for blocks in (3, 10):
            c = convex(Truth(run_sd_ms=3.0, t_convex_ms=curvature, blocks=blocks), sweeps)
            print(
                f"  {curvature:4.2f} ms/K^2, n={blocks:2d}: bias of t_draft {c.bias_ms:+.2f} ms; covers projection "
                f"{c.projection}, truth {c.truth}; power quadratic {c.quadratic_power}, lack of fit "
                f"{c.lack_of_fit_power}"
            )


def bench_best(sweeps: int) -> None:
    print("\nBest K when P >= .95 is said (target: right at least 90%)")
    for spread in (1.0, 2.0):
        for blocks in (3, 5, 10):
            right, said = best_k_right(spread, blocks, sweeps)
            print(f"  K means of {spread:g} run SDs, n={blocks:2d}: right {right}; said in {said}")


def bench_flat(sweeps: int) -> None:
    print("\nVerdicts")
    flat = Truth(depths=tuple(range(8)), t_draft_ms=0.0, t_marginal_ms=0.0, conditional=(1e-9,) * 7, run_sd=0.01)
    for blocks in (3, 10):
        fast = FastSweeps(replace(flat, blocks=blocks), sweeps)
        verdicts = [compare_cell(f, draws=2000) for f in fast.frames()]
        worse = np.mean([any(d.verdict == "worse" for d in c.depths) for c in verdicts])
        resolved = np.mean([c.recommendation.resolved for c in verdicts])
        print(
            f"  flat truth, 1% scatter, n={blocks}: any depth called worse {100 * worse:.1f}% (at most 5%), "
            f"resolved {100 * resolved:.1f}%"
        )
    curve = study_curve(0.10)
    verdicts = [compare_cell(frame, draws=2000) for frame in curve(sweeps)]
    unresolved = np.mean([not c.recommendation.resolved for c in verdicts])
    below = np.mean([c.recommendation.resolved and c.recommendation.k < 2 for c in verdicts])
    print(
        f"  the study's curve, 10% scatter, 3 blocks: unresolved {100 * unresolved:.1f}%, resolved to K < 2 "
        f"{100 * below:.1f}%"
    )


def study_curve(scatter: float):  # type: ignore[no-untyped-def]
    """Frames of the study's curve shape with lognormal run scatter, 3 blocks (K=4, 5, 7 interpolated)."""
    rates = np.array([16.06, 18.43, 24.05, 21.36, 19.0, 17.0, 14.92, 14.0])
    template = FastSweeps(Truth(blocks=3), 1).frame(0)

    def frames(sweeps: int):  # type: ignore[no-untyped-def]
        rng = np.random.default_rng(5)
        for _ in range(sweeps):
            noise = np.exp(scatter * rng.standard_normal(len(template)))
            yield template.assign(decode_tok_s=rates[template["k"]] * noise)

    return frames


def bench_prompts(sweeps: int) -> None:
    print("\nAcceptance, 3 greedy repeats: a prompt as cluster, and every request as a unit of its own")
    for prompts in (5, 10, 20, 40):
        by_prompt, by_request = prompt_clusters(prompts, 3, min(sweeps, 1000))
        print(f"  {prompts:2d} prompts: {by_prompt}; by request {by_request}")


def bench_drift(sweeps: int) -> None:
    print("\nDrift of 5% over a sweep, 3 blocks, no run noise: error of the K=7 against K=0 effect")
    for name, k_major in (("random blocks", False), ("K-major", True)):
        errors = drift_bias(Truth(drift=0.05, k_major=k_major), sweeps)
        print(f"  {name:14s} mean {errors.mean():+.3f}%, SD {errors.std():.2f}% (random blocks: mean within 0.1%)")


def bench_stop(sweeps: int) -> None:
    print("\nStein's two stages, pilot of 5 blocks (target: intervals hold 93-97%)")
    for name, truth in {
        "runs 2%, blocks 2%": Truth(depths=(0, 1, 2, 4), run_sd=0.02, block_sd=0.02, blocks=40),
        "runs 3 ms, blocks 5%": Truth(depths=(0, 1, 2, 4), run_sd_ms=3.0, block_sd=0.05, blocks=60),
    }.items():
        print(f"  {name}")
        for quantity, share in two_stage_coverage(truth, sweeps, percent=3.0, t_draft_ms=12.0).items():
            print(f"    {quantity:42s} {share}")


def whole_analysis(prepared: dict[str, pd.DataFrame]) -> None:
    """Everything that pages and CLI compute for one sweep, with 10,000 draws."""
    rows, requests, steps, counters = (prepared[x] for x in ("run_cell", "request", "step", "counter"))
    summarise(rows, requests=requests, steps=steps)
    fit_json(rows, study=True, assumed_ms=32.0)
    compare(rows, {"production": 2, "recipe": 3, "native": 7})
    compare_categories(requests, rows)
    gains(figures_of(cell_counts(requests, steps, rows)[0]))
    trend(rows)
    run_checks(rows, requests=requests, counters=counters)


def bench_time(_: int) -> None:
    prepared = frames_of(Truth(blocks=10, run_sd=0.02, block_sd=0.02))
    whole_analysis(prepared)
    wall, cpu = [], []
    for _i in range(7):
        start, start_cpu = time.perf_counter(), time.process_time()
        whole_analysis(prepared)
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
    print(
        f"\nWhole analysis, 8 K x 10 runs x 40 requests, 10,000 draws: median {statistics.median(wall):.2f} s wall, "
        f"{statistics.median(cpu):.2f} s CPU (target 1 s)"
    )


def frames_of(truth: Truth) -> dict[str, pd.DataFrame]:
    """run_cell, request, step and counter of a simulated sweep as DataFrames, without a database."""
    return tables(simulate(truth))


PARTS = {
    "coverage": bench_coverage,
    "convex": bench_convex,
    "best": bench_best,
    "flat": bench_flat,
    "prompts": bench_prompts,
    "drift": bench_drift,
    "stop": bench_stop,
    "time": bench_time,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", type=int, default=2000)
    parser.add_argument("--only", default=",".join(PARTS))
    options = parser.parse_args()
    for name in options.only.split(","):
        PARTS[name](options.sweeps)


if __name__ == "__main__":
    main()
