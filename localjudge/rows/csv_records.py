"""Records of a CSV file. A record above the size limit is skipped without being held in memory."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import BinaryIO, TextIO

from localjudge.errors import RowError, RowProblem, UsageError
from localjudge.rows.record import Record, lone_surrogate, repeated_name, too_large

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
        possible = [usual] if usual == "\t" and usual in possible else possible
        possible = [each for each in possible if len(set(widths[each])) == 1] or possible
        if len(possible) > 1:
            delimiters = " or ".join(DELIMITERS[each] for each in possible)
            advice = "put each name of its first line in double quotes"
            raise UsageError(f"{name}: {delimiters} may separate its columns; {advice}")
        delimiter = possible[0] if possible else usual
    quoted = delimiter != "\t" or _is_quoted(text if is_whole else text[: text.rfind("\n") + 1])
    return partial(read_csv, delimiter=delimiter, quoted=quoted)


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
    lines = (each.removesuffix("\n").removesuffix("\r") for each in io.StringIO(text, newline="\n"))
    rows = (line.split("\t") for line in lines if line)  # one after the other, for they may be many
    header = next(rows, [""])
    if _spans_tabs(header) or all(map(_QUOTED.fullmatch, header)) or '"' not in text:
        return True
    return any(
        len(fields) != len(header) or "\r" in "".join(fields) or any(map(_DOUBLED.fullmatch, fields))
        for fields in chain([header], rows)
    )


def _spans_tabs(header: Sequence[str]) -> bool:
    """Return whether a quoted name of a header has a tab, or goes on in the next line."""
    is_multiline = any(name.startswith('"') for name in header) and "".join(header).count('"') % 2 == 1
    try:
        names = next(csv.reader(["\t".join(header)], delimiter="\t"), [])
    except csv.Error:
        return is_multiline
    return is_multiline or len(names) != len(header)


_PIECE = 1 << 16
_INSIDE = re.compile(r'(?<=[^"\r\n])[^"\r\n]+(?=[^"\r\n])')
"""Characters between others, without quotes and ends of lines: they do not show where a record ends."""
_SEPARATOR = re.compile(r"sep=(.)\r?\n")
_QUOTED = re.compile(r'"[^"]*"')
_DOUBLED = re.compile(r'""|"(?:[^"]|"")*""(?:[^"]|"")*"')


def read_csv(
    stream: BinaryIO, most_bytes: int, delimiter: str = ",", quoted: bool = True
) -> Iterator[tuple[int, Record]]:
    """Yield the records of a CSV file with a header, each with the number of its first line.

    Args:
        stream: the bytes of the file.
        most_bytes: size limit of a record.
        delimiter: what separates the fields.
        quoted: whether a field may stand in double quotes.

    A quote that is never closed makes one record of all the lines after it. Each of those lines is reported as
    unreadable: no line is lost, and no part of a quoted text becomes a row.
    """
    csv.field_size_limit(2**31 - 1)
    # A byte that is not UTF-8 becomes a lone surrogate.
    with io.TextIOWrapper(stream, "utf-8", errors="surrogateescape", newline="") as text:
        lines = _CsvLines(text, most_bytes)
        reader = csv.reader(lines, delimiter=delimiter, strict=True, quoting=0 if quoted else csv.QUOTE_NONE)
        header: list[str] | None = None
        while True:
            lines.begin_record()
            number = lines.number + 1
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield number, RowError(f"not CSV: {error}")
                said = f"part of the record that begins at line {number}, which cannot be read"
                yield from ((line, RowError(said)) for line in lines.of_record() if line > number)
                header = header or []
                continue
            if lines.size > most_bytes:
                yield number, too_large(most_bytes)
                header = header or []
            elif header is None:
                header = fields if fields and fields != ["sep=", ""] else None
            elif fields:
                yield number, _record(header, fields)


def _record(header: list[str], fields: list[str]) -> Record:
    if len(fields) != len(header):
        return RowError(f"{len(fields)} fields, where the header has {len(header)}")
    record = dict(zip(header, fields, strict=True))
    if len(record) != len(header):
        return RowError(f"two columns have the name {repeated_name(header)!r}")
    for name, text in record.items():
        if bad := lone_surrogate(name) or lone_surrogate(text):
            return RowError(f"{name!r} has {bad}", record, RowProblem.ENCODING)
    return record


class _CsvLines(Iterator[str]):
    """The lines of a CSV file, for `csv.reader`; of a record above the limit, only what shows where it ends.

    Attributes:
        number: the number of the last line that was read, from 1.
        size: the number of bytes that were read of the record in progress.
    """

    def __init__(self, stream: TextIO, most_bytes: int) -> None:
        self._stream, self._most_bytes, self.number = stream, most_bytes, 0
        self.begin_record()

    def begin_record(self) -> None:
        self.size, self._has_text = 0, bytearray()  # a byte for each line

    def of_record(self) -> Iterator[int]:
        """Yield the numbers of the lines of the record in progress that are not blank."""
        first = self.number + 1 - len(self._has_text)
        return (number for number, has_text in enumerate(self._has_text, first) if has_text)

    def __next__(self) -> str:
        line, is_cut = "", True
        while is_cut:
            piece = self._stream.readline(_PIECE)
            self.size += len(piece) if piece.isascii() else len(piece.encode("utf-8", "surrogateescape"))
            line += piece if self.size <= self._most_bytes else _INSIDE.sub("", piece)
            is_cut = len(piece) == _PIECE and piece[-1] != "\n"
        if not line:
            raise StopIteration
        self.number += 1
        self._has_text.append(not line.isspace())
        return line
