"""The texts of the JSON values in a stream: the elements of an array, or objects that follow each other.

No more than a few times the size limit of a row is held in memory.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from functools import partial
from io import BufferedIOBase
from itertools import islice

from localjudge.errors import RowError, RowProblem
from localjudge.rows.record import Record, too_large, unreadable_from_here

_PIECE = 1 << 16
_BETWEEN = re.compile(r"[ \t\n\r]*,?[ \t\n\r]*")
_LONGEST_TOKEN = 10
"""Characters before its end at which a JSON text that is cut can have an error, if it is not in a string."""
_MOST_HELD = 8
"""How many times as large as a row may be a value that is skipped."""


class JsonValues:
    """The texts of the JSON values in a stream, and a failure for what cannot be read after them.

    Args:
        stream: an array, or objects that follow each other, with a comma between two or not.
        most_bytes: size limit of a row.
        is_array: whether the values are the elements of an array.
    """

    def __init__(self, stream: BufferedIOBase, most_bytes: float, *, is_array: bool) -> None:
        pieces = iter(partial(stream.read1, _PIECE), b"")
        self._pieces = codecs.iterdecode(pieces, "utf-8", "surrogateescape")
        self._most_bytes, self._is_array = most_bytes, is_array
        self._decoder = json.JSONDecoder()
        self._held = self._first_piece()
        # The end of the last value in the held text, and the beginning of the next one.
        self._end = self._begin = 0

    def _first_piece(self) -> str:
        """Return the beginning of the text, without white space and without the bracket of an array."""
        for piece in self._pieces:
            text = piece.lstrip()
            if text:
                return text[1:] if self._is_array else text
        return ""

    def __iter__(self) -> Iterator[bytes | RowError]:
        while not self._is_at_end():
            try:
                _, end = self._decoder.raw_decode(self._held, self._begin)
            except (ValueError, RecursionError) as error:
                if self._may_be_cut(error) and self._fill():
                    continue
                yield from self._problem()
                return
            yield _encoded(self._held[self._begin : end])
            self._end = end
        if self._has_rest():
            yield unreadable_from_here("there is text after the end of the array")

    def _is_at_end(self) -> bool:
        """Find the beginning of the next value, and return whether the array ends there instead."""
        between = _BETWEEN.match(self._held, self._end)
        self._begin = between.end() if between else self._end
        return self._is_array and self._held.startswith("]", self._begin)

    def _may_be_cut(self, error: Exception) -> bool:
        """Return whether the next value can be cut at the end of the held text."""
        if "Unterminated" in str(error):
            return True
        place = getattr(error, "pos", self._begin)
        return not self._held[place + _LONGEST_TOKEN :].strip()

    def _fill(self) -> bool:
        """Read more of the text, as much as the next value has already; return whether there is more."""
        size = len(self._held) - self._begin
        if size > _MOST_HELD * self._most_bytes:
            return False
        more = "".join(islice(self._pieces, 1 + size // _PIECE))
        if not more:
            return False
        # A comma may be the last that was read; white space before a value is not held.
        between = self._held[self._end : self._begin].strip()
        self._held = between + self._held[self._begin :] + more
        self._end = 0
        return True

    def _problem(self) -> Iterator[RowError]:
        """Yield why the next value cannot be read; nothing after the last object."""
        rest = self._held[self._begin :]
        size = len(rest)
        if size > _MOST_HELD * self._most_bytes:
            yield unreadable_from_here(too_large(self._most_bytes).reason)
        elif size:
            problem = parse_json(_encoded(rest), "record")
            yield unreadable_from_here(problem.reason if isinstance(problem, RowError) else "")
        elif self._is_array:
            yield unreadable_from_here("the array does not end")

    def _has_rest(self) -> bool:
        """Return whether there is text after the end of the array."""
        if self._held[self._begin + 1 :].strip():
            return True
        return any(piece.strip() for piece in self._pieces)


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def parse_json(text: bytes, what: str) -> Record:
    """Return a JSON object, or the reason why the text is none.

    Args:
        text: the JSON text, in UTF-8.
        what: the name of the text in messages.
    """
    try:
        return as_record(json.loads(text.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        reason = f"not UTF-8 at byte {error.start + 1} of the {what}"
        return RowError(reason, problem=RowProblem.ENCODING)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} of the {what}, " if error.lineno > 1 else ""
        return RowError(f"not JSON: {error.msg} at {place}column {error.colno}")
    except (ValueError, RecursionError) as error:
        return RowError(f"JSON that Python cannot parse: {error}")


def as_record(value: object) -> Record:
    """Return an object as a record; the reason why any other value is none."""
    return value if isinstance(value, dict) else RowError("not a JSON object with named fields")
