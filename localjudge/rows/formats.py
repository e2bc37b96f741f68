"""Formats of rows: records in JSON lines, in a CSV or Parquet file, or in a table in memory.

A record is a mapping of column names to values, or the reason why it cannot be read. Records are
streamed. A record larger than `most_bytes` is skipped without being held in memory, so a broken or hostile file
cannot exhaust the memory.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, BinaryIO, TextIO

from localjudge.errors import UsageError

Record = Mapping[str, Any] | str
"""The columns of a record, or the reason why it cannot be read."""

MAX_ROW_BYTES = 8_000_000
"""Default limit of a row: about two million tokens, for which the tokenizer takes 1 GB of memory."""

# Errors from a file that is truncated or damaged.
_DAMAGED = (EOFError, OSError, zlib.error)


def too_large(most_bytes: int) -> str:
    return f"the row is larger than {most_bytes:,} bytes; allow larger rows with --max-row-bytes"


def _unreadable_from_here(error: Exception) -> str:
    return f"the rest of the file cannot be read: {error}"


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
                yield number, _parse_json(line)
    except _DAMAGED as error:
        yield number + 1, _unreadable_from_here(error)


def _parse_json(line: bytes) -> Record:
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start + 1} of the line"
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at column {error.colno}"
    except (ValueError, RecursionError) as error:
        return f"JSON that Python cannot parse: {error}"
    return record if isinstance(record, dict) else "not a JSON object with named fields"


def read_csv(stream: BinaryIO, delimiter: str, most_bytes: int) -> Iterator[tuple[int, Record]]:
    """Yield the records of a CSV file with a header, each with the number of its first line.

    A quote that is never closed makes one record of all the lines after it. Each of those lines is reported as
    unreadable: no line is lost, and no part of a quoted text becomes a row.
    """
    csv.field_size_limit(2**31 - 1)
    # A byte that is not UTF-8 becomes a lone surrogate, which `columns` rejects.
    with io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="") as text:
        lines = _CsvLines(text, delimiter, most_bytes)
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        header: list[str] | None = None
        repeated = None
        while True:
            lines.begin_record()
            number = lines.number + 1
            try:
                fields = next(reader)
            except StopIteration:
                if lines.damage:
                    yield number, _unreadable_from_here(lines.damage)
                return
            except (csv.Error, _TooLargeError) as error:
                is_large = isinstance(error, _TooLargeError)
                is_whole = is_large and lines.skip_record()
                yield number, too_large(most_bytes) if is_large else f"not CSV: {error}"
                if not is_whole:
                    for inner in filter(number.__lt__, lines.of_record()):
                        yield inner, f"part of the record that begins at line {number}, which cannot be read"
                header = header or []
                continue
            if not fields:
                continue
            if header is None:
                header, repeated = fields, _repeated_name(fields)
            elif len(fields) != len(header):
                yield number, f"{len(fields)} fields, where the header has {len(header)}"
            elif repeated is not None:
                yield number, f"two columns have the name {repeated!r}"
            else:
                yield number, dict(zip(header, fields, strict=True))


class _TooLargeError(Exception):
    """The record in progress is larger than the limit."""


class _CsvLines(Iterator[str]):
    """The lines of a CSV file, for `csv.reader`.

    Attributes:
        number: the number of the last line that was read, from 1.
        damage: the error that stopped the reading before the end of the file.
    """

    def __init__(self, stream: TextIO, delimiter: str, most_bytes: int) -> None:
        self._stream, self._delimiter, self._most_bytes = stream, delimiter, most_bytes
        self._tokens = re.compile(rf'["{delimiter}]|[\r\n]+|[^"{delimiter}\r\n]+')
        self._last = "\n"
        self.number = 0
        self.damage: Exception | None = None
        self.begin_record()

    def begin_record(self) -> None:
        self._numbers = array("q")
        self._skipped = range(0)
        self._pieces: list[str] = []
        self._bytes = 0

    def of_record(self) -> Iterable[int]:
        """Return the line numbers of the record in progress; blank lines within the size limit are left out."""
        return chain(self._numbers, self._skipped)

    def __next__(self) -> str:
        piece = self._read(self._most_bytes - self._bytes + 1)
        if not piece:
            raise StopIteration
        if piece.strip():
            self._numbers.append(self.number)
        self._pieces.append(piece)
        self._bytes += len(piece) if piece.isascii() else len(piece.encode("utf-8", "surrogateescape"))
        if self._bytes > self._most_bytes:
            raise _TooLargeError
        return piece

    def skip_record(self) -> bool:
        """Skip to the end of the record in progress. Return whether it is well-formed."""
        state = "start"  # of a field; or "plain", "quoted", or "closed" after a quote that may end the field
        pieces, self._pieces = iter(self._pieces), []
        first = self.number + 1
        while piece := next(pieces, "") or self._read(self._most_bytes):
            for match in self._tokens.finditer(piece):
                token = match[0]
                if state == "quoted":
                    state = "closed" if token == '"' else state
                elif token[0] in "\r\n":
                    return True
                elif token == self._delimiter:
                    state = "start"
                elif token == '"' and state in ("start", "closed"):
                    state = "quoted"
                elif state == "closed":
                    while self._last and self._last[-1] not in "\r\n":
                        self._read(self._most_bytes)
                    self._skipped = range(first, self.number + 1)
                    return False
                else:
                    state = "plain"
        self._skipped = range(first, self.number + 1)
        return state != "quoted"

    def _read(self, most: int) -> str:
        """Return a line, or the next part of a line longer than `most` characters; empty at the end."""
        try:
            piece = "" if self.damage else self._stream.readline(most)
            if piece == "\n" and self._last[-1:] == "\r":  # the limit split a \r\n
                piece = self._stream.readline(most)
        except _DAMAGED as error:
            piece, self.damage = "", error
        if piece and self._last[-1:] in "\r\n":
            self.number += 1
        self._last = piece
        return piece


def read_parquet(name: str, most_bytes: int) -> Iterator[tuple[int, Record]]:
    """Yield the records of a Parquet file with their numbers, from 1."""
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(name, buffer_size=2**20) as file:
            groups = [file.metadata.row_group(place) for place in range(file.metadata.num_row_groups)]
            mean = max((group.total_byte_size / max(group.num_rows, 1) for group in groups), default=0)
            for batch in file.iter_batches(batch_size=max(1, min(256, int(most_bytes / max(mean, 1))))):
                for record in arrow_records(batch, most_bytes):
                    number += 1
                    yield number, record
    except (pyarrow.ArrowException, OSError) as error:
        yield number + 1, _unreadable_from_here(error)


def arrow_records(batch: Any, most_bytes: int | None = None) -> Iterator[Record]:
    """Yield the records of a `pyarrow.RecordBatch`; a value without a Python type becomes text."""
    if (repeated := _repeated_name(batch.schema.names)) is not None:
        yield from [f"two columns have the name {repeated!r}"] * batch.num_rows
        return
    if most_bytes is None or batch.nbytes <= most_bytes:
        columns = [_values(column) for column in batch.columns]
        for place in range(batch.num_rows):
            yield {name: values[place] for name, values in zip(batch.schema.names, columns, strict=True)}
        return
    for place in range(batch.num_rows):
        row = batch.slice(place, 1)
        yield from arrow_records(row) if _row_bytes(row) <= most_bytes else [too_large(most_bytes)]


def _row_bytes(row: Any) -> int:
    # The size of a slice of a dictionary array includes the whole dictionary.
    return sum(
        (column.dictionary_decode() if hasattr(column, "dictionary_decode") else column).nbytes
        for column in row.columns
    )


def _values(column: Any) -> list[Any]:
    # Python's types have no nanoseconds; for these pyarrow would import pandas if it is installed.
    if "[ns" not in str(column.type):
        try:
            return list(column.to_pylist())
        except _NOT_IN_PYTHON:
            pass
    return [_python_value(scalar) for scalar in column]


# Errors of pyarrow for text that is not UTF-8, dates out of range, unknown time zones.
_NOT_IN_PYTHON = (ArithmeticError, LookupError, NotImplementedError, TypeError, ValueError)


def _python_value(scalar: Any) -> Any:
    """Return an Arrow scalar as a Python value; a value without a Python type becomes text."""
    import pyarrow

    kind = scalar.type
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pyarrow.MapScalar):
        return [[_python_value(each[0]), _python_value(each[1])] for each in scalar.values]
    if isinstance(scalar, pyarrow.ListScalar):
        return [_python_value(each) for each in scalar.values]
    if isinstance(scalar, pyarrow.StructScalar):
        pairs = [(kind.field(place).name, _python_value(scalar[place])) for place in range(kind.num_fields)]
        return (
            dict(pairs) if _repeated_name(name for name, _ in pairs) is None else [list(pair) for pair in pairs]
        )
    if isinstance(inner := getattr(scalar, "value", None), pyarrow.Scalar):  # dictionary, extension, union
        return _python_value(inner)
    try:
        return _without_nanoseconds(scalar).as_py()
    except _NOT_IN_PYTHON:
        pass
    if isinstance(scalar, pyarrow.BinaryScalar):
        return scalar.as_buffer().to_pybytes().decode("utf-8", "surrogateescape")
    if pyarrow.types.is_duration(kind) or getattr(kind, "unit", None) != "ns":
        return f"{kind}: {inner}"
    return scalar.cast(pyarrow.string()).as_py()


def _without_nanoseconds(scalar: Any) -> Any:
    """Return the scalar in microseconds.

    Raises:
        ValueError: it is not a whole number of microseconds.
    """
    import pyarrow

    kind = scalar.type
    if getattr(kind, "unit", None) != "ns":
        return scalar
    if pyarrow.types.is_timestamp(kind):
        return scalar.cast(pyarrow.timestamp("us", kind.tz))
    return scalar.cast(pyarrow.duration("us") if pyarrow.types.is_duration(kind) else pyarrow.time64("us"))


def _repeated_name(names: Iterable[str]) -> str | None:
    """Return the first name that occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def table_records(table: object) -> Iterator[Record] | None:
    """Return the records of a pandas or Polars DataFrame or of an Arrow table; None for anything else.

    Raises:
        UsageError: two columns have the same name, or it is a Polars query that has not been run.
    """
    # A caller with a table has already imported its library.
    pandas, polars, pyarrow = (sys.modules.get(name) for name in ("pandas", "polars", "pyarrow"))
    if pandas and isinstance(table, pandas.DataFrame):
        if (repeated := _repeated_name(map(str, table.columns))) is not None:
            raise UsageError(f"rows: two columns of the DataFrame have the name {repeated!r}; rename one")
        return _pandas_records(table)
    if polars and isinstance(table, polars.LazyFrame):
        raise UsageError("rows: a LazyFrame has no rows yet; write score(frame.collect())")
    if polars and isinstance(table, polars.DataFrame):
        return (record for record in table.iter_rows(named=True))
    if pyarrow and isinstance(table, pyarrow.Table | pyarrow.RecordBatch):
        if (repeated := _repeated_name(table.schema.names)) is not None:
            raise UsageError(f"rows: two columns of the table have the name {repeated!r}; rename one")
        batches = table.to_batches(max_chunksize=256) if isinstance(table, pyarrow.Table) else [table]
        return (record for batch in batches for record in arrow_records(batch))
    return None


def _pandas_records(frame: Any) -> Iterator[Record]:
    names = [str(name) for name in frame.columns]
    for begin in range(0, len(frame), 256):
        part = frame.iloc[begin : begin + 256].set_axis(names, axis=1)
        yield from part.astype(object).where(part.notna(), None).to_dict("records")
