"""Forced starts: the same prefixes at every depth, one drafted step a request, counted by no figure but acceptance."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner

from backend import sweep
from backend.cli import cli
from backend.derived import steps_of
from backend.errors import SpecError
from backend.measure.forced import places
from backend.records import Request
from backend.spec_file import load
from backend.store import queries, queries_acceptance
from backend.store.database import Store
from tests.standin.specs import write_spec

STARTS, PROMPTS, TOKENS = 6, 12, 24


def swept(folder: Path, fault: str = "", arguments: tuple[str, ...] = ()) -> Path:
    """A sweep of the stand-in with forced starts; its snapshot."""
    path = write_spec(
        folder / "specs",
        name="forced",
        depths=(0, 1, 3),
        prompts=PROMPTS,
        fault=fault,
        arguments=arguments,
        workload={"max_tokens": TOKENS},
        forced={"starts": STARTS},
    )
    with Store(folder / "data", bundled={}, code_version="test") as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "exclusions", lambda _found: {})  # a busy test machine starves the client
        outcome = sweep.run_sweep(load(path), path.read_text(), store, resume=False, listener=lambda _now: None)
    assert outcome.exit_code == 0
    return folder / "data" / "results.duckdb"


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return swept(tmp_path_factory.mktemp("forced"))


@pytest.mark.slow
def test_every_start_is_shared(snapshot: Path) -> None:
    con = queries.connect(snapshot)
    requests = queries.requests(con, "forced", phase="forced")
    assert requests.groupby("k").size().to_dict() == {1: PROMPTS * STARTS, 3: PROMPTS * STARTS}  # K=0 drafts nothing
    assert (requests["output_tokens"] == 2).all()
    assert (requests["steps"] == 1).all()
    starts = queries_acceptance.starts(con, "forced", phase="forced")
    by_depth = starts.groupby("k")["prefix_hash"].agg(set)
    assert by_depth[1] == by_depth[3]
    assert len(by_depth[1]) == PROMPTS * STARTS
    assert starts["prefix_hash"].notna().all()


@pytest.mark.slow
def test_a_forced_step_is_the_measured_one(snapshot: Path) -> None:
    """Where MEASURE started a step from the same prefix, replaying it gives the same drafts."""
    con = queries.connect(snapshot)
    keys = ["k", "prefix_hash"]
    measured = queries_acceptance.starts(con, "forced").set_index(keys)["accepted_tokens"]
    forced = queries_acceptance.starts(con, "forced", phase="forced").set_index(keys)["accepted_tokens"]
    both = measured.index.intersection(forced.index)
    assert len(both) > 20
    assert (measured[both] == forced[both]).all()


@pytest.mark.slow
def test_no_other_figure_counts_them(snapshot: Path) -> None:
    con = queries.connect(snapshot)
    assert (queries.run_cells(con, "forced")["n_requests"] == PROMPTS).all()
    measured = queries.requests(con, "forced")
    positions = queries.positions(con, "forced")
    steps = measured.groupby("k")["drafted_steps"].sum()
    assert (positions["drafted_steps"] == positions["k"].map(steps)).all()
    codes = set(queries.findings(con, "forced")["code"])
    assert not {code for code in codes if code.startswith(("foreign", "counter", "forced"))}


@pytest.mark.slow
def test_the_answer_tells_both(snapshot: Path) -> None:
    ran = CliRunner().invoke(cli, ["acceptance", "forced", "--against", "1", "--json", "--db", str(snapshot)])
    answer = json.loads(ran.stdout, parse_constant=pytest.fail)
    (effect,) = answer["depth_effect_forced"]
    assert (effect["phase"], effect["k"], effect["prompts"]) == ("forced", 3, PROMPTS)
    assert (effect["shared_share"]["value"], effect["diverged_prompts"]) == (1.0, 0)
    (position,) = effect["positions"]
    assert (position["shared_starts"], position["verdict"]) == (PROMPTS * STARTS, "agree")
    assert position["raw"] == position["difference"]
    assert position["remainder"]["reason"] == "every start is shared: there is no remainder"
    said = CliRunner().invoke(cli, ["acceptance", "forced", "--against", "1", "--db", str(snapshot)]).stdout
    assert "agree on all forced starts (72 starts of 12 prompts)" in said


@pytest.mark.slow
def test_a_planted_effect_is_found_on_forced_starts(tmp_path: Path) -> None:
    snapshot = swept(tmp_path, fault="poison k=3 percent=30")
    ran = CliRunner().invoke(cli, ["acceptance", "forced", "--against", "1", "--json", "--db", str(snapshot)])
    (effect,) = json.loads(ran.stdout)["depth_effect_forced"]
    (position,) = effect["positions"]
    assert position["verdict"] == "poisoning"
    assert position["difference"]["low"] < -0.3 < position["difference"]["high"] < 0


@pytest.mark.slow
def test_an_engine_that_does_not_tell_is_a_finding(tmp_path: Path) -> None:
    con = queries.connect(swept(tmp_path, arguments=("--no-clocks",)))
    found = queries.findings(con, "forced")
    assert (found["code"] == "forced-starts-not-told").sum() == 2
    assert queries_acceptance.starts(con, "forced", phase="forced").empty


def test_places_are_the_same_at_every_depth_and_inside_the_output() -> None:
    assert places("p", 24, 6) == places("p", 24, 6)
    assert len(set(places("p", 24, 6))) == 6
    assert places("p", 4, 6) == [1, 2, 3]  # all there are
    assert places("p", 1, 6) == []
    assert places("p", 96, 6) != places("q", 96, 6)
    assert all(1 <= start < 24 for name in "abcdefgh" for start in places(name, 24, 6))


def test_the_step_of_a_replay_starts_after_what_was_emitted() -> None:
    """4 tokens replayed, 1 more from the prefill: the step starts after 5, as it does inside the whole answer."""
    whole = _request(None, (11, 12, 13, 14, 15, 16, 17, 18), (3, 1), 2)
    replay = _request(4, (11, 12, 13, 14, 15, 16), (1,), 1)
    second, forced = list(steps_of(whole))[1], next(steps_of(replay))
    assert (second.start_token_index, forced.start_token_index) == (5, 5)
    assert second.prefix_hash == forced.prefix_hash
    assert next(steps_of(_request(3, (11, 12, 13, 14, 15), (1,), 1))).prefix_hash != forced.prefix_hash


def _request(replayed: int | None, tokens: tuple[int, ...], accepted: tuple[int, ...], steps: int) -> Request:
    values = dict.fromkeys(field.name for field in fields(Request))
    return Request(
        **values
        | {
            "prompt_id": "p",
            "steps": steps,
            "drafted_steps": steps,
            "step_drafted": (3,) * steps,
            "step_accepted": accepted,
            "token_ids": tokens,
            "replayed_tokens": replayed,
        }
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"workload": {"temperature": 0.5}}, "temperature = 0"),
        ({"workload": {"endpoint": "chat"}}, "endpoint = 'completions'"),
        ({"concurrency": (4,)}, "needs concurrency 1"),
        ({"depths": (0,)}, "a depth above 0"),
    ],
)
def test_a_spec_that_cannot_force_starts_is_refused(
    standin_spec: Callable[..., Path], changes: dict, said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        load(standin_spec(forced={"starts": 4}, **changes))
