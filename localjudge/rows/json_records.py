"""Records of JSON lines, of a JSON array, and of a JSON document that holds the rows somewhere inside.

A record above the size limit is skipped. No more than a few times the limit is held in memory.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from io import BufferedIOBase
from itertools import chain, islice
from math import inf
from typing import Any, BinaryIO

from localjudge.errors import RowError, RowProblem, UsageError
from localjudge.rows.columns import COLUMN_NAMES, CRITERION, MESSAGES, PAIR, folded
from localjudge.rows.messages import as_turns
from localjudge.rows.paths import look_up
from localjudge.rows.record import Record, too_large, unreadable_from_here
from localjudge.rows.shapes import recognized

_PIECE = 1 << 16
_BETWEEN = re.compile(r"[ \t\n\r]*,?[ \t\n\r]*")
_LONGEST_TOKEN = 10
"""Characters before its end at which a JSON text that is cut can have an error, if it is not in a string."""
_MOST_HELD = 8
"""How many times as large as a row may be an element of an array that is skipped."""
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

    What follows an element that is not JSON, or is far above the limit, is not read; a failure says so.
    """
    texts = _texts(stream, most_bytes, is_array=True)
    return enumerate((_limited(text, most_bytes) for text in texts), 1)


class Document(dict[str, Any]):
    """An object that is the whole of a text, and may hold the rows."""


def read_json_objects(stream: BufferedIOBase, most_bytes: int) -> Iterator[tuple[int, Record]]:
    """Yield the objects that follow each other in a text, with their numbers; one alone as a `Document`."""
    texts = _texts(stream, inf, is_array=False)
    first = [*islice(texts, 2)]
    if len(first) == 1 and isinstance(alone := _limited(first[0], inf), dict):
        yield 1, Document(alone)
    else:
        yield from enumerate((_limited(text, most_bytes) for text in chain(first, texts)), 1)


def _limited(text: bytes | RowError, most_bytes: float) -> Record:
    if isinstance(text, RowError):
        return text
    return too_large(most_bytes) if len(text) > most_bytes else parse_json(text, "record")


def _texts(stream: BufferedIOBase, most_bytes: float, *, is_array: bool) -> Iterator[bytes | RowError]:
    """Yield the text of each value, with a comma between two or not; at last a failure if there is a rest.

    Args:
        stream: the text: an array, or objects that follow each other.
        most_bytes: size limit of a row.
        is_array: whether the values are the elements of an array.
    """
    pieces = codecs.iterdecode(iter(partial(stream.read1, _PIECE), b""), "utf-8", "surrogateescape")
    held, end = next(filter(str.strip, pieces), "").lstrip()[is_array:], 0
    decode, encode = json.JSONDecoder().raw_decode, partial(str.encode, errors="surrogateescape")
    while not (held.startswith("]", at := next(_BETWEEN.finditer(held, end)).end()) and is_array):
        try:
            _, end = decode(held, at)
        except (ValueError, RecursionError) as error:
            size, place = len(held) - at, getattr(error, "pos", at)
            is_cut = "Unterminated" in str(error) or not held[place + _LONGEST_TOKEN :].strip()
            is_large = size > _MOST_HELD * most_bytes
            if is_cut and not is_large and (more := "".join(islice(pieces, 1 + size // _PIECE))):
                # A comma may be the last that was read; white space before an element is not held.
                held, end = held[end:at].strip() + held[at:] + more, 0
                continue
            problem = too_large(most_bytes) if is_large else parse_json(encode(held[at:]), "record")
            if size or is_array:
                said = getattr(problem, "reason", "") if size else "the array does not end"
                yield unreadable_from_here(said)
            return
        yield encode(held[at:end])
    if any(map(str.strip, chain([held[at + 1 :]], pieces))):
        yield unreadable_from_here("there is text after the end of the array")


def parse_json(text: bytes, what: str) -> Record:
    """Return a JSON object, or the reason why the text is none.

    Args:
        text: the JSON text, in UTF-8.
        what: the name of the text in messages.
    """
    try:
        return _as_record(json.loads(text.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        reason = f"not UTF-8 at byte {error.start + 1} of the {what}"
        return RowError(reason, problem=RowProblem.ENCODING)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} of the {what}, " if error.lineno > 1 else ""
        return RowError(f"not JSON: {error.msg} at {place}column {error.colno}")
    except (ValueError, RecursionError) as error:
        return RowError(f"JSON that Python cannot parse: {error}")


def _as_record(given: Any) -> Record:
    return given if isinstance(given, dict) else RowError("not a JSON object with named fields")


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
        return rows_at, map(_as_record, rows)
    if recognized(document).has or _is_row(document):
        return "", [document]
    lists = _lists(document)
    of_tools = {path: rows for path, rows in lists.items() if recognized(rows[0]).has}
    lists = of_tools or lists
    if len(lists) > 1:
        places = " or ".join(lists)
        raise UsageError(f"{name}: its rows can be in {places}; name the list: `rows_at` {next(iter(lists))}")
    for path, rows in lists.items():
        return path, map(_as_record, rows)
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
