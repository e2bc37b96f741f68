"""Records of JSON lines, of a JSON array, and of a JSON document that holds the rows somewhere inside.

A record above the size limit is skipped. No more than a few times the limit is held in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from io import BufferedIOBase
from itertools import chain, islice
from math import inf
from typing import Any, BinaryIO

from localjudge.errors import RowError, UsageError
from localjudge.rows.columns import COLUMN_NAMES, CRITERION, MESSAGES, PAIR, folded
from localjudge.rows.json_values import JsonValues, as_record, parse_json
from localjudge.rows.messages import as_turns
from localjudge.rows.paths import look_up
from localjudge.rows.record import Record, too_large
from localjudge.rows.shapes import recognized

_DEEPEST_LIST = 4
_OF_ROWS = {MESSAGES} | {
    name for field in ("instruction", "candidate", CRITERION, *PAIR) for name in COLUMN_NAMES[field]
}
"""Names of columns that show that an object is a record itself."""


def read_jsonl(stream: BinaryIO, most_bytes: int) -> Iterator[tuple[int, Record]]:
    """Yield the records of JSON lines with their line numbers; skip blank lines."""
    number = 0
    while line := stream.readline(most_bytes + len(b"\r\n")):
        number += 1
        if len(line) > most_bytes and len(line.rstrip(b"\r\n")) > most_bytes:
            while line and not line.endswith(b"\n"):
                line = stream.readline(most_bytes)
            yield number, too_large(most_bytes)
        elif line.strip():
            yield number, parse_json(line, "line")


def read_json_array(stream: BufferedIOBase, most_bytes: int) -> Iterator[tuple[int, Record]]:
    """Yield the elements of a JSON array with their numbers, from 1.

    What follows an element that is not JSON, or is far above the limit, is not read; a failure says so.
    """
    for number, text in enumerate(JsonValues(stream, most_bytes, is_array=True), 1):
        yield number, _limited(text, most_bytes)


class Document(dict[str, Any]):
    """An object that is the whole of a text, and may hold the rows."""


def read_json_objects(stream: BufferedIOBase, most_bytes: int) -> Iterator[tuple[int, Record]]:
    """Yield the objects that follow each other in a text, with their numbers; one alone as a `Document`."""
    texts = iter(JsonValues(stream, inf, is_array=False))
    first = list(islice(texts, 2))
    if len(first) == 1:
        alone = _limited(first[0], inf)
        if isinstance(alone, dict):
            yield 1, Document(alone)
            return
    for number, text in enumerate(chain(first, texts), 1):
        yield number, _limited(text, most_bytes)


def _limited(text: bytes | RowError, most_bytes: float) -> Record:
    if isinstance(text, RowError):
        return text
    return too_large(most_bytes) if len(text) > most_bytes else parse_json(text, "record")


def rows_of_document(document: Document, name: str, rows_at: str | None = None) -> tuple[str, Iterable[Record]]:
    """Return the path of the rows in an object that is the whole of a file, empty if it has none; and the rows.

    Args:
        document: the object.
        name: the file.
        rows_at: the path of the rows; None to find them.

    Raises:
        UsageError: the rows can be in several places, or there are none at the path.
    """
    if _is_split_table(document):
        names = [str(column) for column in document["columns"]]
        return "", (dict(zip(names, values, strict=False)) for values in document["data"])
    if rows_at is not None:
        rows = look_up(document, rows_at)
        if not isinstance(rows, list) or not rows:
            there = " or ".join(_lists(document)) or "none"
            raise UsageError(f"`rows_at` {rows_at}: {name} has no list there; its lists are {there}")
        return rows_at, map(as_record, rows)
    if recognized(document).has or _is_row(document):
        return "", [document]
    lists = _lists(document)
    of_tools = {path: rows for path, rows in lists.items() if recognized(rows[0]).has}
    lists = of_tools or lists
    if len(lists) > 1:
        places = " or ".join(lists)
        raise UsageError(f"{name}: its rows can be in {places}; name the list: `rows_at` {next(iter(lists))}")
    for path, rows in lists.items():
        return path, map(as_record, rows)
    if len(document) > 1 and all(isinstance(value, Mapping) and _is_row(value) for value in document.values()):
        return "", ({"id": key, **value} for key, value in document.items())
    return "", [document]


def _is_split_table(document: Mapping[str, Any]) -> bool:
    """Return whether an object has a list of columns and a list of rows, as pandas writes a table."""
    columns, data = document.get("columns"), document.get("data")
    if not isinstance(columns, list) or not isinstance(data, list):
        return False
    return all(isinstance(values, list) for values in data)


def _is_row(document: Mapping[str, Any]) -> bool:
    """Return whether an object has the columns of a row: text or messages."""
    return any(
        (folded(key) in _OF_ROWS and isinstance(value, str)) or as_turns(value) is not None
        for key, value in document.items()
    )


def _lists(document: Mapping[str, Any], path: str = "", depth: int = 1) -> dict[str, list[Any]]:
    """Return the lists of objects in an object that are not conversations, by their paths."""
    found: dict[str, list[Any]] = {}
    for key, value in document.items():
        own = f"{path}.{key}" if path else key
        if isinstance(value, Mapping) and depth < _DEEPEST_LIST:
            found |= _lists(value, own, depth + 1)
        elif isinstance(value, list) and value and isinstance(value[0], Mapping) and as_turns(value) is None:
            found[own] = value
    return found
