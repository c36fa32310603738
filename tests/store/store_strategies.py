"""Hypothesis strategies for every record, derived from its annotations."""

from __future__ import annotations

import typing
from typing import Any

from hypothesis import strategies as st

from backend.store.schema import RECORD_CLASSES, field_types

SMALL = st.integers(-(2**31), 2**31 - 1)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(max_size=20),
    bool: st.booleans(),
    tuple[int, ...]: st.lists(SMALL, max_size=5).map(tuple),
    tuple[str, ...]: st.lists(st.text(max_size=5), max_size=3).map(tuple),
    tuple[tuple[float | None, ...], ...]: st.lists(
        st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), max_size=3).map(tuple), max_size=3
    ).map(tuple),
    dict[str, int]: st.dictionaries(st.text(max_size=5), st.integers(-(2**63), 2**63 - 1), max_size=3),
    dict[str, str]: st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
}


def field_values(kind: Any, optional: bool) -> st.SearchStrategy[Any]:
    if typing.get_origin(kind) is typing.Literal:
        values: st.SearchStrategy[Any] = st.sampled_from(typing.get_args(kind))
    else:
        values = PLAIN[kind]
    return st.none() | values if optional else values


def rows_of(cls: type[Any]) -> st.SearchStrategy[Any]:
    return st.builds(cls, **{name: field_values(*kind) for name, kind in field_types(cls).items()})


any_record = st.one_of([rows_of(cls) for cls in RECORD_CLASSES])
