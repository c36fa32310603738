"""Test data as DataFrames: the published study, and simulated sweeps as the tables and the view run_cell."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby

import pandas as pd

from backend.derived import steps_of
from backend.records import Counter, PowerSample, Request, Run
from backend.simulate import SimulatedSweep

PUBLISHED = {  # study/published.csv: k -> (decode_tok_s, tokens_per_verify, power_w, tokens_per_joule)
    0: (16.06, 1.00, 44.0, 0.365),
    1: (18.43, 1.67, None, None),
    2: (24.05, 2.15, None, 0.512),
    3: (21.36, 2.26, None, None),
    4: (None, 2.38, None, None),
    5: (None, 2.40, None, None),
    6: (14.92, 2.50, 49.0, 0.304),
    7: (None, 2.79, None, None),
}
PUBLISHED_POSITIONS = {(2, 0): 0.689, (3, 0): 0.644, (3, 1): 0.383, (3, 2): 0.232}
CELL = "published:1xtext:study"


def published_run_cell() -> pd.DataFrame:
    """The published figures as the view gives them: one run per K, no blocks, missing is NaN."""
    return pd.DataFrame(
        [
            {
                "sweep": "published",
                "run_id": f"published:k{k}",
                "cell_id": CELL,
                "k": k,
                "block": None,
                "order_index": None,
                "role": "arm",
                "status": "done",
                "valid": True,
                "source": "published",
                "concurrency": 1,
                "decode_tok_s": rate,
                "tokens_per_step": tokens,
                "acceptance_length": 2.259 if k == 3 else None,
                "cycle_ms": 1000 * tokens / rate if rate else None,
                "power_w": power,
                "tokens_per_joule": per_joule,
            }
            for k, (rate, tokens, power, per_joule) in PUBLISHED.items()
        ]
    )


def published_positions() -> pd.DataFrame:
    """acceptance_by_position of the published figures."""
    return pd.DataFrame(
        [
            {"sweep": "published", "cell_id": CELL, "k": k, "position": i, "survival": a}
            for (k, i), a in PUBLISHED_POSITIONS.items()
        ]
    )


def runs(rates: dict[int, list[float]], **extra: object) -> pd.DataFrame:
    """run_cell rows from decode tok/s per K, one block a run in list order."""
    return pd.DataFrame(
        [
            {
                "sweep": "s",
                "run_id": f"s:b{b}k{k}",
                "cell_id": "s:1xtext:w",
                "k": k,
                "block": b,
                "order_index": b * len(rates) + i,
                "role": "arm",
                "status": "done",
                "valid": True,
                "source": "measured",
                "concurrency": 1,
                "decode_tok_s": rate,
                "tokens_per_step": 1.0,
                "cycle_ms": 1000 / rate,
                **extra,
            }
            for i, (k, values) in enumerate(rates.items())
            for b, rate in enumerate(values)
        ]
    )


def tables(sweep: SimulatedSweep) -> dict[str, pd.DataFrame]:
    """run_cell, request, step, counter of a simulated sweep, as the store would give them."""
    records = list(sweep.records())
    requests = [r for r in records if isinstance(r, Request)]
    power = pd.DataFrame([asdict(r) for r in records if isinstance(r, PowerSample)])
    watts = {} if power.empty else power.groupby("run_id")["power_w"].mean().to_dict()
    by_run = {run_id: list(group) for run_id, group in groupby(requests, key=lambda r: r.run_id)}
    rows = []
    for run in (r for r in records if isinstance(r, Run)):
        mine = by_run[run.run_id]
        emitted = sum(r.output_tokens - 1 for r in mine)
        window, steps = sum(r.decode_s for r in mine), sum(r.steps for r in mine)
        drafted_steps, accepted = sum(r.drafted_steps for r in mine), sum(r.accepted_tokens for r in mine)
        rows.append(
            {
                "sweep": run.sweep,
                "run_id": run.run_id,
                "cell_id": mine[0].cell_id,
                "k": run.k,
                "block": run.block,
                "order_index": run.order_index,
                "role": run.role,
                "status": run.status,
                "valid": run.valid,
                "source": "simulated",
                "concurrency": 1,
                "n_requests": len(mine),
                "tokens_after_first": emitted,
                "decode_s": window,
                "steps": steps,
                "drafted_steps": drafted_steps,
                "drafted_tokens": sum(r.drafted_tokens for r in mine),
                "accepted_tokens": accepted,
                "decode_tok_s": emitted / window,
                "tokens_per_step": emitted / steps,
                "acceptance_length": 1 + accepted / drafted_steps if drafted_steps else 1.0,
                "cycle_ms": 1000 * window / steps,
                "power_w": watts.get(run.run_id),
                "tokens_per_joule": emitted / window / watts[run.run_id] if run.run_id in watts else None,
            }
        )
    return {
        "run_cell": pd.DataFrame(rows),
        "request": pd.DataFrame([asdict(r) for r in requests]),
        "step": pd.DataFrame([asdict(s) for r in requests for s in steps_of(r)]),
        "counter": pd.DataFrame([asdict(r) for r in records if isinstance(r, Counter)]),
    }
