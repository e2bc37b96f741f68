"""A record of an input: the path of a value in it, and why it cannot be read.

    doc.question                    the value of a key inside an object
    choices[0].message.content      an element of a list, from 0; `choices.0` is the same
    messages[-1].content            the last element
    responses[*].text               each element of a list, or each value of an object: a row for each
    outputs[*].@key                 the key of that value
    turns.@count                    the number of elements of a list
    request.@text                   the text in a JSON string

A column that has the whole path as its name is that column. A text that holds JSON is read where a path goes
into it; if a shape names the text itself as another place of the field, this holds for `Cells` alone.
"""

from __future__ import annotations

import itertools
import json
import lzma
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeGuard

from localjudge.errors import RowError

Record = Mapping[str, Any] | RowError
"""The columns of a record by name, or the reason why it cannot be read."""


class Cells(dict[str, Any]):
    """A record of a CSV file, in which only a text can hold an object or a list: the text of its JSON."""


def like(record: Mapping[str, Any], columns: dict[str, Any]) -> dict[str, Any]:
    """Return columns as a record of the kind of another, whose columns are among them."""
    return Cells(columns) if isinstance(record, Cells) else columns


MAX_ROW_BYTES = 8_000_000
"""Default limit of a row: about two million tokens, for which the tokenizer takes 1 GB of memory."""

DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)
"""Errors from a file that is truncated or damaged."""


LARGEST_NUMBER = 1e9
"""The largest size of a number in a row: sums and products of such numbers stay exact to nine digits."""


class RecordError(ValueError):
    """A record is not a row; the message is the reason."""


@contextmanager
def said_of(what: str) -> Iterator[None]:
    """Put what a reason is of before the reason why a record is not a row."""
    try:
        yield
    except RecordError as error:
        raise RecordError(f"{what} {error}") from None


def is_number(given: object) -> TypeGuard[int | float]:
    """Return whether a value of a row is a number that statistics can compute with, and not a boolean."""
    return not isinstance(given, bool) and isinstance(given, int | float) and abs(given) <= LARGEST_NUMBER


def is_nan(given: Any) -> bool:
    """Return whether a value is NaN, which means in a table that there is no value."""
    return isinstance(given, float) and given != given


def check_text(text: Any, what: str) -> None:
    """Check that a value is a text that can be written.

    Raises:
        RecordError: it is not; the message begins with what it is.
    """
    if not isinstance(text, str):
        kind = "null" if text is None or is_nan(text) else f"of type {type(text).__name__}"
        raise RecordError(f"{what} is {kind}; it must be a string")
    if bad := lone_surrogate(text):
        raise RecordError(f"{what} has {bad}")


def lone_surrogate(text: str) -> str | None:
    """Return in words what of a text UTF-8 cannot hold; None if there is nothing."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code, at = ord(text[error.start]), f"at character {error.start + 1}"
        # The CSV decoder turns a byte that is not UTF-8 into U+DC80 to U+DCFF.
        if 0xDC80 <= code <= 0xDCFF:
            return f"a byte that is not UTF-8 (0x{code - 0xDC00:02X}) {at}; save the file as UTF-8"
        return f"a lone surrogate (U+{code:04X}) {at}; remove it"
    return None


def too_large(most_bytes: int) -> RowError:
    return RowError(f"the row is larger than {most_bytes:,} bytes; allow larger rows with --max-row-bytes")


def unreadable_from_here(error: Exception | str) -> RowError:
    return RowError(f"the rest of the file cannot be read: {error}")


def numbered(
    records: Iterable[Record], damage: type[Exception] | tuple[type[Exception], ...]
) -> Iterator[tuple[int, Record]]:
    """Yield records with their numbers, from 1; a failure where one of these errors ends them."""
    number = 0
    try:
        for number, record in enumerate(records, 1):
            yield number, record
    except damage as error:
        yield number + 1, unreadable_from_here(" ".join(str(error).split()))


def repeated_name(names: Iterable[str]) -> str | None:
    """Return the first name that occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


ABSENT: Any = object()
"""The value of a path that a record does not have."""
EACH = "[*]"
_KEY, _COUNT, _TEXT = "@key", "@count", "@text"
_STEP = re.compile(r"\[(-?\d+|\*)\]|([^.\[]+|\[)")

Element = Mapping[str, int | str]
"""The place or the key of the element that `[*]` stands for, by what is before it in a path."""
FIRST: Element = {}


@lru_cache(maxsize=4096)
def steps(path: str) -> tuple[str, ...]:
    """Return the keys and the places that a path goes through."""
    return tuple(EACH if place == "*" else place or key for place, key in _STEP.findall(path))


def value_at(record: Mapping[str, Any], path: str, element: Element = FIRST) -> Any:
    """Return the value of a column or of a nested value; `ABSENT` if the record has none.

    Args:
        record: columns by name.
        path: the path.
        element: the element that `[*]` stands for; the first one of other lists.
    """
    if path in record:
        return record[path]
    found: Any = record
    own: int | str = 0
    for step in steps(path):
        if step == _TEXT:
            return _string(found)
        found = unpacked(found)
        if step == EACH:
            own = element.get(path.partition(EACH)[0], 0)
            step = str(own)
        if step == _KEY:
            found = own
        elif isinstance(found, Mapping):
            found = found.get(step, ABSENT)
        elif isinstance(found, list) and step.removeprefix("-").isdecimal():
            found = found[int(step)] if -len(found) <= int(step) < len(found) else ABSENT
        elif isinstance(found, list) and step == _COUNT:
            found = len(found)
        else:
            return ABSENT
    return found


def column(path: str) -> str:
    """Return the column of a record that a path begins with."""
    return next(iter(steps(path)), path)


def elements(record: Mapping[str, Any], paths: Iterable[str], *, product: bool = False) -> list[Element] | None:
    """Return each element that `[*]` of these paths stands for; None without such a list.

    Lists that are named together have equal numbers of elements, which are read side by side.

    Args:
        record: columns by name.
        paths: the paths.
        product: whether each element of a list is read with each one of the others.

    Raises:
        RecordError: a list is empty, its value is not a list, or the lengths differ.
    """
    keys: dict[str, list[Any]] = {}
    for name in (path.partition(EACH)[0] for path in paths if EACH in path):
        found = unpacked(value_at(record, name))
        if found is ABSENT or found is None:
            continue
        if not isinstance(found, Mapping | list) or not found:
            raise RecordError(f"{name!r} is not a list of at least one element, as {name}{EACH} needs")
        keys[name] = list(found) if isinstance(found, Mapping) else list(range(len(found)))
    if not keys:
        return None
    if not product and len({*map(len, keys.values())}) > 1:
        said = " and ".join(f"{len(each)} in {name!r}" for name, each in keys.items())
        raise RecordError(f"lists that are read side by side have different lengths: {said}")
    together = itertools.product(*keys.values()) if product else zip(*keys.values(), strict=True)
    return [dict(zip(keys, each, strict=True)) for each in together]


def unpacked(value: Any) -> Any:
    """Return the object or the list in a JSON text, a tuple or an array of numpy; any other value as it is."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    value = value.tolist() if hasattr(value, "tolist") else value
    return list(value) if isinstance(value, tuple) else value


def is_missing(value: Any) -> bool:
    """Return whether a value is absent, null or an empty text."""
    return value is ABSENT or value is None or (isinstance(value, str) and not value)


def _string(value: Any) -> Any:
    """Return the text in a JSON string; any other value as it is."""
    try:
        return json.loads(value) if isinstance(value, str) and value[:1] == '"' else value
    except ValueError:
        return value
