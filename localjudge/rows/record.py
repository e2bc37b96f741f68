"""A record of an input, and why it cannot be read."""

from __future__ import annotations

import lzma
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeGuard

from localjudge.errors import RowError, RowProblem

Record = dict[str, Any] | RowError
"""The columns of a record by name, or the reason why it cannot be read."""

MAX_ROW_BYTES = 8_000_000
"""Default limit of a row: about two million tokens, for which the tokenizer takes 1 GB of memory."""

FIRST_RECORDS = 100
"""The number of records that decide the reading of a file."""
MOST_HELD = 64_000_000
"""The largest number of characters of these records, which are held while the reading is decided."""

DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)
"""Errors from a file that is truncated or damaged."""

LARGEST_NUMBER = 1e9
"""The largest size of a number in a row: sums and products of such numbers stay exact to nine digits."""


class RecordError(ValueError):
    """A record is not a row; the message is the reason.

    Args:
        reason: what is wrong and what to do.
        problem: the kind of problem, on which the key of the failure depends.
    """

    def __init__(self, reason: str, problem: RowProblem = RowProblem.VALUE) -> None:
        super().__init__(reason)
        self.problem = problem


@contextmanager
def error_context(what: str) -> Iterator[None]:
    """Prefix a RecordError with the field or the turn that it concerns."""
    try:
        yield
    except RecordError as error:
        raise RecordError(f"{what} {error}", error.problem) from None


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value of a row is a number that statistics can compute with, and not a boolean."""
    return not isinstance(value, bool) and isinstance(value, int | float) and abs(value) <= LARGEST_NUMBER


def is_nan(value: object) -> bool:
    """Return whether a value is NaN, which is a missing value of a table."""
    return isinstance(value, float) and value != value


def check_text(text: Any, what: str) -> None:
    """Check that a value is a text that can be written.

    Args:
        text: the value.
        what: the field, for the message.

    Raises:
        RecordError: it is not a string, or UTF-8 cannot encode it.
    """
    if not isinstance(text, str):
        kind = "null" if text is None or is_nan(text) else f"of type {type(text).__name__}"
        raise RecordError(f"{what} is {kind}; it must be a string")
    if bad := lone_surrogate(text):
        raise RecordError(f"{what} has {bad}", RowProblem.ENCODING)


def lone_surrogate(text: str) -> str | None:
    """Describe the first character that UTF-8 cannot encode; None if there is none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code, at = ord(text[error.start]), f"at character {error.start + 1}"
        # The CSV decoder turns a byte that is not UTF-8 into U+DC80 to U+DCFF.
        if 0xDC80 <= code <= 0xDCFF:
            return f"a byte that is not UTF-8 (0x{code - 0xDC00:02X}) {at}; save the file as UTF-8"
        return f"a lone surrogate (U+{code:04X}) {at}; remove it"
    return None


def too_large(most_bytes: float) -> RowError:
    reason = f"the row is larger than {most_bytes:,} bytes; allow larger rows with --max-row-bytes"
    return RowError(reason, problem=RowProblem.TOO_LARGE)


def unreadable_from_here(error: Exception | str) -> RowError:
    return RowError(f"the rest of the file cannot be read: {error}", problem=RowProblem.DAMAGED)


def repeated_name(names: Iterable[str]) -> str | None:
    """Return the first name that occurs twice."""
    return next((name for name, times in Counter(names).items() if times > 1), None)


def first_records(records: Iterator[tuple[int, Record]]) -> list[tuple[int, Record]]:
    """Return the first records of a file: a hundred, or as many as may be held."""
    found: list[tuple[int, Record]] = []
    size = 0
    for number, record in islice(records, FIRST_RECORDS):
        found.append((number, record))
        try:
            size += _characters(record)
        except RecursionError:  # such a record is no row
            continue
        if size > MOST_HELD:
            break
    return found


def _characters(value: object) -> int:
    """Return the number of characters of the texts in a value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(str(key)) + _characters(each) for key, each in value.items())
    if isinstance(value, list):
        return sum(_characters(each) for each in value)
    return 8
