"""`acceptance --against`: the depth effect of a whole sweep, through journals, store and command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from backend.cli import cli
from backend.errors import Refused
from backend.store.paths import BUNDLED_SNAPSHOT


def run(*arguments: str, db: Path) -> Result:
    return CliRunner().invoke(cli, ["acceptance", *arguments, "--db", str(db)], catch_exceptions=False)


def test_a_sweep_without_a_depth_effect(quick_sweep: Path) -> None:
    """The stand-in's drafts are right or wrong by prompt and place alone, so equal starts agree."""
    ran = run("quick", "--against", "1", "--json", db=quick_sweep / "results.duckdb")
    answer = json.loads(ran.stdout, parse_constant=pytest.fail)
    assert answer["depth_effect_reason"] is None
    (effect,) = answer["depth_effect_measure"]
    assert (effect["k"], effect["against"], effect["prompts"], effect["diverged_prompts"]) == (3, 1, 4, 0)
    (position,) = effect["positions"]
    assert position["verdict"] == "agree"
    assert position["difference"]["value"] == 0
    assert position["difference"]["high"] == pytest.approx(1 - 0.05**0.25)
    assert position["raw"]["value"] == pytest.approx(position["remainder"]["value"])
    assert "depth_effect_forced" not in answer  # no forced starts were asked for
    said = run("quick", "--against", "1", db=quick_sweep / "results.duckdb").stdout
    assert "agree on all shared starts" in said
    assert "composition, or effect on unshared starts" in said


def test_without_against_nothing_is_compared(quick_sweep: Path) -> None:
    answer = json.loads(run("quick", "--json", db=quick_sweep / "results.duckdb").stdout)
    assert not [key for key in answer if key.startswith("depth_effect")]


def test_a_depth_that_drafted_nothing_is_refused(quick_sweep: Path) -> None:
    for k in ("0", "5"):
        with pytest.raises(Refused, match=f"no drafted step of K={k}.*depths with steps are 1, 3"):
            run("quick", "--against", k, db=quick_sweep / "results.duckdb")


def test_published_figures_say_why_not() -> None:
    answer = json.loads(run("published-glm52-gb10", "--against", "2", "--json", db=BUNDLED_SNAPSHOT).stdout)
    assert answer["depth_effect_measure"] == []
    assert "not stored" in answer["depth_effect_reason"]
    assert "cannot be compared" in run("published-glm52-gb10", "--against", "2", db=BUNDLED_SNAPSHOT).stdout
