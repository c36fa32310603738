"""Page Acceptance: its figures are the analysis', its words follow them, and what cannot be told is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from backend.analysis.acceptance import acceptance
from backend.records import Record, Request
from backend.store import queries
from tests.pages.page_databases import PROMPTS, TOKENS, accepts, build, cell_of, measured, run_of, sweep_of
from tests.pages.test_pages import Environments, figures, visit, words

DEPTHS = (1, 2, 4)


def forced(run_id: str, cell_id: str, k: int) -> list[Request]:
    """Three starts of every prompt, replayed."""
    made = []
    for prompt in PROMPTS:
        for start in (5, 20, 33):
            taken = min(accepts(prompt, start), k, TOKENS - start - 1)
            base = next(r for r in measured(run_of("x", 0, 0, k), cell_of("x")) if isinstance(r, Request))
            made.append(
                replace(
                    base,
                    request_id=f"{run_id}:1:forced:{len(made)}",
                    run_id=run_id,
                    cell_id=cell_id,
                    phase="forced",
                    request_index=len(made),
                    prompt_id=prompt,
                    output_tokens=2,
                    steps=1,
                    drafted_steps=1,
                    drafted_tokens=k,
                    accepted_tokens=taken,
                    step_drafted=(k,),
                    step_accepted=(taken,),
                    token_ids=tuple(range(start + 1)),
                    replayed_tokens=start - 1,
                )
            )
    return made


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A viewer's environment: sweeps with forced starts, sampled, and imported without token ids."""
    sweeps: dict[str, list[list[Record]]] = {}
    for name in ("forced", "sampled", "imported"):
        cell = cell_of(name)
        cell = replace(cell, temperature=0.8) if name == "sampled" else cell
        runs = []
        for order, k in enumerate(DEPTHS):
            records = measured(run_of(name, order, 0, k), cell)
            if name == "imported":
                records = [
                    replace(r, token_ids=None, output_hash=None) if isinstance(r, Request) else r for r in records
                ]
            extra = forced(records[0].run_id, cell.cell_id, k) if name == "forced" else []
            runs.append([*records, *extra])
        source = "imported" if name == "imported" else "simulated"
        sweeps[name] = [[sweep_of(name, source=source), cell], *runs]
    return {"SOUNDING_DATA": str(build(tmp_path_factory.mktemp("others"), sweeps, {}))}


def shown(app: AppTest, column: str) -> list[dict]:
    """The rows of the table that has this column."""
    table = next(t.value for t in app.table if column in t.value.columns)
    return table.to_dict("records")


def test_figures_are_those_of_the_command(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], "acceptance", sweep="full", rates="open", effect="open")
    con = queries.connect(Path(environments["full"]["SOUNDING_DATA"]) / "results.duckdb")
    told = acceptance(queries.requests(con, "full"), queries.steps(con, "full"), queries.run_cells(con, "full"))
    rows = {(row["K"], row["Position"]): row for row in shown(app, "Acceptance where drafted")}
    assert len(rows) == 28  # K=1..7
    for depth in told:
        for place in depth.positions:
            row = rows[(depth.k, place.position)]
            for name in ("survival", "conditional", "per_drafted"):
                column = {
                    "survival": "Survival",
                    "conditional": "Conditional acceptance",
                    "per_drafted": "Acceptance where drafted",
                }[name]
                rate = getattr(place, name)
                assert row[column].startswith("not known" if rate.value is None else f"{rate.value:.3f}")
            low, high = place.survival.low, place.survival.high
            assert row["Survival"].endswith(f"[{low:.3f},\N{NO-BREAK SPACE}{high:.3f}]")
    lines, heat, histogram, effect = figures(app)
    assert len(lines["data"]) == 7
    assert heat["data"][0]["type"] == "heatmap"
    assert sum(histogram["data"][0]["y"]) == pytest.approx(1)
    assert {trace["name"] for trace in effect["data"]} == {"on shared starts", "raw, over all steps"}


def test_equal_starts_agree_and_the_raw_difference_is_named(
    environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = visit(monkeypatch, environments["full"], "acceptance", sweep="full", against="3", position="2")
    assert "agree on all shared starts" in words(app)
    assert "composition, or effect on unshared starts" in words(app)
    assert "poisons" not in words(app)
    rows = shown(app, "of them differ")
    assert [row["K"] for row in rows] == [4, 5, 6, 7]  # those that draft position 2, K=3 apart
    assert all(row["of them differ"] == 0 for row in rows)


def test_the_link_is_the_state(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], "acceptance", rate="conditional", k="2,5", length="4", against="7")
    assert [trace["name"] for trace in figures(app)[0]["data"]] == ["K=2", "K=5"]
    assert app.selectbox("length").value == "4"
    assert len(figures(app)[2]["data"][0]["y"]) == 5
    app.selectbox("rate").select("per_drafted").run()
    assert app.query_params["rate"] in ("per_drafted", ["per_drafted"])
    app.multiselect("k").unselect("2").unselect("5").run()
    assert "Choose at least one depth" in words(app)
    assert not app.exception
    app = visit(
        monkeypatch, environments["full"], "acceptance", rate="x", k="99", length="0", against="9", position="8"
    )
    assert not app.exception


def test_forced_starts_are_shown_when_there_are_any(others: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, others, "acceptance", sweep="forced", effect="open")
    assert "agree on all forced starts (15 starts of 5 prompts)" in words(app)
    assert [row["Forced starts"] for row in shown(app, "Forced starts")] == [15, 15]
    assert "on forced starts" in {trace["name"] for trace in figures(app)[3]["data"]}
    app = visit(monkeypatch, others, "acceptance", sweep="imported", effect="open")
    assert "This sweep has none" in words(app)


@pytest.mark.parametrize(
    ("sweep", "said"), [("sampled", "sampled at temperature 0.8"), ("imported", "starts are not known")]
)
def test_what_cannot_be_matched_says_why(
    sweep: str, said: str, others: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = visit(monkeypatch, others, "acceptance", sweep=sweep, effect="open")
    assert said in words(app)
    assert {row["Difference on them"] for row in shown(app, "Difference on them")} == {"not known"}
    assert all("[" in row["Raw difference"] for row in shown(app, "Raw difference"))


def test_above_concurrency_1(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(
        monkeypatch, environments["full"], "acceptance", sweep="two-cells", cell="two-cells:4xtext:mixed", effect="open"
    )
    assert "concurrency 4" in words(app)
    assert not app.exception


def test_published_rates_have_no_interval(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["published"], "acceptance", rates="open", effect="open")
    rows = {(row["K"], row["Position"]): row for row in shown(app, "Survival")}
    assert (rows[(3, 0)]["Survival"], rows[(3, 1)]["Conditional acceptance"]) == ("0.644", "0.595")
    assert {row["Why no interval"] for row in rows.values()} == {"a reported figure carries no interval"}
    assert "2.259 tokens" in words(app)
    assert "is not stored" in words(app)
    assert len(figures(app)) == 2


def test_a_single_depth_is_not_compared(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no second depth" in words(visit(monkeypatch, environments["one run"], "acceptance", effect="open"))


def test_an_n_that_was_not_published_is_not_0(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["published"], "acceptance", rates="open")
    table = next(shown.value for shown in app.table if "Survival" in shown.value)
    assert "n" not in table or not table["n"].str.contains(r"\[0\]", regex=True).any()
