"""/metrics pages: a real one of vLLM 0.32 at K=4, and what two pages say together."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.measure.counters import (
    ACCEPTED,
    ACCEPTED_PER_POSITION,
    DRAFTS,
    GENERATED,
    ITERATIONS,
    Page,
    deltas,
    gained,
    parse,
    reported_depth,
)

REAL = (Path(__file__).parents[1] / "golden" / "metrics_vllm_0.32_k4.txt").read_text()


def test_a_real_page() -> None:
    """The values as they stand in the file; `_created` gauges are never taken for counters."""
    page = Page(parse(REAL), 0.0, 0.0)
    assert page.total(GENERATED) == 1044
    assert page.total(DRAFTS) == 481
    assert page.total(ACCEPTED) == 566
    assert page.total(ACCEPTED_PER_POSITION) == 261 + 183 + 78 + 44
    assert page.total(ITERATIONS) == 490
    assert not any(name.endswith("_created") for name, _ in page.series)


def test_identity_of_the_real_page() -> None:
    """generated = requests + drafted steps + accepted - overshoot: 9 + 481 + 566 - 12, and 12 <= K x requests."""
    page = Page(parse(REAL), 0.0, 0.0)
    overshoot = 9 + page.total(DRAFTS) + page.total(ACCEPTED) - page.total(GENERATED)  # type: ignore[operator]
    assert overshoot == 12
    assert 0 <= overshoot <= 4 * 9


def test_reported_depth() -> None:
    assert reported_depth(REAL) == 4
    without = "\n".join(line for line in REAL.splitlines() if "spec_decode" not in line)
    assert reported_depth(without) == 0
    assert reported_depth("# HELP up x\n# TYPE up gauge\nup 1\n") is None


def two_engines(first: float, second: float) -> str:
    lines = [
        f'vllm:generation_tokens_total{{engine="{e}",model_name="m"}} {v}' for e, v in (("0", first), ("1", second))
    ]
    return "# TYPE vllm:generation_tokens counter\n" + "\n".join(lines) + "\n"


def test_engines_are_kept_apart_and_summed() -> None:
    before, after = Page(parse(two_engines(10, 100)), 1.0, 1.0), Page(parse(two_engines(15, 107)), 2.0, 2.0)
    rows = deltas("r", "c", "measure", "phase", before, after)
    assert [(row.labels, row.before, row.after) for row in rows] == [('engine="0"', 10, 15), ('engine="1"', 100, 107)]
    assert gained(rows, GENERATED) == 12


def test_a_series_born_inside_the_span_counts_from_zero() -> None:
    rows = deltas("r", "c", "measure", "phase", Page({}, 1.0, 1.0), Page(parse(two_engines(5, 7)), 2.0, 2.0))
    assert [row.before for row in rows] == [None, None]
    assert gained(rows, GENERATED) == 12


def test_nothing_is_not_zero() -> None:
    assert Page({}, 0.0, 0.0).total(DRAFTS) is None
    assert gained([], DRAFTS) is None


@pytest.mark.parametrize("name", [GENERATED, DRAFTS, ITERATIONS])
def test_every_kept_name_is_in_the_real_page(name: str) -> None:
    assert any(sample == name for sample, _ in parse(REAL))
