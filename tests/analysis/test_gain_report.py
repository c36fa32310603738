"""The gain report: published figures and measured requests, in words."""

from __future__ import annotations

import json

import pytest

from backend.analysis.gain_report import gain_reports
from backend.simulate import simulate
from backend.truth import Truth
from tests.analysis.frames import published_positions, published_run_cell, tables


def test_published() -> None:
    (report,) = gain_reports(published_run_cell(), positions=published_positions())
    assert report.decay_k == 3
    assert report.decay is not None
    assert report.decay.ratio.value == pytest.approx(0.600, abs=0.0005)
    third = next(w for w in report.words if w.startswith("K=2 -> 3"))
    assert "0.110 tokens (no interval: reported figures carry no interval)" in third
    assert "position 2's own rate is 0.232, the shallower positions changed by -0.123 together" in third
    assert "not by itself poisoning" in third
    assert report.words[-1].startswith("K=6 -> 7 brings +0.290 tokens a step, more than a shallower position")
    json.dumps(report.to_dict(), allow_nan=False)


def test_measured() -> None:
    data = tables(simulate(Truth(depths=(0, 1, 2, 3), blocks=1, prompts=12, max_tokens=60)))
    (report,) = gain_reports(data["run_cell"], requests=data["request"], steps=data["step"], draws=300)
    assert [g.k for g in report.gains] == [1, 2, 3]
    assert report.gains[1].tokens_per_step.has_interval
    assert report.decay_k == 3
    assert all("odd" not in w for w in report.words)
    json.dumps(report.to_dict(), allow_nan=False)
