"""A record survives its JSON line, and a line that is none says why."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings

from backend.errors import StoreError
from backend.records import Counter, PowerSample, Record
from backend.store.lines import from_line, to_line
from tests.store.store_samples import blank, run, sweep
from tests.store.store_strategies import any_record


@settings(max_examples=300, deadline=None)
@given(any_record)
def test_round_trip(record: Record) -> None:
    """Types too: a tuple comes back as a tuple, a whole float as a float."""
    line = to_line(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    back = from_line(line)
    assert back == record
    assert repr(back) == repr(record)


def _changed(**changes: object) -> bytes:
    row = json.loads(to_line(run("r", 3)))
    row.update(changes)
    return json.dumps({name: value for name, value in row.items() if value != "DELETE"}).encode()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "Expecting"),
        (b"[1]", "not a JSON object"),
        (b'{"k": 1}', "unknown record None"),
        (_changed(record="Ran"), "unknown record 'Ran', valid are Sweep, "),
        (_changed(depth=3), "Run has no field 'depth'"),
        (_changed(k="DELETE"), "Run without k"),
        (_changed(k=None), "Run without k"),
        (_changed(k=3.0), "Run.k is 3.0: expected a whole number"),
        (_changed(k=True), "Run.k is True: expected a whole number"),
        (_changed(k=2**63), "expected a whole number of 64 bits"),
        (_changed(valid=1), "Run.valid is 1: expected true or false"),
        (_changed(status="ended"), "expected one of running, done, failed, interrupted"),
        (_changed(env=[1]), "Run.env is [1]: expected an object"),
        (_changed(env={"a": 1}), "expected text"),
        (_changed(server_start_s="3"), "expected a finite number"),
        (_changed(server_start_s=math.nan), "expected a finite number"),
        (b'{"record": "\xff"}', "codec can't decode"),
    ],
)
def test_a_line_that_is_no_record_says_why(line: bytes, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        from_line(line)
    assert said in str(caught.value)


def test_a_field_that_an_older_version_did_not_write_is_none() -> None:
    assert from_line(_changed(env="DELETE", log_path="DELETE")) == run("r", 3)


def test_what_cannot_be_stored_is_refused_before_it_is_written() -> None:
    with pytest.raises(StoreError, match=r"PowerSample.power_w is nan: expected a finite number"):
        to_line(blank(PowerSample, power_w=math.nan))
    with pytest.raises(StoreError, match="Counter without after"):
        to_line(blank(Counter, phase="measure", span="busy", after=None))


def test_text_that_is_no_unicode_is_kept_readable() -> None:
    """A log tail may hold any byte; the line must still be UTF-8 for every reader."""
    back = from_line(to_line(sweep(description="log \udcff end")))
    assert back == sweep(description="log ? end")
