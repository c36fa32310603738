"""Data: every table and view as a file, the snapshot itself, and how to query it elsewhere."""

from __future__ import annotations

import streamlit as st

from pages.parts import frame, link, terms

HEAD_ROWS = 200
NAMES = {"csv": "CSV", "parquet": "Parquet", "json": "JSON"}
MIMES = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet", "json": "application/json"}

view = frame.open_page("Data", needs="snapshot")
snapshot = view.snapshot
tables = snapshot.tables().set_index("name")
st.markdown(
    "Everything the other pages show comes from these tables and views. Units are in the column names; "
    "missing is NULL, never 0; `source` tells measured from published, imported and simulated figures."
)

name = link.one(
    "table",
    "Table or view",
    list(tables.index),
    "k_summary" if "k_summary" in tables.index else str(tables.index[0]),
    words=lambda t: f"{t} ({terms.plural(int(tables.loc[t, 'rows']), 'row')})",
)
st.markdown(str(tables.loc[name, "comment"] or ""))
with st.container(horizontal=True):
    for fmt, mime in MIMES.items():
        st.download_button(
            f"Download {NAMES[fmt]}",
            lambda fmt=fmt: snapshot.export(name, fmt),
            f"{name}.{fmt}",
            mime,
            on_click="ignore",
            key=f"download-{fmt}",
        )
head, columns = snapshot.table_head(name, HEAD_ROWS)
rows = int(tables.loc[name, "rows"])
st.caption(
    f"The first {HEAD_ROWS} of {rows} rows; the files hold all."
    if rows > HEAD_ROWS
    else f"All {terms.plural(rows, 'row')}."
)
st.dataframe(head, hide_index=True, alt=f"Rows of {name}")
with st.expander(f"What the columns of {name} mean"):
    st.dataframe(columns, hide_index=True, alt=f"Columns of {name}")

st.header("The snapshot", anchor=False)
st.markdown(
    "One DuckDB file with all of it. It is replaced as a whole when new runs are stored, so a reader never "
    "blocks a sweep and never sees half of one."
)
st.download_button(
    "Download results.duckdb",
    snapshot.path.read_bytes,
    "results.duckdb",
    "application/octet-stream",
    on_click="ignore",
    key="download-snapshot",
)
path = snapshot.path
only = f" WHERE sweep = '{view.name}'" if view.name else ""
st.markdown("To query it, open it where this page is served from, or download it first.")
st.markdown("DuckDB shell (1.5 or newer)")
st.code(
    f"""duckdb -readonly {path}
SELECT k, n_runs, decode_tok_s, tokens_per_step, cycle_ms FROM k_summary{only} ORDER BY k;
""",
    language="sql",
    wrap_lines=True,
)
st.markdown("Python")
st.code(
    f"""import duckdb
con = duckdb.connect("{path}", read_only=True)
con.sql("SELECT k, decode_tok_s FROM k_summary{only} ORDER BY k").df()
""",
    language="python",
    wrap_lines=True,
)
st.caption(
    "Open `results.duckdb`, never `live.duckdb`: the live file belongs to the running sweep. Reopen it to see a "
    "newer snapshot."
)
