"""Data: every table and view as a file, the snapshot itself, and how to query it elsewhere."""

from __future__ import annotations

import json
import shlex

import streamlit as st

from backend.store.sql_examples import by_depth
from pages.parts import frame, link, terms

HEAD_ROWS = 200
NAMES = {"csv": "CSV", "parquet": "Parquet", "json": "JSON"}
MOST_ROWS = {"csv": 2_000_000, "parquet": 20_000_000, "json": 200_000}  # a file is made in memory
MOST_SNAPSHOT_BYTES = 400_000_000
MIMES = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet", "json": "application/json"}

view = frame.open_page("Data", needs="snapshot")
snapshot = view.snapshot
tables = snapshot.tables().set_index("name")
st.markdown(
    "Everything the other pages show comes from these tables and views: figures with their intervals as pages show "
    "them are in `estimate`; `k_summary` has plain means over runs. Units are in the column names; "
    "missing is NULL, never 0; `source` tells measured from published, imported and simulated figures."
)

name = link.one(
    "table",
    "Table or view",
    list(tables.index),
    "k_summary" if "k_summary" in tables.index else str(tables.index[0]),
    words=lambda t: f"{t} ({terms.plural(int(tables.loc[t, 'rows']), 'row')})",
)
st.markdown(terms.outside(terms.known(tables.loc[name, "comment"])))
rows = int(tables.loc[name, "rows"])
offered = [fmt for fmt in MIMES if rows <= MOST_ROWS[fmt]]
with st.container(horizontal=True):
    for fmt in offered:
        mime = MIMES[fmt]
        st.download_button(
            f"Download {NAMES[fmt]}",
            lambda fmt=fmt: snapshot.export(name, fmt),
            f"{name}.{fmt}",
            mime,
            on_click="ignore",
            key=f"download-{fmt}",
        )
head, columns = snapshot.table_head(name, HEAD_ROWS)
left_out = [NAMES[fmt] for fmt in MIMES if fmt not in offered]
if left_out:
    st.caption(f"With {rows} rows not as {' or '.join(left_out)}: the file would not fit into this server's memory.")
st.caption(
    f"The first {HEAD_ROWS} of {rows} rows; the files hold all."
    if rows > HEAD_ROWS
    else f"All {terms.plural(rows, 'row')}."
)
st.dataframe(head, hide_index=True, alt=f"Rows of {name}")
more = link.more("columns", f"What the columns of {name} mean")
if more.open:
    with more:
        st.dataframe(columns, hide_index=True, alt=f"Columns of {name}")

st.header("The snapshot", anchor=False)
st.markdown(
    "One DuckDB file with all of it. It is replaced as a whole when new runs are stored, so a reader never "
    "blocks a sweep and never sees half of one."
)
size = snapshot.path.stat().st_size
if size <= MOST_SNAPSHOT_BYTES:
    st.download_button(
        "Download results.duckdb",
        snapshot.path.read_bytes,
        "results.duckdb",
        "application/octet-stream",
        on_click="ignore",
        key="download-snapshot",
    )
else:
    st.caption(f"It has {size / 1e9:.1f} GB: copy the file itself from where this page is served.")
st.markdown("To query it, open it where this page is served from, or download it first. The page SQL needs neither.")
path, query = snapshot.path, by_depth(view.name)
clients = {
    "DuckDB shell (1.5 or newer)": ("bash", f'duckdb -readonly {shlex.quote(str(path))} "{query}"'),
    "Python": (
        "python",
        f'''import duckdb

con = duckdb.connect({json.dumps(str(path))}, read_only=True)
con.sql("{query}").df()''',
    ),
    "R": (
        "r",
        f'''library(duckdb)
con <- dbConnect(duckdb(), dbdir = {json.dumps(str(path))}, read_only = TRUE)
dbGetQuery(con, "{query}")
dbDisconnect(con, shutdown = TRUE)''',
    ),
}
for client, (language, code) in clients.items():
    st.markdown(client)
    st.code(code, language=language, wrap_lines=True)
st.caption(
    "Open `results.duckdb`, never `live.duckdb`: the live file belongs to the running sweep. Reopen it to see a "
    "newer snapshot."
)
