"""Files to import, imports without the bundled sweeps, and their answers as `summary --json` gives them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backend.analysis.summary import summarise
from backend.importers.take_in import Imported, import_files
from backend.store import queries
from backend.store.database import Store

GOLDEN = Path(__file__).parents[1] / "golden"
K0, K3, LOG = (GOLDEN / name for name in ("vllm_bench_serve_k0.json", "vllm_bench_serve_k3.json", "vllm_serve_k3.log"))
DETAILED_ONLY = ("input_lens", "output_lens", "start_times", "ttfts", "itls", "generated_texts", "errors")


def take(data: Path, *paths: Path, name: str | None = "s", k: int | None = None) -> Imported:
    with Store(data, bundled={}, code_version="test") as store:
        return import_files(store, paths, name=name, k=k)


def answers(data: Path, sweep: str = "s") -> dict[tuple[int, str], dict[str, Any]]:
    """(K, workload) -> the row of `summary --json`."""
    con = queries.connect(data / "results.duckdb")
    try:
        rows = summarise(
            queries.run_cells(con, sweep),
            requests=queries.requests(con, sweep),
            steps=queries.steps(con, sweep),
            positions=queries.positions(con, sweep),
            findings=queries.findings(con, sweep),
        )
    finally:
        con.close()
    return {(row.k, row.cell_id.split("-text-")[1]): row.to_dict() for row in rows}


def only(data: Path) -> dict[str, Any]:
    (row,) = answers(data).values()
    return row


def run_cell(data: Path, sweep: str = "s") -> list[dict[str, Any]]:
    con = queries.connect(data / "results.duckdb")
    try:
        frame = queries.run_cells(con, sweep)
        return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]
    finally:
        con.close()


def table(data: Path, name: str) -> list[dict[str, Any]]:
    con = queries.connect(data / "results.duckdb")
    try:
        return queries.table(con, name).to_dict("records")
    finally:
        con.close()


def result(path: Path = K3, **changes: object) -> dict[str, Any]:
    """A golden result with some keys changed; None removes one."""
    told = {**json.loads(path.read_text()), **changes}
    return {key: value for key, value in told.items() if value is not None or key not in changes}


def written(folder: Path, *results: dict[str, Any], name: str = "result.json") -> Path:
    """Results as --append-result writes them: one a line, no newline at the end."""
    path = folder / name
    path.write_text("\n".join(json.dumps(one) for one in results))
    return path


def bench(
    outputs: Sequence[int],
    itls: Sequence[Sequence[float]],
    *,
    drafts: tuple[int, int, int] | None = None,
    rates: Sequence[float] = (),
    **changes: object,
) -> dict[str, Any]:
    """A small detailed result; drafts: (drafts, draft tokens, accepted tokens)."""
    finished = sum(output > 0 for output in outputs)
    told: dict[str, Any] = {
        "model_id": "m", "num_prompts": len(outputs), "completed": finished, "failed": len(outputs) - finished,
        "duration": 1.0, "max_concurrency": 1, "request_rate": "inf", "total_input_tokens": 10 * finished,
        "total_output_tokens": sum(outputs), "input_lens": [10] * len(outputs), "output_lens": list(outputs),
        "ttfts": [0.01] * len(outputs), "itls": [list(gaps) for gaps in itls],
        "errors": ["" if output else "Traceback\nTimeoutError: late" for output in outputs],
    }  # fmt: skip
    if drafts is not None:
        told |= {
            "spec_decode_num_drafts": drafts[0], "spec_decode_draft_tokens": drafts[1],
            "spec_decode_accepted_tokens": drafts[2], "spec_decode_per_position_acceptance_rates": list(rates),
        }  # fmt: skip
    return {**told, **changes}
