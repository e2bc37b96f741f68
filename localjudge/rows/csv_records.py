"""Records of a CSV file. A record above the size limit is skipped without being held in memory."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import BinaryIO, TextIO

from localjudge.errors import RowError, UsageError
from localjudge.rows.record import Cells, Record, lone_surrogate, repeated_name, too_large

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}


def csv_reader(name: str, head: bytes, *, is_whole: bool, usual: str) -> partial[Iterator[tuple[int, Record]]]:
    """Return the reader of a CSV file: its delimiter is the one that splits the header.

    If several do, it is the one that gives each record of the beginning as many fields as the header has. A tab
    that splits the header of a `.tsv` file is its delimiter. In its first line, Excel may name the delimiter.

    Args:
        name: the name of the file, for the message.
        head: the beginning of the file, in UTF-8.
        is_whole: whether this is the whole file.
        usual: the delimiter of a file that none splits.

    Raises:
        UsageError: several delimiters are possible.
    """
    text = head.decode("utf-8", "surrogateescape")
    if named := _SEPARATOR.match(text):
        delimiter, text = named[1], text[named.end() :]
    else:
        widths = {each: list(_widths(text, each, is_whole)) for each in DELIMITERS}
        possible = [each for each, found in widths.items() if found and found[0] > 1]
        if usual == "\t" and usual in possible:
            possible = [usual]
        if len(possible) > 1:
            possible = [each for each in possible if len(set(widths[each])) == 1] or possible
        if len(possible) > 1:
            delimiters = " or ".join(DELIMITERS[each] for each in possible)
            advice = "put each name of its first line in double quotes"
            raise UsageError(f"{name}: {delimiters} may separate its columns; {advice}")
        delimiter = possible[0] if possible else usual
    quoted = delimiter != "\t" or _is_quoted(text if is_whole else text[: text.rfind("\n") + 1])
    return partial(read_csv, delimiter=delimiter, quoted=quoted, skipped=bool(named))


def _widths(text: str, delimiter: str, is_whole: bool) -> Iterator[int]:
    """Yield the number of fields of each record that is not blank; 0 for one that is not valid."""
    lines = list(io.StringIO(text, newline=""))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        for fields in reader:
            if fields and (is_whole or reader.line_num < len(lines)):
                yield len(fields)
    except csv.Error:
        if is_whole or reader.line_num < len(lines):
            yield 0


def _is_quoted(text: str) -> bool:
    """Return whether quotes in a text with tabs mark the ends of its fields, and are not a part of them.

    They are a part of the fields if the tabs alone give each line of the beginning as many fields as the
    header has, unless a line shows that a program has quoted it: a quote inside a quoted field is doubled, or
    the header is quoted.
    """
    width = 0
    for line in io.StringIO(text, newline="\n"):  # one after the other, for they may be many
        line = line.removesuffix("\n").removesuffix("\r")
        fields = line.split("\t")
        is_quoted_header = not width and all(map(_QUOTED.fullmatch, fields))
        is_open = any(field.startswith('"') for field in fields) and line.count('"') % 2
        is_open_header = not width and is_open  # its last name continues in the next line
        width = width or len(fields) * bool(line)
        if "\r" in line or is_quoted_header or is_open_header or (line and len(fields) != width):
            return True
        if any(map(_DOUBLED.fullmatch, fields)):
            return True
    return '"' not in text


_SEPARATOR = re.compile(r"sep=(.)\r?\n")
_QUOTED = re.compile(r'"[^"]*"')
_DOUBLED = re.compile(r'""|"(?:[^"]|"")*""(?:[^"]|"")*"')


def read_csv(
    stream: BinaryIO, most_bytes: int, delimiter: str = ",", quoted: bool = True, skipped: bool = False
) -> Iterator[tuple[int, Record]]:
    """Yield the records of a CSV file with a header, each with the number of its first line.

    Args:
        stream: the bytes of the file.
        most_bytes: size limit of a record.
        delimiter: what separates the fields.
        quoted: whether a field may stand in double quotes.
        skipped: whether a line before the header names the delimiter.

    A quote that is never closed makes one record of all the lines after it. Each of those lines is reported as
    unreadable: no line is lost, and no part of a quoted text becomes a row.
    """
    csv.field_size_limit(2**31 - 1)
    # A byte that is not UTF-8 becomes a lone surrogate.
    with io.TextIOWrapper(stream, "utf-8", errors="surrogateescape", newline="") as text:
        lines = _CsvLines(text, delimiter, most_bytes, quoted)
        reader = csv.reader(lines, delimiter=delimiter, strict=True, quoting=0 if quoted else csv.QUOTE_NONE)
        if skipped:
            next(lines, None)
        header: list[str] | None = None
        while True:
            lines.begin_record()
            number = lines.number + 1
            try:
                fields = next(reader)
            except StopIteration:
                return
            except (csv.Error, _TooLargeError) as error:
                is_large = isinstance(error, _TooLargeError)
                is_whole = is_large and lines.skip_record()
                yield number, too_large(most_bytes) if is_large else RowError(f"not CSV: {error}")
                for inner in filter(number.__lt__, () if is_whole else lines.of_record()):
                    said = f"part of the record that begins at line {number}, which cannot be read"
                    yield inner, RowError(said)
                header = header or []
                continue
            if header is None:
                header = fields or None
            elif fields:
                yield number, _record(header, fields)


def _record(header: list[str], fields: list[str]) -> Record:
    if len(fields) != len(header):
        return RowError(f"{len(fields)} fields, where the header has {len(header)}")
    if (repeated := repeated_name(header)) is not None:
        return RowError(f"two columns have the name {repeated!r}")
    record = Cells(zip(header, fields, strict=True))
    for name, text in record.items():
        if bad := lone_surrogate(name) or lone_surrogate(text):
            return RowError(f"{name!r} has {bad}", record)
    return record


class _TooLargeError(Exception):
    """The record in progress is larger than the limit."""


class _CsvLines(Iterator[str]):
    """The lines of a CSV file, for `csv.reader`.

    Attributes:
        number: the number of the last line that was read, from 1.
    """

    def __init__(self, stream: TextIO, delimiter: str, most_bytes: int, quoted: bool = True) -> None:
        self._stream, self._delimiter, self._most_bytes, self._quoted = stream, delimiter, most_bytes, quoted
        self._tokens = re.compile(rf'["{delimiter}]|[\r\n]+|[^"{delimiter}\r\n]+')
        self._last = "\n"
        self.number = 0
        self.begin_record()

    def begin_record(self) -> None:
        self._first = self.number + 1
        self._pieces: list[str] = []
        self._bytes = 0

    def of_record(self) -> Iterator[int]:
        """Yield the line numbers of the record in progress; blank lines within the size limit are left out."""
        yield from (self._first + place for place, piece in enumerate(self._pieces) if piece.strip())
        yield from range(self._first + len(self._pieces), self.number + 1)

    def __next__(self) -> str:
        piece = self._read(self._most_bytes - self._bytes + 1)
        if not piece:
            raise StopIteration
        self._pieces.append(piece)
        self._bytes += len(piece) if piece.isascii() else len(piece.encode("utf-8", "surrogateescape"))
        if self._bytes > self._most_bytes:
            raise _TooLargeError
        return piece

    def skip_record(self) -> bool:
        """Skip to the end of the record in progress. Return whether it is well-formed."""
        state = "start"  # of a field; or "plain", "quoted", or "closed" after a quote that may end the field
        for piece in chain(self._pieces, iter(partial(self._read, self._most_bytes), "")):
            for token in self._tokens.findall(piece):
                if state == "quoted":
                    state = "closed" if token == '"' else state
                elif token[0] in "\r\n":
                    return True
                elif token == self._delimiter:
                    state = "start"
                elif self._quoted and token == '"' and state in ("start", "closed"):
                    state = "quoted"
                elif state == "closed":
                    while self._last and self._last[-1] not in "\r\n":
                        self._read(self._most_bytes)
                    return False
                else:
                    state = "plain"
        return state != "quoted"

    def _read(self, most: int) -> str:
        """Return a line, or the next part of a line longer than `most` characters; empty at the end."""
        piece = self._stream.readline(most)
        if piece == "\n" and self._last[-1:] == "\r":  # the limit split a \r\n
            piece = self._stream.readline(most)
        if piece and self._last[-1:] in "\r\n":
            self.number += 1
        self._last = piece
        return piece
