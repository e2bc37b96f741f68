"""Records of JSON lines, of a JSON array, and of a JSON document that holds the rows somewhere inside.

A record above the size limit is skipped, not held in memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedIOBase
from itertools import chain
from typing import Any, BinaryIO

from localjudge.errors import RowError, UsageError
from localjudge.rows.columns import COLUMN_NAMES, CRITERION, MESSAGES, PAIR, folded
from localjudge.rows.messages import as_chat
from localjudge.rows.paths import unpacked, value_at
from localjudge.rows.record import Record, too_large
from localjudge.rows.shapes import recognized

_PIECE = 1 << 16
_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+("?)', re.DOTALL)
"""The rest of a string, and its end if it is there."""
_TOKEN = re.compile(rb'"' + _STRING.pattern + rb"|[\[\]{},]", re.DOTALL)
_INDENTATION = 1000
"""Bytes of white space after an element of an array that do not count for the size limit."""
_DEEPEST_LIST = 4
_OF_ROWS = {MESSAGES}.union(*map(COLUMN_NAMES.__getitem__, ("instruction", "candidate", CRITERION, *PAIR)))
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

    An element is the text up to the next comma between elements, so an invalid one is a failure of its own.
    """
    texts = _elements(stream, most_bytes, is_array=True)
    return enumerate((_limited(text, most_bytes) for text in texts), 1)


class Document(dict[str, Any]):
    """An object that is the whole of a text, and may hold the rows."""


def read_json_objects(stream: BufferedIOBase, most_bytes: int) -> Iterator[tuple[int, Record]]:
    """Yield the objects that follow each other in a text, with their numbers; one alone as a `Document`."""
    texts = _elements(stream, None, is_array=False)
    first, second = next(texts, b""), next(texts, None)
    if second is None:
        record = parse_json(first or b"", "record")
        yield 1, Document(record) if isinstance(record, dict) else record
    else:
        yield from enumerate((_limited(text, most_bytes) for text in chain((first, second), texts)), 1)


def _limited(text: bytes | None, most_bytes: int) -> Record:
    is_large = text is None or len(text.rstrip()) > most_bytes
    return too_large(most_bytes) if is_large else parse_json(text or b"", "record")


def _elements(stream: BufferedIOBase, most_bytes: int | None, *, is_array: bool) -> Iterator[bytes | None]:
    """Yield the text of each element; None for one that is above the limit.

    Args:
        stream: the text: an array, or objects that follow each other.
        most_bytes: size limit of an element; None if it has none.
        is_array: whether the elements are those of an array.

    Raises:
        EOFError: the text ends before its array, or after it.
    """
    element, depth, in_string = _Element(most_bytes), 0, False
    while data := stream.read1(_PIECE):
        if (len(data) - len(data.rstrip(b"\\"))) % 2:  # no escaped character is in two pieces
            data += stream.read1(1)
        begin = at = 0
        if in_string and (string := _STRING.match(data)):
            at, in_string = string.end(), not string[1]
        for found in _TOKEN.finditer(data, at):
            token, at = found[0], found.end()
            if token[:1] == b'"':
                in_string = not found[1]
            elif is_array and depth == 1 and token in b",]":
                yield from element.end(data[begin : at - 1])
                begin = at
                if token == b"]":
                    if any(map(bytes.strip, chain([data[at:]], iter(lambda: stream.read1(_PIECE), b"")))):
                        raise EOFError("there is text after the end of the array")
                    return
            elif token in b"[{":
                depth += 1
                begin = at if depth == is_array else begin
            elif token in b"]}" and depth > is_array:
                depth -= 1
                if depth == 0:
                    yield from element.end(data[begin:at])
                    begin = at
        element.add(data[begin:])
    if not is_array or (depth == 1 and not in_string):
        yield from element.end(b"")
    if is_array:
        raise EOFError("the array does not end")


class _Element:
    """The text of an element in progress, up to the size limit."""

    def __init__(self, most_bytes: int | None) -> None:
        self._most_bytes, self._text, self._size = most_bytes, bytearray(), 0

    def add(self, piece: bytes) -> None:
        piece = piece if self._size else piece.lstrip()
        self._size += len(piece)
        if self._most_bytes is None or self._size <= self._most_bytes + _INDENTATION:
            self._text += piece
        else:
            self._text.clear()

    def end(self, piece: bytes) -> Iterator[bytes | None]:
        """Yield the text with its last piece; nothing if it is only white space."""
        self.add(piece)
        if self._size:
            yield bytes(self._text) or None
        self._text, self._size = bytearray(), 0


def parse_json(text: bytes, what: str) -> Record:
    """Return a JSON object, or the reason why the text is none.

    Args:
        text: the JSON text, in UTF-8.
        what: the name of the text in messages.
    """
    try:
        return _as_record(json.loads(text.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        return RowError(f"not UTF-8 at byte {error.start + 1} of the {what}")
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} of the {what}, " if error.lineno > 1 else ""
        return RowError(f"not JSON: {error.msg} at {place}column {error.colno}")
    except (ValueError, RecursionError) as error:
        return RowError(f"JSON that Python cannot parse: {error}")


def _as_record(given: Any) -> Record:
    return given if isinstance(given, dict) else RowError("not a JSON object with named fields")


def unwrapped(document: Document, name: str, rows_at: str | None = None) -> tuple[str, Iterable[Record]]:
    """Return the path of the rows in an object that is the whole of a file, empty if it has none; and the rows.

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
        return "", (dict(zip(names, each, strict=False)) for each in data)
    if rows_at is not None:
        rows = unpacked(value_at(document, rows_at))
        if not isinstance(rows, list) or not rows:
            there = " or ".join(_lists(document)) or "none"
            raise UsageError(f"`rows_at` {rows_at}: {name} has no list there; its lists are {there}")
        return rows_at, map(_as_record, rows)
    lists = {} if recognized(document).has or _is_row(document) else _lists(document)
    lists = {path: rows for path, rows in lists.items() if recognized(rows[0]).has} or lists
    if len(lists) > 1:
        places = " or ".join(lists)
        raise UsageError(f"{name}: its rows can be in {places}; name the list: `rows_at` {next(iter(lists))}")
    for path, rows in lists.items():
        return path, map(_as_record, rows)
    if len(document) > 1 and all(isinstance(each, Mapping) and _is_row(each) for each in document.values()):
        return "", ({"id": key, **each} for key, each in document.items())
    return "", [document]


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
        if isinstance(value, Mapping) and depth < _DEEPEST_LIST:
            found |= _lists(value, own, depth + 1)
        elif isinstance(value, list) and value and isinstance(value[0], Mapping) and as_chat(value) is None:
            found[own] = value
    return found
