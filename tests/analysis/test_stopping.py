"""Stein's two-stage rule: sizes by hand, coverage that the final sample's own variance would not keep, and words."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from backend.analysis.cycle_model import fit_cycle
from backend.analysis.estimate import student_t_log_mean, student_t_mean, t_quantile
from backend.analysis.stopping import (
    decide,
    pilot_blocks_of,
    run_log_mean,
    stein_blocks,
    stein_mean,
    tightening,
    with_pilot,
)
from backend.analysis.summary import summarise
from backend.truth import FastSweeps, Truth
from tests.analysis.coverage import Share, holds
from tests.analysis.frames import runs
from tests.analysis.stopping_coverage import two_stage_coverage

SPEC = "blocks = 5\n[stop]\ndecode_tok_s_percent = 2.0\n"
TRUTH = Truth(depths=(0, 1, 2, 4), run_sd=0.02, block_sd=0.02, blocks=60)


def near(share: Share) -> bool:
    """93-97%, with 3 binomial standard errors of room for a small simulation."""
    room = 3 * (0.95 * 0.05 / share.n) ** 0.5
    return 0.95 - max(0.02, room) <= share.value <= 0.95 + max(0.02, room)


def test_the_rule_by_hand() -> None:
    t = t_quantile(0.95, 4)
    assert t == pytest.approx(2.776, abs=1e-3)
    assert stein_blocks(1.0, 5, 1.0) == math.ceil(t**2) == 8
    assert stein_blocks(0.1, 5, 1.0) == 5  # the pilot is enough
    found = stein_mean(np.array([1.0, 2, 3, 4, 5, 9, 9]), [True] * 5 + [False] * 2, "ms")
    half = t * np.std([1, 2, 3, 4, 5], ddof=1) / math.sqrt(7)
    assert (found.value, found.n) == (pytest.approx(33 / 7), 7)
    assert found.high - found.value == pytest.approx(half)
    assert "pilot of 5" in found.method


def test_every_figure_is_as_narrow_as_asked_for() -> None:
    for i, frame in enumerate(FastSweeps(TRUTH, 6).frames()):
        decision = decide(frame, 5, 10_000, decode_tok_s_percent=2.0, t_draft_ms=6.0)
        assert not decision.cut
        kept = frame[frame["block"] < decision.blocks]
        if decision.blocks > TRUTH.blocks:
            continue
        cell = with_pilot(kept, SPEC)
        for row in summarise(cell):
            assert 100 * (row.decode_tok_s.high / row.decode_tok_s.value - 1) <= 2.0 + 1e-9, i
            assert "Stein's two stages on the log" in row.decode_tok_s.method
        window = fit_cycle(cell).full
        assert window is not None
        assert window.t_draft_ms.high - window.t_draft_ms.value <= 6.0 + 1e-9
        assert "Stein's two stages" in window.t_draft_ms.method
        assert window.t_draft_ms.n == decision.blocks


def test_the_later_blocks_are_not_looked_at() -> None:
    frame = FastSweeps(TRUTH, 1).frame(0)
    spoiled = frame.assign(decode_tok_s=np.where(frame["block"] >= 5, 1.0, frame["decode_tok_s"]))
    asked = {"decode_tok_s_percent": 1.0}
    assert decide(spoiled, 5, 999, **asked).blocks == decide(frame, 5, 999, **asked).blocks


def test_intervals_of_a_stopped_sweep_cover() -> None:
    found = two_stage_coverage(replace(TRUTH, blocks=40), 250, percent=3.0, t_draft_ms=12.0)
    for quantity in ("decode_tok_s K=0", "decode_tok_s K=4", "t_draft"):
        assert near(found[quantity]), (quantity, found[quantity])
    assert found["stopped before the end of the simulation"].value > 0.95


def test_a_stop_that_reads_the_variance_anew_covers_less() -> None:
    """Why it is decided once: a stop after every block comes when the variance happens to look small."""
    rng, sweeps, half = np.random.default_rng(3), 1500, 0.03
    t = [math.inf, math.inf, *(t_quantile(0.95, n - 1) for n in range(2, 201))]
    hits: Counter[str] = Counter()
    for _ in range(sweeps):
        logs = 0.04 * rng.standard_normal(200)
        n = 3
        while n < 200 and t[n] * logs[:n].std(ddof=1) / math.sqrt(n) > half:
            n += 1
        hits["after every block"] += holds(student_t_mean(logs[:n], "1"), 0.0)
        stein = min(stein_blocks(float(logs[:5].std(ddof=1)), 5, half), 200)
        hits["once"] += holds(stein_mean(logs[:stein], [i < 5 for i in range(stein)], "1"), 0.0)
    assert near(Share(hits["once"], sweeps)), hits["once"] / sweeps
    assert hits["after every block"] / sweeps < 0.93


def test_max_blocks_cuts_and_says_so() -> None:
    frame = FastSweeps(TRUTH, 1).frame(0)
    cut = decide(frame, 5, 6, decode_tok_s_percent=0.1)
    assert (cut.blocks, cut.cut) == (6, True)
    assert "max_blocks allows 6" in cut.words


def test_a_pilot_that_failed_decides_nothing() -> None:
    frame = FastSweeps(TRUTH, 1).frame(0).assign(valid=False)
    nothing = decide(frame, 5, 50, decode_tok_s_percent=1.0, t_draft_ms=1.0)
    assert nothing.blocks == 5
    assert "decides nothing" in nothing.words
    one_short = FastSweeps(TRUTH, 1).frame(0)
    gone = (one_short["k"] == 4) & (one_short["block"] < 4)
    partly = decide(one_short.assign(valid=~gone), 5, 500, decode_tok_s_percent=1.0)
    assert "decode_tok_s K=4 (1 valid runs in the pilot)" in partly.words
    assert partly.blocks > 5


def test_only_a_spec_with_stop_has_a_pilot() -> None:
    assert pilot_blocks_of(SPEC) == 5
    assert [pilot_blocks_of(text) for text in ("blocks = 5\n", None, float("nan"), "not [ toml")] == [None] * 4
    frame = runs({0: [10.0, 11.0]})
    assert with_pilot(frame, "blocks = 5") is frame
    rate = frame["decode_tok_s"].to_numpy()
    assert run_log_mean(frame, rate, "tok/s") == student_t_log_mean(rate, "tok/s")


def test_intervals_tighten_as_blocks_finish() -> None:
    frame = FastSweeps(replace(TRUTH, blocks=20), 1).frame(0)
    table = tightening(with_pilot(frame, SPEC))
    assert sorted(table["k"].unique()) == [0, 1, 2, 4]
    later = table[(table["k"] == 2) & (table["blocks"] >= 5)].set_index("blocks")["half_width_percent"]
    assert (np.diff(later) < 0).all()  # one variance, so every block narrows it
    assert later[20] / later[5] == pytest.approx(math.sqrt(5 / 20), rel=0.02)
    assert tightening(frame.iloc[:0]).empty
