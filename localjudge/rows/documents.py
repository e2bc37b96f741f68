"""The records in a file that holds one object: a list of objects somewhere in it, or the object itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from localjudge.errors import RowError, UsageError
from localjudge.rows.columns import COLUMN_NAMES, folded
from localjudge.rows.conversation import MESSAGES, as_chat
from localjudge.rows.criteria import CRITERIA_COLUMNS
from localjudge.rows.pair_columns import PAIR_COLUMN_NAMES
from localjudge.rows.paths import unpacked, value_at
from localjudge.rows.record import Record
from localjudge.rows.shapes import recognized

_DEEPEST = 4
_OF_ROWS = {
    MESSAGES,
    *CRITERIA_COLUMNS,
    *(name for field in ("instruction", "candidate") for name in COLUMN_NAMES[field]),
    *(name for field in ("candidate_a", "candidate_b") for name in PAIR_COLUMN_NAMES[field]),
}
"""Names of columns that show that an object is a record itself."""


def unwrapped(document: Mapping[str, Any], name: str, rows_at: str | None = None) -> Iterator[Record]:
    """Yield the records in an object that is the whole of a file.

    Args:
        document: the object.
        name: the file.
        rows_at: the path of the rows; None to find them.

    Raises:
        UsageError: the rows can be in several places, or there are none at the path.
    """
    columns, data = document.get("columns"), document.get("data")
    if isinstance(columns, list) and isinstance(data, list) and all(isinstance(each, list) for each in data):
        names = list(map(str, columns))  # as pandas writes a table
        yield from (dict(zip(names, each, strict=False)) for each in data)
        return
    if rows_at is not None:
        rows = unpacked(value_at(document, rows_at))
        if not isinstance(rows, list) or not rows:
            there = " or ".join(_lists(document)) or "none"
            raise UsageError(f"`rows_at` {rows_at}: {name} has no list there; its lists are {there}")
        yield from map(_record, rows)
        return
    lists = {} if recognized(document) or _is_row(document) else _lists(document)
    lists = {path: rows for path, rows in lists.items() if recognized(rows[0])} or lists
    if len(lists) > 1:
        places = " or ".join(lists)
        raise UsageError(f"{name}: its rows can be in {places}; name the list: `rows_at` {next(iter(lists))}")
    if lists:
        yield from map(_record, next(iter(lists.values())))
    elif len(document) > 1 and all(isinstance(each, Mapping) and _is_row(each) for each in document.values()):
        yield from ({"id": key, **each} for key, each in document.items())
    else:
        yield document


def _record(given: Any) -> Record:
    return given if isinstance(given, Mapping) else RowError("not a JSON object with named fields")


def _is_row(document: Mapping[str, Any]) -> bool:
    """Return whether an object has the columns of a row: text or messages."""
    return any(
        (folded(key) in _OF_ROWS and isinstance(value, str)) or as_chat(value) is not None
        for key, value in document.items()
    )


def _lists(document: Mapping[str, Any], path: str = "", depth: int = 1) -> dict[str, list[Any]]:
    """Return the lists of objects in an object that are not conversations, by their paths."""
    found: dict[str, list[Any]] = {}
    for key, value in document.items():
        own = f"{path}.{key}" if path else key
        if isinstance(value, Mapping) and depth < _DEEPEST:
            found |= _lists(value, own, depth + 1)
        elif isinstance(value, list) and value and isinstance(value[0], Mapping) and as_chat(value) is None:
            found[own] = value
    return found
