"""A sweep grows by blocks: `blocks = 3` in the spec, then --resume, which is what the check too-few-runs advises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.errors import Refused
from backend.records import Sweep
from tests.sweep.harness import records, runs, sweep


def test_more_blocks_keep_what_was_measured(standin_spec: Callable[..., Path], tmp_path: Path) -> None:
    one = standin_spec(depths=(0, 2), anchors=True)
    assert sweep(one, tmp_path / "data").exit_code == 0
    first = {run.run_id: run.ended_unix_s for run in runs(tmp_path / "data")}
    one.write_text(one.read_text().replace("blocks = 1", "blocks = 2"))
    assert sweep(one, tmp_path / "data", resume=True).exit_code == 0
    after = runs(tmp_path / "data")
    assert {run.run_id: run.ended_unix_s for run in after if run.run_id in first} == first
    assert Counter((run.k, run.block) for run in after if run.role == "arm") == {
        (k, block): 1 for k in (0, 2) for block in (0, 1)
    }
    assert [run.k for run in after if run.role == "anchor"] == [0, 0, 0]
    heads = [record for record in records(tmp_path / "data") if isinstance(record, Sweep)]
    assert [head.blocks for head in heads] == [1, 2]
    assert sweep(one, tmp_path / "data", resume=True).done == 6  # nothing is left, and nothing is measured again
    assert len(runs(tmp_path / "data")) == len(after)


def test_fewer_blocks_are_refused(standin_spec: Callable[..., Path], tmp_path: Path) -> None:
    two = standin_spec(depths=(0,), blocks=2)
    assert sweep(two, tmp_path / "data").exit_code == 0
    two.write_text(two.read_text().replace("blocks = 2", "blocks = 1"))
    with pytest.raises(Refused, match="blocks differ"):
        sweep(two, tmp_path / "data", resume=True)
