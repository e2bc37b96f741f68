"""A record of an input, the limit of its size, and the reasons why it cannot be read."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

from localjudge.errors import RowError

Record = Mapping[str, Any] | RowError
"""The columns of a record by name, or the reason why it cannot be read."""

MAX_ROW_BYTES = 8_000_000
"""Default limit of a row: about two million tokens, for which the tokenizer takes 1 GB of memory."""

DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)
"""Errors from a file that is truncated or damaged."""


LARGEST_NUMBER = 1e9
"""The largest size of a number in a row: sums and products of such numbers stay exact to nine digits."""


class RecordError(ValueError):
    """A record is not a row; the message is the reason."""


def is_number(given: object) -> TypeGuard[int | float]:
    """Return whether a value of a row is a number that statistics can compute with, and not a boolean."""
    return not isinstance(given, bool) and isinstance(given, int | float) and abs(given) <= LARGEST_NUMBER


def too_large(most_bytes: int) -> RowError:
    return RowError(f"the row is larger than {most_bytes:,} bytes; allow larger rows with --max-row-bytes")


def unreadable_from_here(error: Exception | str) -> RowError:
    return RowError(f"the rest of the file cannot be read: {error}")


def repeated_name(names: Iterable[str]) -> str | None:
    """Return the first name that occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
