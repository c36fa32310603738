"""vLLM server logs, both wordings: totals pooled by drafts, never means of window means."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.errors import Refused
from backend.importers import server_log
from tests.importers.importing import LOG, only, run_cell, table, take

OLD = (
    "INFO 06-06 14:20:34 [metrics.py:86] SpecDecoding metrics: Draft acceptance rate: 88.8%, Mean acceptance length: "
    "5.44, Accepted throughput: 26.2 tokens/s, Accepted: 262 tokens, Drafted: 295 tokens, "
    "Per-position acceptance rate: 0.983, 0.949, 0.915, 0.881, 0.712"
)
NO_DRAFTS = (
    "INFO 04-02 18:03:41 [metrics.py:53] SpecDecoding metrics: Draft acceptance rate: nan%, Accepted: 0 tokens, "
    "Drafted: 0 tokens"
)
ENGINE = (
    "INFO [core.py:74] Initializing a V1 LLM engine (v0.10.1) with config: model='m', speculative_config={}, "
    "tokenizer='m'"
)
SPEC = "SpeculativeConfig(method='{}', model=None, num_spec_tokens={})"
THROUGHPUT = (
    "INFO [loggers.py:87] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 9.0 tokens/s, "
    "Running: {} reqs, Waiting: 0 reqs"
)


def window(accepted: int, drafted: int, length: float, *rates: float) -> str:
    shown = ", ".join(f"{rate:.3f}" for rate in rates)
    return (
        f"INFO [metrics.py:120] SpecDecoding metrics: Mean acceptance length: {length:.2f}, "
        f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
        f"Per-position acceptance rate: {shown}, Avg Draft acceptance rate: 1.0%"
    )


def log(folder: Path, *lines: str) -> Path:
    path = folder / "serve.log"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_golden_log_reads_right(tmp_path: Path) -> None:
    run = take(tmp_path, LOG).runs[0].run
    assert (run.k, run.reported_k) == (3, 3)
    row = only(tmp_path)
    assert row["acceptance_length"]["value"] == pytest.approx(1 + 1368 / 1207)  # 2.133, not the mean 2.455
    survival = [rate["value"] for rate in row["acceptance"]]
    assert survival[0] == pytest.approx((0.567 * 1043 + 0.695 * 164) / 1207)
    assert [round(rate, 3) for rate in survival] == [0.584, 0.328, 0.221]
    assert row["acceptance_rate"]["value"] == pytest.approx(1368 / (3129 + 492))
    assert (row["decode_tok_s"]["value"], row["cycle_ms"]["value"]) == (None, None)
    (cell,) = run_cell(tmp_path)
    assert (cell["drafted_steps"], cell["drafted_tokens"], cell["accepted_tokens"]) == (1207, 3621, 1368)
    assert (cell["concurrency"], cell["workload"]) == (1, "server-log")
    (sweep,) = table(tmp_path, "sweep")
    assert (sweep["target_model"], sweep["speculator_method"], sweep["speculator_model"]) == (
        "models/target", "draft_model", "models/draft",
    )  # fmt: skip


def test_the_older_wording_reads_right(tmp_path: Path) -> None:
    take(tmp_path / "d", log(tmp_path, OLD))
    row = only(tmp_path / "d")
    assert (row["k"], row["acceptance_length"]["value"]) == (5, pytest.approx(1 + 262 / 59))  # 59 drafts
    assert [rate["value"] for rate in row["acceptance"]] == pytest.approx([0.983, 0.949, 0.915, 0.881, 0.712])
    assert row["acceptance_rate"]["value"] == pytest.approx(262 / 295)


def test_windows_without_drafts_weigh_nothing(tmp_path: Path) -> None:
    take(tmp_path / "d", log(tmp_path, NO_DRAFTS, OLD, NO_DRAFTS))
    assert only(tmp_path / "d")["acceptance_length"]["value"] == pytest.approx(1 + 262 / 59)


def test_a_rate_is_accepted_over_drafted(tmp_path: Path) -> None:
    """Drafted 100, accepted 60, per position 40 + 20: 60%, never 120%."""
    path = log(tmp_path, window(60, 100, 2.2, 0.8, 0.4))
    take(tmp_path / "d", path)
    assert only(tmp_path / "d")["acceptance_rate"]["value"] == pytest.approx(0.6)


def test_short_drafts_are_counted_from_the_rates(tmp_path: Path) -> None:
    """n-gram drafts are often shorter than K: 60 accepted in 50 steps that drafted 120, not in 120 / 5 = 24."""
    path = log(tmp_path, ENGINE.format(SPEC.format("ngram", 5)), window(60, 120, 2.2, 0.6, 0.3, 0.2, 0.1, 0.0))
    imported = take(tmp_path / "d", path)
    assert only(tmp_path / "d")["acceptance_length"]["value"] == pytest.approx(2.2)
    assert "shorter than K" in imported.runs[0].notes[0]


def test_the_config_says_k0(tmp_path: Path) -> None:
    take(tmp_path / "d", log(tmp_path, ENGINE.format("None"), THROUGHPUT.format(1)))
    row = only(tmp_path / "d")
    assert (row["k"], row["acceptance_length"]["value"], row["acceptance_rate"]["value"]) == (0, 1.0, None)


def test_without_spec_lines_or_config_k_is_asked_for(tmp_path: Path) -> None:
    path = log(tmp_path, THROUGHPUT.format(1))
    with pytest.raises(Refused, match=r"does not tell K.*--k N"):
        take(tmp_path / "d", path)
    assert take(tmp_path / "d", path, k=0).runs[0].run.reported_k is None
    with pytest.raises(Refused, match="no SpecDecoding line"):
        take(tmp_path / "d", path, name="other", k=3)


def test_speculation_that_never_drafted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="K=3 but no SpecDecoding line"):
        take(tmp_path / "d", log(tmp_path, ENGINE.format(SPEC.format("mtp", 3)), THROUGHPUT.format(0)))


@pytest.mark.parametrize("lines", [
    (ENGINE.format("None"), OLD),
    (ENGINE.format(SPEC.format("mtp", 3)), OLD),
    (ENGINE.format(SPEC.format("mtp", 3)), window(1, 3, 2.0, 1.0, 0.0, 0.0), ENGINE.format(SPEC.format("mtp", 4))),
    (OLD, window(1, 3, 2.0, 1.0, 0.0, 0.0)),
])  # fmt: skip
def test_several_depths_in_a_log_are_refused(tmp_path: Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(Refused, match="tells several depths: K="):
        take(tmp_path / "d", log(tmp_path, *lines))


def test_arguments_tell_k(tmp_path: Path) -> None:
    args = "INFO [api_utils.py:286] non-default args: {'speculative_config': {'num_speculative_tokens': 2}}"
    with pytest.raises(Refused, match="several depths"):
        take(tmp_path / "d", log(tmp_path, args, OLD))
    told = server_log.parse(f"{args}\n{window(1, 4, 1.5, 0.5, 0.0)}", "x", None)
    assert (told.k, told.k_by) == (2, "the server's arguments (line 1)")


def test_a_torn_last_line_is_left_out_and_a_broken_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "torn.log"
    path.write_text(f"{OLD}\n{OLD[:150]}")
    take(tmp_path / "d", path)
    assert only(tmp_path / "d")["acceptance_length"]["value"] == pytest.approx(1 + 262 / 59)
    with pytest.raises(Refused, match="line 1: SpecDecoding line without"):
        take(tmp_path / "d", log(tmp_path, OLD[:150], OLD))


def test_impossible_counts_exclude(tmp_path: Path) -> None:
    run = take(tmp_path / "d", log(tmp_path, window(20, 10, 11.0, 1.0, 1.0, 1.0, 1.0, 1.0))).runs[0].run
    assert (run.valid, "impossible-counts" in (run.exclusion_reason or "")) == (False, True)


def test_a_log_that_grew_is_the_same_run(tmp_path: Path) -> None:
    path = log(tmp_path, OLD)
    take(tmp_path / "d", path)
    more = window(5, 25, 2.0, 1.0, 0.0, 0.0, 0.0, 0.0)
    assert take(tmp_path / "d", log(tmp_path, OLD, more)).runs[0].new
    assert len(table(tmp_path / "d", "run")) == 1
    assert only(tmp_path / "d")["acceptance_length"]["value"] == pytest.approx(1 + 267 / 64)
    with pytest.raises(Refused, match=r"was imported as s:k5-.* in cell s:c1-text-server-log before"):
        take(tmp_path / "d", log(tmp_path, OLD, more, THROUGHPUT.format(4)))
