"""A record as one JSON line and back. Pure: no file is touched here.

A value is checked against its field's type on the way out and on the way in, so that a line that was acknowledged can
always be read back, and by the database too (64-bit integers, finite numbers).
"""

from __future__ import annotations

import json
import math
import typing
from collections.abc import Callable
from typing import Any

from backend.errors import StoreError
from backend.records import Record
from backend.store.schema import BY_NAME, RECORD_CLASSES, field_types, plain_type

Check = Callable[[Any], Any]


def to_line(record: Record) -> bytes:
    """A record as `{"record": "<RecordClass>", ...fields}` and a newline. Text that is not valid Unicode gets "?".

    Raises StoreError for a value that its field cannot hold, NaN and infinity among them.
    """
    name = type(record).__name__
    row: dict[str, Any] = {"record": name}
    try:
        for field, (check, optional) in CHECKS[name].items():
            row[field] = checked(name, field, getattr(record, field), check, optional)
    except ValueError as error:
        raise StoreError(f"cannot be stored: {error}", fix="a figure that was not measured is None") from error
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode("utf-8", errors="replace") + b"\n"


def from_line(line: bytes) -> Record:
    """A record from one JSON line. A field that may be None and is absent (an older version wrote it) is None.

    Raises ValueError with one clear clause: not JSON, unknown record or field, missing field, wrong type.
    """
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    name = row.pop("record", None)
    cls = BY_NAME.get(name) if isinstance(name, str) else None
    if cls is None:
        raise ValueError(f"unknown record {name!r}, valid are {', '.join(BY_NAME)}")
    values = {
        field: checked(cls.__name__, field, row.pop(field, None), check, optional)
        for field, (check, optional) in CHECKS[cls.__name__].items()
    }
    if row:
        raise ValueError(f"{name} has no field {', '.join(map(repr, row))}: written by a newer version?")
    return typing.cast(Callable[..., Record], cls)(**values)


def checked(record: str, field: str, value: Any, check: Check, optional: bool) -> Any:
    """The value as its field holds it. Raises ValueError naming record, field and what was expected."""
    if value is None:
        if not optional:
            raise ValueError(f"{record} without {field}")
        return None
    try:
        return check(value)
    except TypeError as error:
        shown = repr(value)
        raise ValueError(f"{record}.{field} is {shown[:60]}: {error}") from error


def check_for(plain: Any) -> Check:
    """The function that returns a value as a field of type `plain` holds it; raises TypeError where it does not fit."""
    origin, arguments = typing.get_origin(plain), typing.get_args(plain)
    if origin is typing.Literal:
        return lambda value: value if value in arguments else refuse(f"one of {', '.join(arguments)}")
    if origin is tuple and arguments[0] is not int:
        inner = _optional(arguments[0])
        return lambda value: tuple(map(inner, value)) if isinstance(value, list | tuple) else refuse("a list")
    if origin is tuple:
        return lambda value: tuple(map(small_integer, value)) if isinstance(value, list | tuple) else refuse("a list")
    if origin is dict:
        inner = check_for(arguments[1])
        return lambda value: (
            {text(key): inner(part) for key, part in value.items()} if isinstance(value, dict) else refuse("an object")
        )
    by_type: dict[Any, Check] = {int: integer, float: number, bool: truth, str: text}
    return by_type[plain]


def _optional(annotation: Any) -> Check:
    """The check of a list's element, which may be None where its type says so."""
    plain, optional = plain_type(annotation)
    check = check_for(plain)
    return lambda value: None if optional and value is None else check(value)


def refuse(expected: str) -> typing.NoReturn:
    """Raise TypeError: `expected` is what the field holds."""
    raise TypeError(f"expected {expected}")


def integer(value: Any, bits: int = 64) -> int:
    """A whole number of at most `bits` bits; true and false are none."""
    if type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1:
        refuse(f"a whole number of {bits} bits")
    return value


def small_integer(value: Any) -> int:
    """An element of an INTEGER[] column (token ids, counts a step): 32 bits."""
    return integer(value, bits=32)


def number(value: Any) -> float:
    """A finite number; whole ones pass, since some tools write 2.0 as 2."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        refuse("a finite number")
    return float(value)


def truth(value: Any) -> bool:
    """true or false."""
    return value if isinstance(value, bool) else refuse("true or false")


def text(value: Any) -> str:
    """Text."""
    return value if isinstance(value, str) else refuse("text")


# Record class -> field name -> (check of its value, may be None), in the order of the class.
CHECKS: dict[str, dict[str, tuple[Check, bool]]] = {
    cls.__name__: {field: (check_for(plain), optional) for field, (plain, optional) in field_types(cls).items()}
    for cls in RECORD_CLASSES
}
