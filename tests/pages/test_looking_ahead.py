"""The pages that look ahead: What if, the planner on Cycle fit, and Live's tightening intervals."""

from __future__ import annotations

import pytest

from tests.pages.page_databases import BASE_MS, DRAFT_MS, MARGINAL_MS
from tests.pages.test_pages import Environments, figures, visit, words


def test_a_remote_drafter_frees_its_cost(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], "whatif", sweep="full")
    assert not app.exception
    said = words(app)
    assert "Break-even hop:" in said
    assert "from the cycle fit" in said
    curve = figures(app)[0]
    by_name = {trace["name"]: trace for trace in curve["data"]}
    now, then = (by_name[name]["y"] for name in ("now", "what if"))
    assert then[0] == pytest.approx(now[0])
    for k in range(1, 8):
        cycle = BASE_MS + DRAFT_MS + MARGINAL_MS * k
        assert then[k] / now[k] == pytest.approx(cycle / (cycle - DRAFT_MS), rel=0.05)
    assert min(by_name["what if"]["error_y"]["array"]) > 0


def test_the_link_holds_the_change(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    link = {"drafter": "here", "hop": "4", "verify": "1.5", "scale": "1"}
    app = visit(monkeypatch, environments["full"], "whatif", sweep="full", **link)
    assert "Break-even hop" not in words(app)
    values = {number.label: number.value for number in app.number_input}
    assert values["Hop once a step (ms)"] == 4.0
    assert values["Extra cost of a verify position (ms)"] == 1.5
    next(n for n in app.number_input if n.label == "Hop once a step (ms)").set_value(0.5).run()
    assert app.query_params["hop"] in ("0.5", ["0.5"])
    broken = visit(monkeypatch, environments["full"], "whatif", sweep="full", hop="much", verify="nan", scale="-1")
    assert not broken.exception
    assert {n.value for n in broken.number_input if n.label.startswith("Hop")} == {0.0}


def test_the_study_s_what_if(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["published"], "whatif", drafter="apart", freed="given", t_draft="15.88")
    table = next(t.value for t in app.table if "What if (tok/s)" in t.value)
    assert table.loc[table["K"].astype(str) == "2", "What if (tok/s)"].item() == "29.24"
    assert set(table["Why no interval"]) == {"one run"}
    assert "Break-even hop: 15.88 ms (no interval: one run per K)." in words(app)


def test_another_sweep_s_acceptance(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], "whatif", sweep="full", tokens="two-cells", drafter="here")
    table = next(t.value for t in app.table if "What if (tok/s)" in t.value)
    assert (table["What if (tok/s)"] == "not known").sum() == 4  # K=4..7 were not swept there
    assert table["Why no interval"].str.contains("two-cells has no tokens per step at K=7").any()


def test_the_planner_answers_the_study_s_question(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["published"], "cycle", plan="t_draft", to_t_draft="3", scatter="11.006")
    table = next(t.value for t in app.table if "Blocks" in t.value)
    assert list(table["Blocks"].astype(str)) == ["10", "38", "89"]
    full = visit(monkeypatch, environments["full"], "cycle", sweep="full", plan="tok_s", to_tok_s="1")
    assert "of a run's variance is between runs" in words(full)
    assert any("Hours more" in t.value for t in full.table)


def test_intervals_tighten_on_the_live_page(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], "live", sweep="full")
    widths = next(f for f in figures(app) if f["layout"]["xaxis"]["title"]["text"] == "Blocks finished")
    assert sorted(trace["name"] for trace in widths["data"]) == [f"K={k}" for k in range(8)]
    assert all(trace["x"] == [2, 3] for trace in widths["data"])
    assert "No interval yet" in words(visit(monkeypatch, environments["one run"], "live"))
