"""SQL: one SELECT on the snapshot, in the link; its rows, files of them and a chart of two columns."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from backend import charts
from backend.errors import Refused
from backend.store import sql_guard
from backend.store.files import encode
from backend.store.sql_examples import examples
from pages.parts import asked, frame, link, show, terms
from pages.parts.once import once

NO_CHART = "no chart"

view = frame.open_page("SQL", needs="snapshot")
snapshot = view.snapshot
starts = examples(view.name)
first = next(iter(starts.values()))
asked_for = st.query_params.get("sql") or first
link.keep("sql", st.query_params.get("sql"))


def take_example() -> None:
    """The chosen example into the link; the chart's columns were another query's."""
    if st.session_state["example"] is not None:
        to_link(starts[st.session_state["example"]])


def to_link(text: str) -> None:
    """A query into the link, which is what is run."""
    rest = {key: value for key, value in st.query_params.to_dict().items() if key not in ("x", "y", "as")}
    st.query_params.from_dict({**rest, "sql": text.strip()})


def run_again() -> None:
    """What is typed into the link; asked anew, too, where it was refused before."""
    st.session_state.pop("sql-refused", None)
    to_link(st.session_state["sql-text"])


st.markdown(
    f"One statement that reads this snapshot. It runs in a process of its own that can write nothing and read nothing "
    f"else, for at most {sql_guard.DEADLINE_S:g} s; at most {sql_guard.SHOWN_ROWS} rows are shown. The query is in the "
    "link, so a colleague sees the same."
)
st.selectbox(
    "Start from an example", list(starts), index=None, key="example", on_change=take_example, placeholder="none"
)
shown = st.session_state.get("sql-shown") if "sql-text" in st.session_state else None  # lost on another page
if shown != asked_for:  # else what is typed but not yet run would be lost
    st.session_state["sql-shown"] = st.session_state["sql-text"] = asked_for
with st.form("sql-form", border=False):
    st.text_area("Query", key="sql-text", height=170, max_chars=sql_guard.MOST_CHARACTERS)
    st.form_submit_button("Run", on_click=run_again)

more = link.more("columns", "Tables, views and what their columns mean")
if more.open:
    with more:
        tables = snapshot.tables().set_index("name")
        name = link.one(
            "table",
            "Table or view",
            list(tables.index),
            "k_summary" if "k_summary" in tables.index else str(tables.index[0]),
            words=lambda t: f"{t} ({tables.loc[t, 'kind']}, {terms.plural(int(tables.loc[t, 'rows']), 'row')})",
        )
        st.markdown(terms.outside(terms.known(tables.loc[name, "comment"])))
        st.dataframe(snapshot.table_head(name, 1)[1], hide_index=True, alt=f"Columns of {name}")

this = (snapshot.key, asked_for)
refused = st.session_state.get("sql-refused")
if refused is None or refused[0] != this:  # else a query that takes all its time would do so in every rerun
    try:
        found, refused = asked.answer(snapshot, asked_for), None
    except Refused as refusal:
        refused = (this, str(refusal))
    st.session_state["sql-refused"] = refused
if refused:
    st.error(f"No rows: {terms.outside(refused[1])}")
    st.stop()

rows = asked.rows_of(found)
cut = {
    "rows": f"Truncated: only the first {len(rows)} rows are shown.",
    "bytes": f"Truncated: only the first {terms.plural(len(rows), 'row')} are shown, as more would be too large.",
}
if found.truncated:
    st.warning(cut[found.truncated])
st.caption(f"{terms.plural(len(rows), 'row')}, {found.wall_s:.2f} s.")
st.dataframe(rows, hide_index=True, alt=f"The query's {terms.plural(len(rows), 'row')}", key="sql-rows")
most = f"up to {asked.FILE_ROWS} rows and {asked.FILE_BYTES / 1e6:.0f} MB, whichever comes first"
files = found
if found.truncated and st.session_state.get("sql-files") != this:
    st.button("Prepare files of more rows", on_click=lambda: st.session_state.update({"sql-files": this}))
    st.caption(f"Files hold {most}.")
    files = None
elif found.truncated:
    try:
        files = asked.whole(snapshot, asked_for)
    except Refused as refusal:
        files = None
        st.session_state.pop("sql-files")
        st.error(f"No files: {terms.outside(refusal)}")
if files is not None:
    with st.container(horizontal=True):
        for fmt, label, mime in (("csv", "CSV", "text/csv"), ("parquet", "Parquet", "application/vnd.apache.parquet")):
            st.download_button(
                f"Download {label}",
                lambda fmt=fmt: encode(files.table, fmt),
                f"query.{fmt}",
                mime,
                on_click="ignore",
                key=f"sql-{fmt}",
            )
    held = terms.plural(files.table.num_rows, "row")
    st.caption(f"The files hold the first {held}: {most}." if files.truncated else f"The files hold all {held}.")


def drawn() -> show.Chart:
    """The two chosen columns."""
    there = rows.dropna(subset=[y])
    told = f", from {there[y].min():.4g} to {there[y].max():.4g}" if len(there) else ", all missing"
    return show.Chart(charts.two_columns(rows, x, y, look), f"{y} against {x}, {len(there)} rows{told}")


numbers = [str(c) for c in rows if pd.api.types.is_numeric_dtype(rows[c]) and not pd.api.types.is_bool_dtype(rows[c])]
if numbers and len(rows) > 1 and len(rows.columns) > 1:
    columns = [str(c) for c in rows]
    across, up, how = st.columns(3)
    with across:
        x = link.one("x", "Across", columns, columns[0])
    with up:
        others = [c for c in numbers if c != x]
        y = link.one("y", "Up", [*others, NO_CHART], (others or [NO_CHART])[0])
    with how:
        look = link.one("as", "As", charts.LOOKS, charts.LOOKS[0])
    if y != NO_CHART:
        show.chart(once(snapshot, "sql", asked_for, x, y, look, build=drawn), key="sql-chart")
