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
        yield from (
            dict(zip(map(str, columns), each, strict=False)) for each in data
        )  # as pandas writes a table
        return
    if rows_at is not None:
        found = unpacked(value_at(document, rows_at))
        if not isinstance(found, list) or not found:
            raise UsageError(
                f"`rows_at` {rows_at}: {name} has no list there; its lists are {_names(_lists(document))}"
            )
        yield from map(_record, found)
        return
    lists = {} if recognized(document) or _is_row(document) else _lists(document)
    named = {path: rows for path, rows in lists.items() if recognized(rows[0])}
    if len(named or lists) > 1:
        places, first = _names(named or lists), next(iter(named or lists))
        raise UsageError(f"{name}: its rows can be in {places}; name the list: `rows_at` {first}")
    if lists:
        yield from map(_record, next(iter((named or lists).values())))
    elif len(document) > 1 and all(isinstance(each, Mapping) and _is_row(each) for each in document.values()):
        yield from ({"id": key, **each} for key, each in document.items())
    else:
        yield document


def _record(given: Any) -> Record:
    return given if isinstance(given, Mapping) else RowError("not a JSON object with named fields")


def _is_row(document: Mapping[str, Any]) -> bool:
    """Return whether an object has the columns of a row: text or messages."""
    return any(
        (folded(key) in _OF_ROWS and isinstance(value, str | list) and not _holds_rows(value)) or as_chat(value)
        for key, value in document.items()
    )


def _holds_rows(value: Any) -> bool:
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, Mapping) and (_is_row(first) or recognized(first) is not None)


def _lists(document: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the lists of objects in an object that are not conversations, by their paths."""
    found: dict[str, list[Any]] = {}
    layer: list[tuple[str, Any]] = [("", document)]
    for _ in range(_DEEPEST):
        inner = [(f"{path}.{key}".lstrip("."), value) for path, each in layer for key, value in each.items()]
        found |= {
            path: value
            for path, value in inner
            if isinstance(value, list) and value and isinstance(value[0], Mapping) and as_chat(value) is None
        }
        layer = [(path, value) for path, value in inner if isinstance(value, Mapping)]
    return found


def _names(lists: Mapping[str, Any]) -> str:
    return " or ".join(lists) or "none"
