"""A record of an input, and why it cannot be read."""

from __future__ import annotations

import lzma
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeGuard

from localjudge.errors import RowError

Record = dict[str, Any] | RowError
"""The columns of a record by name, or the reason why it cannot be read."""


class Cells(dict[str, Any]):
    """A record of a CSV file, in which only a text can hold an object or a list: the text of its JSON."""


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


def too_large(most_bytes: float) -> RowError:
    return RowError(f"the row is larger than {most_bytes:,} bytes; allow larger rows with --max-row-bytes")


def unreadable_from_here(error: Exception | str) -> RowError:
    return RowError(f"the rest of the file cannot be read: {error}")


def repeated_name(names: Iterable[str]) -> str | None:
    """Return the first name that occurs twice."""
    return next((name for name, times in Counter(names).items() if times > 1), None)
