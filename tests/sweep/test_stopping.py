"""[stop] end to end on the stand-in: pilot, one decision, the blocks it takes, and the same after a kill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.errors import Interrupted, Refused, SpecError
from backend.preflight import notes
from backend.progress import Progress
from backend.records import Finding, Sweep
from backend.spec_file import load
from backend.stopping import DECIDED
from backend.store import queries
from tests.sweep.harness import findings, records, runs, sweep

Write = Callable[..., Path]
NARROW = {"decode_tok_s_percent": 0.05, "max_blocks": 6}  # narrower than any machine is steady: it goes to max_blocks
WIDE = {"decode_tok_s_percent": 99.0, "max_blocks": 9}


def blocks_of(data: Path) -> Counter[int | None]:
    return Counter(run.block for run in runs(data) if run.role == "arm" and run.status == "done")


def test_it_goes_on_to_the_blocks_that_the_pilot_decides(standin_spec: Write, tmp_path: Path) -> None:
    data, told = tmp_path / "data", []
    spec = standin_spec(depths=(0, 2), blocks=5, prompts=2, anchors=True, stop=NARROW)
    outcome = sweep(spec, data, listener=told.append)
    assert outcome.exit_code == 0
    assert blocks_of(data) == dict.fromkeys(range(6), 2)
    assert [run.role for run in runs(data)][:: len(runs(data)) - 1] == ["anchor", "anchor"]  # first and last, once each
    assert sum(run.role == "anchor" for run in runs(data)) == 2
    (decided,) = findings(data, DECIDED)
    assert (decided.figure, decided.unit, decided.severity) == (6.0, "blocks", "info")
    assert "max_blocks allows 6" in decided.message
    assert any("max_blocks allows 6" in note for note in outcome.notes)
    assert [now.runs_total for now in told][:: len(told) - 1] == [11, 14]  # the pilot first, then all of it
    assert [r.blocks for r in records(data) if isinstance(r, Sweep)] == [5, 6]
    con = queries.connect(data / "results.duckdb")
    rates = queries.estimates(con, "quick").query("quantity == 'decode_tok_s'")
    assert list(rates["n"]) == [6, 6]
    assert rates["method"].str.contains("pilot of 5").all()
    assert set(queries.findings(con, "quick")["code"]) >= {DECIDED}
    con.close()


def test_a_steady_pilot_is_enough(standin_spec: Write, tmp_path: Path) -> None:
    data = tmp_path / "data"
    spec = standin_spec(depths=(0,), blocks=5, prompts=2, anchors=True, stop=WIDE)
    outcome = sweep(spec, data)
    assert outcome.exit_code == 0
    assert blocks_of(data) == dict.fromkeys(range(5), 1)
    assert [run.role for run in runs(data)].count("anchor") == 2
    assert findings(data, DECIDED)[0].figure == 5.0
    spec.write_text(spec.read_text().replace("blocks = 5", "blocks = 6"))  # the pilot of a started sweep stays
    with pytest.raises(Refused, match="blocks differ"):
        sweep(spec, data, resume=True)


def test_check_tells_the_most_that_it_can_cost(standin_spec: Write) -> None:
    (note,) = [note for note in notes(load(standin_spec(blocks=5, stop=WIDE))) if note.startswith("[stop]")]
    assert "pilot of 5 blocks; at most 9 blocks" in note


class _Kill:
    """Breaks off as a kill does, at the first update that `when` names."""

    def __init__(self, when: Callable[[Progress], bool]) -> None:
        self.when = when

    def __call__(self, now: Progress) -> None:
        if self.when(now):
            raise Interrupted(9)


@pytest.mark.parametrize("block", [3, 5])
def test_a_killed_sweep_comes_to_the_same_decision(standin_spec: Write, tmp_path: Path, block: int) -> None:
    """In the pilot, and after the decision; the decision is in the journal once."""
    data = tmp_path / "data"
    spec = standin_spec(depths=(0,), blocks=5, prompts=2, stop=NARROW)
    with pytest.raises(Interrupted):
        sweep(spec, data, listener=_Kill(lambda now: now.block == block and now.phase == "measure"))
    assert len(findings(data, DECIDED)) == (block >= 5)
    assert sweep(spec, data, resume=True).exit_code == 0
    assert blocks_of(data) == dict.fromkeys(range(6), 1)
    assert len(findings(data, DECIDED)) == 1


def test_what_was_decided_is_not_decided_again(standin_spec: Write, tmp_path: Path) -> None:
    """Even where the pilot would now say something else: the journal's decision stands."""
    data = tmp_path / "data"
    spec = standin_spec(depths=(0,), blocks=5, prompts=2, stop=WIDE)
    assert sweep(spec, data).exit_code == 0
    journal = data / "journal" / "quick" / "sweep.jsonl"
    text = journal.read_text()
    assert '"figure":5.0' in text.replace(" ", "")
    journal.write_text(text.replace('"figure":5.0', '"figure":6.0').replace('"figure": 5.0', '"figure": 6.0'))
    assert sweep(spec, data, resume=True).exit_code == 0
    assert blocks_of(data) == dict.fromkeys(range(6), 1)
    kept = [r for r in records(data) if isinstance(r, Finding) and r.code == DECIDED]
    assert [r.figure for r in kept] == [6.0]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"blocks": 3, "stop": WIDE}, "blocks is the pilot: 5 or more"),
        ({"blocks": 10, "stop": WIDE}, "at most stop.max_blocks"),
        ({"blocks": 5, "stop": {"max_blocks": 9}}, "needs a target"),
        ({"blocks": 5, "stop": {"t_draft_ms": 1.0}, "depths": (0, 1)}, "two depths above it"),
        ({"blocks": 5, "stop": {"decode_tok_s": 1.0}}, "did you mean 'decode_tok_s_percent'"),
    ],
)
def test_a_stop_that_cannot_be_decided_is_refused(standin_spec: Write, changes: dict, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        load(standin_spec(**changes))
