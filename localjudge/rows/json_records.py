"""Records of JSON lines and of a JSON array. A record above the size limit is skipped, not held in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from io import BufferedIOBase
from typing import Any, BinaryIO

from localjudge.errors import RowError
from localjudge.rows.record import DAMAGED, Record, too_large, unreadable_from_here

_PIECE = 1 << 16
_STRUCTURE = re.compile(rb'["\[\]{},]')
_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_INDENTATION = 1000
"""Bytes of white space after an element of an array that do not count for the size limit."""


def read_jsonl(stream: BinaryIO, most_bytes: int) -> Iterator[tuple[int, Record]]:
    """Yield the records of JSON lines with their line numbers; skip blank lines."""
    number = 0
    try:
        while line := stream.readline(most_bytes + len(b"\r\n")):
            number += 1
            if len(line) > most_bytes and len(line.rstrip(b"\r\n")) > most_bytes:
                while line and not line.endswith(b"\n"):
                    line = stream.readline(most_bytes)
                yield number, too_large(most_bytes)
            elif line.strip():
                yield number, parse_json(line, "line")
    except DAMAGED as error:
        yield number + 1, unreadable_from_here(error)


def read_json_array(stream: BufferedIOBase, most_bytes: int) -> Iterator[tuple[int, Record]]:
    """Yield the elements of a JSON array with their numbers, from 1.

    An element is the text up to the next comma between elements, so an invalid one is a failure of its own.
    """
    number = 0
    try:
        for number, element in enumerate(_elements(stream, most_bytes, between=1), 1):
            yield number, too_large(most_bytes) if element is None else parse_json(element, "record")
    except DAMAGED as error:
        yield number + 1, unreadable_from_here(error)


class Document(dict[str, Any]):
    """An object that is the whole of a text, and may hold the rows."""


def read_json_objects(stream: BufferedIOBase, most_bytes: int) -> Iterator[tuple[int, Record]]:
    """Yield the objects that follow each other in a text, with their numbers; one alone as a `Document`."""
    number, text = 0, b""
    try:
        for number, element in enumerate(_elements(stream, None), 1):
            if number == 2:
                yield 1, _limited(text, most_bytes)
            if number > 1:
                yield number, _limited(element or b"", most_bytes)
            text = element or b""
    except DAMAGED as error:
        yield number + 1, unreadable_from_here(error)
        return
    if number == 1:
        record = parse_json(text, "record")
        yield 1, Document(record) if isinstance(record, dict) else record


def _limited(text: bytes, most_bytes: int) -> Record:
    return parse_json(text, "record") if len(text) <= most_bytes else too_large(most_bytes)


def _elements(stream: BufferedIOBase, most_bytes: int | None, between: int = 0) -> Iterator[bytes | None]:
    """Yield the text of each element; None for one above the limit.

    Args:
        stream: the text.
        most_bytes: size limit of an element; None if it has none.
        between: the number of brackets that are open between two elements: 1 in an array.
    """
    element, size = bytearray(), 0
    for piece, is_last in _pieces(stream, between):
        piece = piece if size else piece.lstrip()
        size += len(piece)
        is_large = most_bytes is not None and size > most_bytes + _INDENTATION
        if is_large:
            element.clear()
        else:
            element += piece
        if is_last:
            if is_large or (most_bytes is not None and len(element.rstrip()) > most_bytes):
                yield None
            elif element:
                yield bytes(element)
            element.clear()
            size = 0


def _pieces(stream: BufferedIOBase, between: int) -> Iterator[tuple[bytes, bool]]:
    """Yield pieces of the elements of a text, and whether a piece is the last of its element.

    Raises:
        EOFError: the text ends before its array, or after it.
    """
    depth = 0  # of brackets
    in_string = is_escaped = False
    while data := stream.read1(_PIECE):
        begin = at = 0
        while at < len(data):
            if is_escaped:
                is_escaped = False
                at += 1
            elif in_string:
                string = _STRING.match(data, at)
                assert string is not None  # it may be empty
                end = data[string.end() : string.end() + 1]
                in_string, is_escaped = end != b'"', end == b"\\"
                at = string.end() + 1
            else:
                match = _STRUCTURE.search(data, at)
                if match is None:
                    break
                token, at = match[0], match.end()
                if token == b'"':
                    in_string = True
                elif between and depth == 1 and token in b",]":
                    yield data[begin : at - 1], True
                    begin = at
                    if token == b"]":
                        while not data[begin:].strip():
                            begin = 0
                            if not (data := stream.read1(_PIECE)):
                                return
                        raise EOFError("there is text after the end of the array")
                elif token in b"[{":
                    depth += 1
                    begin = at if depth == between else begin
                elif token in b"]}" and depth > between:
                    depth -= 1
                    if depth == between == 0:
                        yield data[begin:at], True
                        begin = at
        yield data[begin:], False
    if depth == between and not in_string:
        yield b"", True
    if between:
        raise EOFError("the array does not end")
    yield b"", bool(depth or in_string)


def parse_json(text: bytes, what: str) -> Record:
    """Return a JSON object, or the reason why the text is none.

    Args:
        text: the JSON text, in UTF-8.
        what: the name of the text in messages.
    """
    try:
        record = json.loads(text.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return RowError(f"not UTF-8 at byte {error.start + 1} of the {what}")
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} of the {what}, " if error.lineno > 1 else ""
        return RowError(f"not JSON: {error.msg} at {place}column {error.colno}")
    except (ValueError, RecursionError) as error:
        return RowError(f"JSON that Python cannot parse: {error}")
    return record if isinstance(record, dict) else RowError("not a JSON object with named fields")
