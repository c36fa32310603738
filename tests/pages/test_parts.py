"""The parts of pages that need no page: names of the server, words for numbers, charts."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from backend import charts
from backend.analysis.estimate import Estimate, point
from backend.charts import Axis
from pages.parts import host, link, terms

TOKS = Axis("Decode throughput", "tok/s", 2)


@pytest.mark.parametrize(
    ("name", "let_in"),
    [
        ("127.0.0.1:8501", True),
        ("[::1]:8501", True),
        ("10.0.0.7", True),
        ("gx10:8501", True),
        ("localhost", True),
        ("GX10.local:8501", True),
        ("viewer.lan.", True),
        ("evil.example.com:8501", False),
        ("evil.com", False),
        ("127.0.0.1.evil.com", False),
        ("local.evil.com", False),
        ("", False),
        ("[::1", False),
        (None, True),
    ],
)
def test_host_guard(name: str | None, let_in: bool) -> None:
    assert host.admitted(name) is let_in


def test_host_guard_leaves_a_list_to_streamlit() -> None:
    assert host.admitted("viewer.example.org", ["viewer.example.org"])


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (61, "1 min 01 s"),
        (3600, "1 h 00 min"),
        (90000, "1 d 1 h"),
        (-3, "0 s"),
        (None, "not known"),
        (float("nan"), "not known"),
    ],
)
def test_durations(seconds: float | None, words: str) -> None:
    assert terms.lasting(seconds) == words


def test_numbers_have_their_interval_and_unit() -> None:
    assert TOKS.words(24.049, 23.1, 25) == "24.05 [23.10,\N{NO-BREAK SPACE}25.00] tok/s"
    assert TOKS.words(24.049) == "24.05 tok/s"
    assert TOKS.words(None) == TOKS.words(float("nan")) == "not known"
    assert Axis("Acceptance", "1", 3).words(0.5) == "0.500"


def test_a_turned_change_is_the_same_ratio() -> None:
    change = Estimate(25.0, 0.0, 100.0, 0.95, "m", 3, "%", None)
    turned = terms.turned(change)
    assert (turned.value, turned.low, turned.high) == pytest.approx((-20.0, -50.0, 0.0))
    assert terms.turned(point(25.0, "%", "one run", method="m", n=1)).low is None


def points(**columns: list) -> pd.DataFrame:
    """An estimate table over K=0..3 with a gap at K=2 and no interval at K=3."""
    return pd.DataFrame(
        {
            "k": [0, 1, 2, 3],
            "value": [16.0, 18.0, None, 21.0],
            "low": [15.5, 17.0, None, None],
            "high": [16.5, 19.0, None, None],
            "n": [3, 3, 0, 1],
            "reason": [None, None, "not measured", "one run"],
            **columns,
        }
    )


def test_a_curve_draws_gaps_and_only_the_intervals_there_are() -> None:
    figure = json.loads(charts.depth_curve(points(), TOKS, name="s", reference=16.0).to_json())
    curve = next(trace for trace in figure["data"] if trace["name"] == "s")
    assert curve["connectgaps"] is False
    bars = curve["error_y"]["array"]
    if isinstance(bars, dict):  # Plotly's packed arrays
        import base64

        import numpy as np

        bars = [None if np.isnan(b) else b for b in np.frombuffer(base64.b64decode(bars["bdata"]), bars["dtype"])]
    assert bars[0] == pytest.approx(0.5)
    assert bars[2] is None
    assert bars[3] is None
    assert "no value at K=2" in figure["layout"]["xaxis"]["title"]["text"]
    assert figure["layout"]["xaxis"]["dtick"] == 1
    assert figure["layout"]["yaxis"]["title"]["text"] == "Decode throughput (tok/s)"
    assert "no interval: one run" in curve["text"][3]
    assert "n=3" in curve["text"][0]
    assert figure["layout"]["paper_bgcolor"] == "rgba(0,0,0,0)"


def test_series_differ_by_more_than_colour() -> None:
    both = pd.concat([points(series=["a"] * 4), points(series=["b"] * 4)])
    figure = charts.depth_curve(both, TOKS)
    looks = [(trace.marker.symbol, trace.line.dash) for trace in figure.data]
    assert len(set(looks)) == len(looks) == 2


def contrast(colour: str, background: str) -> float:
    """WCAG contrast of two #rrggbb colours."""

    def luminance(code: str) -> float:
        parts = (int(code[i : i + 2], 16) / 255 for i in (1, 3, 5))
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    light, dark = sorted((luminance(colour), luminance(background)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colour", [*charts.COLOURS, charts.NEUTRAL])
def test_colours_stand_out_on_light_and_dark(colour: str) -> None:
    assert contrast(colour, "#ffffff") >= 3
    assert contrast(colour, "#12171b") >= 3


def test_depth_names() -> None:
    assert [charts.depth_names(d) for d in ([], [4], [5, 4], [7, 4, 5])] == ["", "K=4", "K=4 and 5", "K=4, 5 and 7"]


@pytest.mark.parametrize(
    "text",
    [
        "![x](http://elsewhere.example/?q=1)",
        "![x][y]\n\n[y]: http://elsewhere.example",
        "[look](http://elsewhere.example)",
        "[![x](http://elsewhere.example/a)](http://elsewhere.example/b)",
    ],
)
def test_text_from_outside_fetches_nothing(text: str) -> None:
    """Markdown of the whole text has neither an image nor a link."""
    from markdown_it import MarkdownIt

    assert MarkdownIt().render(text) != MarkdownIt().render(terms.outside(text))
    rendered = MarkdownIt().render(terms.outside(text))
    assert "<img" not in rendered
    assert "<a " not in rendered


def test_our_own_links_and_intervals_are_left_alone() -> None:
    for text in (link.to_runs("3", "a sweep", depth=2), "24.05 [23.10, 25.00]", "*within* 1%"):
        assert terms.outside(text) == text


def test_rings_tell_the_answer_from_what_is_as_good() -> None:
    figure = charts.depth_curve(
        points(), TOKS, marked=1, marked_name="fastest", within=[0, 1, 2], within_name="as good"
    )
    rings = {trace.name: trace for trace in figure.data if trace.name in ("fastest", "as good")}
    assert list(rings["fastest"].x) == [1]
    assert list(rings["as good"].x) == [0, 1]  # there is no value at K=2 to ring
    assert rings["fastest"].marker.symbol != rings["as good"].marker.symbol
    assert figure.layout.showlegend


def test_two_columns_are_drawn_in_the_order_of_the_rows() -> None:
    rows = pd.DataFrame({"name": ["b", "a", "c"], "value": [3.0, None, 1.0]})
    for look in charts.LOOKS:
        (trace,) = charts.two_columns(rows, "name", "value", look).data
        assert list(trace.x) == ["b", "a", "c"]
        assert trace.type == ("bar" if look == "bars" else "scatter")
    assert charts.two_columns(rows, "name", "value", "line").data[0].connectgaps is False


def test_over_order_has_a_line_a_series() -> None:
    rows = pd.DataFrame({"order_index": [1, 0, 0], "value": [2.0, 1.0, 5.0], "series": ["a", "a", "b"], "hover": "h"})
    figure = charts.over_order(rows, TOKS)
    assert {trace.name: list(trace.x) for trace in figure.data} == {"a": [0, 1], "b": [0]}
    assert len({(trace.marker.symbol, trace.line.dash) for trace in figure.data}) == 2


def test_axes_of_many_depths_can_be_read() -> None:
    deep = pd.DataFrame({"k": range(33), "value": 1.0, "low": None, "high": None, "n": 1, "reason": "one run"})
    assert charts.depth_curve(deep, TOKS).layout.xaxis.dtick == 4
    assert charts.depth_curve(deep[:17], TOKS).layout.xaxis.dtick == 1
