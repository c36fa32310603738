"""INSTRUMENT where there is no probe, and what a spec may ask of it; real vLLM: tests/real_vllm/test_proposer.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from backend.engines import engine_for
from backend.errors import SpecError
from backend.spec_file import load
from backend.store import journal
from tests.sweep.harness import runs, sweep

Write = Callable[..., Path]


def test_a_server_without_the_probe_is_measured_all_the_same(standin_spec: Write, tmp_path: Path) -> None:
    """A launch script that does not load it: one finding a run says so, and the run counts."""
    path = standin_spec(depths=(0, 3))
    path.write_text(path.read_text() + "\n[timing]\nprompts = 2\n")
    outcome = sweep(path, tmp_path / "data")
    assert outcome.exit_code == 0
    assert all(run.valid for run in runs(tmp_path / "data"))
    lines = [line for file in (tmp_path / "data" / "journal").rglob("r*.jsonl") for line in journal.read(file).records]
    found = [line for line in lines if type(line).__name__ == "Finding" and line.code == "probe-unavailable"]
    assert len(found) == 2
    assert {finding.severity for finding in found} == {"warning"}
    assert not [line for line in lines if type(line).__name__ == "StageTimes"]


@pytest.mark.parametrize(
    ("server", "timing", "said"),
    [
        ('host = "0.0.0.0"', "", "development endpoints"),
        ("", "prompts = 0\nalone = true", "measures nothing"),
        ('launcher = "command"\nargv = ["x"]', "prompts = 4\ndiagnostic = true", "launcher of ours"),
        ("", "prompts = 0\ndiagnostic = true", "prompts above 0"),
        ("", "prompt = 4", "did you mean 'prompts'"),
    ],
)
def test_what_cannot_be_timed_is_refused(tmp_path: Path, server: str, timing: str, said: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(
        'name = "s"\ndepths = [0, 1]\n[target]\nmodel = "t"\n[speculator]\nmethod = "ngram"\n'
        f'[workload]\nprompts = "p"\nmax_tokens = 4\n[server]\n{server}\n[timing]\n{timing}\n'
    )
    with pytest.raises(SpecError, match=said):
        load(path)


def test_a_diagnostic_run_is_eager_and_the_others_are_not(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(
        'name = "s"\ndepths = [0, 1]\n[target]\nmodel = "t"\n[speculator]\nmethod = "ngram"\n'
        '[workload]\nprompts = "p"\nmax_tokens = 4\n[server]\npython = "python3"\n[timing]\ndiagnostic = true\n'
    )
    spec = load(path)
    plain, eager = (engine_for(spec, eager=wanted).command(1)[0] for wanted in (False, True))
    assert "--enforce-eager" not in plain
    assert "--enforce-eager" in eager
    assert "sounding_probe.stages.StageProbe" in plain
