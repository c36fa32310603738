"""Files of a query: any type that DuckDB has, in every format."""

from __future__ import annotations

import io
import json

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from backend.store.files import FORMATS, as_text, encode

ANY_TYPE = (
    "union_value(num := 2)",
    "'infinity'::DATE",
    "'infinity'::TIMESTAMP",
    "'-infinity'::TIMESTAMPTZ",
    "1::VARINT",
    r"'\xFF\xFE'::BLOB",
    "'x'::BLOB",
    "interval 3 months",
    "TIME '12:00:00'",
    "uuid()",
    "1::HUGEINT << 100",
    "'nan'::DOUBLE",
    "map {'a': 1}",
    "{'a': [1, NULL]}",
    "[DATE '2026-01-01']",
    "'101'::BIT",
    "'a'::ENUM ('a', 'b')",
    "NULL",
    "TIMESTAMP_NS '2200-01-01 00:00:00'",
    "DATE '9999-12-31'",
)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("column", ANY_TYPE)
def test_any_type_is_in_the_file(column: str, fmt: str) -> None:
    """Two rows in, two rows out, and nothing that is known becomes missing."""
    rows = duckdb.sql(f"SELECT {column} AS x, range AS n FROM range(2)").to_arrow_table()
    file = encode(rows, fmt)
    if fmt == "json":
        read = {
            name: pa.array([None if row[name] is None else str(row[name]) for row in json.loads(file)]) for name in "xn"
        }
    elif fmt == "csv":
        missing = pa.csv.ConvertOptions(null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False)
        read = pa.csv.read_csv(io.BytesIO(file), convert_options=missing)
    else:
        read = pa.parquet.read_table(io.BytesIO(file))
    assert [int(n) for n in read["n"].to_pylist()] == [0, 1]
    assert read["x"].null_count == (2 if column == "NULL" else 0)


def test_text_of_what_is_no_text() -> None:
    raw = pa.chunked_array([pa.array([b"ab\xff", None], pa.binary())])
    assert as_text(raw).to_pylist() == ["ab\\xff", None]
