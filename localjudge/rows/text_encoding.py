"""The encoding of a text file: every reader gets UTF-8 without a byte order mark."""

from __future__ import annotations

import codecs
import io
from typing import Any, BinaryIO

from localjudge.errors import UsageError
from localjudge.rows.record import DAMAGED

_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # begins with the mark of UTF-16
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF8: "UTF-8",
    codecs.BOM_UTF16_LE: "UTF-16-LE",
    codecs.BOM_UTF16_BE: "UTF-16-BE",
}
_PIECE = 1 << 16


class Utf8Stream(io.RawIOBase):
    """The bytes of a text in UTF-8 or in UTF-16 with a byte order mark, as UTF-8 without the mark.

    What is not valid in the encoding of the text is not valid UTF-8 either.

    Args:
        stream: the bytes of the text.
        name: the name of the file, for messages.

    Raises:
        UsageError: the text is UTF-32, or UTF-16 without a byte order mark.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream: Any = stream
        self._decoder: codecs.IncrementalDecoder | None = None
        self._ahead = b""
        self._damage: Exception | None = None
        begin = self.head(16)
        mark, encoding = next((each for each in _MARKS.items() if begin.startswith(each[0])), (b"", None))
        unmarked = None if encoding else _unmarked_utf16(begin)
        if encoding == "UTF-32" or unmarked:
            what = encoding or f"{unmarked} without a byte order mark"
            raise UsageError(
                f"{name}: is {what}; convert it, such as with: iconv -f {encoding or unmarked} -t UTF-8 FILE"
            )
        self._ahead = self._ahead.removeprefix(mark)
        if encoding in ("UTF-16-LE", "UTF-16-BE"):
            self._decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
            self._ahead = self._as_utf8(self._ahead)

    def head(self, size: int) -> bytes:
        """Return the first bytes without consuming them; fewer than `size` if the file ends or is damaged."""
        while len(self._ahead) < size:
            try:
                piece = self._next()
            except DAMAGED as error:
                self._damage = error
                break
            if not piece:
                break
            self._ahead += piece
        return self._ahead[:size]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._ahead:
            if self._damage:
                raise self._damage
            self._ahead = self._next()
        piece = self._ahead[: len(buffer)]
        self._ahead = self._ahead[len(piece) :]
        buffer[: len(piece)] = piece
        return len(piece)

    def _next(self) -> bytes:
        while data := self._stream.read1(_PIECE):
            if piece := self._as_utf8(data):
                return piece
        return self._as_utf8(b"", final=True)

    def _as_utf8(self, data: bytes, final: bool = False) -> bytes:
        if self._decoder is None:
            return data
        try:
            return self._decoder.decode(data, final).encode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            self._decoder.reset()
            raise EOFError("the last character is not complete") from None


def _unmarked_utf16(begin: bytes) -> str | None:
    """Return the encoding if the text begins with eight characters of ASCII in UTF-16."""
    if len(begin) == 16:
        for zeros, others, encoding in ((1, 0, "UTF-16LE"), (0, 1, "UTF-16BE")):
            if not any(begin[zeros::2]) and all(begin[others::2]):
                return encoding
    return None
