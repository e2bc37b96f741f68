"""Read rows from files: find them, decide their readings from their first records, and read every record by
these.

Rows are streamed: memory does not grow with their number, and the size of a row is limited. A row that cannot
be read becomes a `Failure` that names its file and line, and reading continues. A file that cannot be opened,
or has no reading, is reported before any row is judged.
"""

from __future__ import annotations

import glob
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from localjudge.errors import RowError, RowProblem, UsageError
from localjudge.records import Failure, Row
from localjudge.rows.columns import MESSAGES, USED_FIELDS, Columns, ReadingFlags
from localjudge.rows.decision import decide
from localjudge.rows.formats import STDIN, bare_path, can_be_read_twice, check_file, has_no_suffix, read_file
from localjudge.rows.joins import JoinedRecord, Joins
from localjudge.rows.json_records import Document, rows_of_document
from localjudge.rows.late_columns import LateColumns, has_value
from localjudge.rows.missing import known_columns, missing_fields_reason
from localjudge.rows.paths import ABSENT, column, list_of, look_up
from localjudge.rows.reading import Reading
from localjudge.rows.record import MAX_ROW_BYTES, Record, RecordError, first_records
from localjudge.rows.row import Identity, RowReader, unreadable

FILENAME = "@filename"
"""Column with the name of a row's file, without folder and suffix."""
_REQUIRED = ("reference", "system")
"""Fields that a row may lack, and that each row needs if the rubric shows them or pairs are formed by them."""


def find_inputs(names: Sequence[str]) -> list[str]:
    """Return the files that names and globs match, in order; `-` is stdin, `examples` the included rows.

    Raises:
        UsageError: there is no such file, its format is unknown, or the package that reads it is missing.
    """
    found: list[str] = []
    for name in names:
        matches = glob.glob(glob.escape(name)) or sorted(glob.glob(name, recursive=True)) or [name]
        if not has_no_suffix(name):
            for match in matches:
                _check_readable(Path(match))
        found += matches
    if found.count(STDIN) > 1:
        raise UsageError("-: stdin can be read only once")
    if STDIN in found and sys.stdin is None:
        raise UsageError("-: stdin is closed; pipe rows into it or name a file")
    return found


def _check_readable(path: Path) -> None:
    """Check that a file can be opened and is of a known format."""
    try:
        if path.is_file() or not path.exists():  # opening a pipe would take its writer's rows
            path.open("rb").close()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    check_file(str(path))


def names_of_files(inputs: Iterable[str]) -> dict[str, str]:
    """Return a name for each input: its file's, or as many of the last parts of its path as tell all apart."""
    parts = {name: bare_path(Path(name.encode("utf-8", "replace").decode())).parts for name in inputs}
    for length in range(1, max(map(len, parts.values()), default=1) + 1):
        found = {name: "/".join(each[-length:]) for name, each in parts.items()}
        if len({*found.values()}) == len(parts):
            return found
    return {name: name for name in parts}


@dataclass(slots=True)
class InputFile:
    """A file of rows with its reading.

    Attributes:
        name: the file.
        reading: its reading; None for a file without records, or with a problem.
        problem: why it has no reading, or no row among its first records; None if it has.
        columns: the columns of which its first records have values.
        rows: how many of its first records are rows.
        records: the number of its first records.
        examples: the first value of each field.
        not_shown: the columns with values that no field reads.
        is_utf8: whether its text begins as UTF-8.
        held: its first records, if it can be read only once, and the iterator of the rest.
    """

    name: str
    reading: Reading | None = None
    problem: str | None = None
    columns: dict[str, None] = field(default_factory=dict)
    rows: int = 0
    records: int = 0
    examples: dict[str, object] = field(default_factory=dict)
    not_shown: dict[str, None] = field(default_factory=dict)
    is_utf8: bool = True
    held: Iterator[tuple[int, Record]] | None = None

    @property
    def place(self) -> str:
        """The name of the file in the places of its rows; a name that is not UTF-8 could not be written."""
        return "stdin" if self.name == STDIN else self.name.encode("utf-8", "replace").decode()


class Inputs:
    """The files of rows of a command, with their readings.

    Args:
        names: the result of `find_inputs`.
        columns: the column of each field whose column is given, and what else is said of the files.
        used: the fields that each row needs.
        shown: the fields that the judge is shown, if they are others.
        max_row_bytes: size limit of a row in bytes; a larger row is a failure.
        readings: the stored reading of each file; None to decide them.
        label_columns: columns that hold scores or labels, which are in no field.

    Attributes:
        files: the files of rows; a file that others are joined with is none.
        late: the columns that appear first in later records and would have been fields.

    Raises:
        UsageError: a file cannot be read at all, or the rows in it can be in several places.
    """

    def __init__(
        self,
        names: Sequence[str],
        columns: Columns | None = None,
        used: Sequence[str] = USED_FIELDS,
        *,
        shown: Sequence[str] | None = None,
        max_row_bytes: int = MAX_ROW_BYTES,
        readings: Mapping[str, Reading] | None = None,
        label_columns: Iterable[str] = (),
    ) -> None:
        self.names, self.used, self._max_row_bytes = list(names), list(used), max_row_bytes
        self._shown = set(shown or used)
        self._label_columns = list(label_columns)
        self.flags = ReadingFlags.of(columns or {})
        self.late = LateColumns(self.used)
        self._joins = self._read_joins()
        self._systems = names_of_files(self.names) if FILENAME in self.flags.columns.values() else {}
        self.files = [InputFile(name) for name in self.names if name not in self._joins.files]
        for file in self.files:
            stored = None if readings is None else readings.get(file.name)
            self._settle(file, stored)

    def check(self) -> None:
        """Check that each file has a reading and a row among its first records.

        Raises:
            UsageError: a file has none, or no file has a row.
        """
        if self._joins.files and not self.files:
            name = self._joins.files[0]
            raise UsageError(
                f"{name}: holds no responses, but what other files are joined with; give these, too"
            )
        for file in self.files:
            if file.problem is not None:
                raise UsageError(f"{file.name}: {file.problem}")
        if self.files and len(self.empty) == len(self.files):
            raise UsageError(f"{', '.join(self.empty)}: holds no rows; give a file with at least one")

    def _read_joins(self) -> Joins:
        """Return the records that those of the inputs are joined with."""
        joins = Joins(self.flags)
        if joins.given_file is not None:
            for name in find_inputs([joins.given_file]):
                joins.read_given(name, RecordStream(name, self._max_row_bytes))
        for name in self.names:
            if can_be_read_twice(name):
                joins.read_aside(name, RecordStream(name, self._max_row_bytes, self.flags.rows_at))
        return joins

    def _settle(self, file: InputFile, stored: Reading | None) -> None:
        """Decide the reading of a file, or take the stored one, and count the rows among its first records."""
        can_be_read_again = can_be_read_twice(file.name)
        content = ""
        if can_be_read_again:
            content, file.is_utf8 = check_file(file.name)
        stream = RecordStream(file.name, self._max_row_bytes, self.flags.rows_at)
        records = iter(stream)
        first = first_records(records)
        if not can_be_read_again:
            file.held = chain(first, records)
        file.records = len(first)
        if not first:
            return
        joined = [self._joined(file, number, record) for number, record in first]
        for record in joined:
            if isinstance(record, dict):
                file.columns |= {name: None for name, value in record.items() if has_value(value)}
        if stored is not None:
            file.reading = stored
            return
        self._decide(file, joined, content=content, rows_at=stream.found_at)
        if file.reading is not None:
            self._count_rows(file, joined)

    def _named_columns_of_later_records(
        self, file: InputFile, first: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return each column that a flag names and the first records lack, of the first record that has it."""
        missing = [path for path in self.flags.columns.values() if not _has_path(first, path)]
        found: list[dict[str, Any]] = []
        is_joined = any(isinstance(record, JoinedRecord) for record in first)
        if not missing or is_joined or not can_be_read_twice(file.name):
            return found
        for _, record in self._stream(file):
            for path in list(missing):
                if isinstance(record, dict) and _has_path([record], path):
                    name = path if path in record else column(path)
                    found.append({name: record[name]})
                    missing.remove(path)
            if not missing:
                break
        return found

    def _joined(self, file: InputFile, number: int, record: Record) -> Record | Failure:
        """Return a record with the one that it is joined with, and with the name of its file."""
        if isinstance(record, RowError):
            return record
        if self._systems:
            record[FILENAME] = self._systems[file.name]
        try:
            return self._joins.joined(record)
        except RecordError as error:
            where = f"{file.place}:{number}"
            reason = RowError(str(error), record, error.problem)
            if file.reading is None:
                return reason
            return unreadable(where, reason, self._reader(file).identity(record))

    def _decide(
        self, file: InputFile, records: Sequence[Record | Failure], *, content: str, rows_at: str
    ) -> None:
        """Decide the reading of a file; if its records have several readings, or none, this is its problem."""
        readable = [record for record in records if isinstance(record, dict)]
        readable += self._named_columns_of_later_records(file, readable)
        if not readable:
            reasons = Counter(record.reason for record in records if isinstance(record, RowError | Failure))
            file.problem = _no_row(file, reasons)
            return
        try:
            reading = decide(
                readable,
                self.flags,
                self.used,
                label_columns=self._label_columns,
                joined_name=self._joins.name,
            )
        except RecordError as error:
            file.problem = str(error)
        else:
            file.reading = reading.model_copy(update={"content": content, "rows_at": rows_at})

    def _count_rows(self, file: InputFile, records: Sequence[Record | Failure]) -> None:
        """Count how many of the first records are rows; if none is, this is the problem of the file."""
        reader, reasons = self._reader(file), Counter[str]()
        for number, record in enumerate(records, 1):
            if isinstance(record, Failure):
                reasons[record.reason] += 1
                continue
            columns = record if isinstance(record, dict) else ()
            problems = []
            for row in reader.rows(record, f"{file.place}:{number}"):
                problems.append(row.reason if isinstance(row, Failure) else self._lacking(row, columns))
            reasons.update(problem for problem in problems if problem is not None)
            if None in problems:
                file.rows += 1
                self._keep_examples(file, reader, record)
            if isinstance(record, dict):
                file.not_shown |= self._columns_not_shown(file, record)
        if not file.rows:
            file.problem = _no_row(file, reasons)

    def _keep_examples(self, file: InputFile, reader: RowReader, record: Record) -> None:
        """Keep the values of the fields that no earlier record has."""
        assert file.reading is not None
        if isinstance(record, dict) and len(file.examples) < len(file.reading.fields):
            for name, value in next(reader.values_of_fields(record)).items():
                file.examples.setdefault(name, value)

    def _lacking(self, row: Row, columns: Iterable[str]) -> str | None:
        """Return why a row lacks a reference or a system that each row needs; None if it does not."""
        missing = [name for name in _REQUIRED if name in self.used and getattr(row, name) is None]
        if not missing:
            return None
        return missing_fields_reason(missing, columns, self.used, self.flags.columns)

    def _columns_not_shown(self, file: InputFile, record: dict[str, object]) -> dict[str, None]:
        """Return the columns with values that no field reads."""
        assert file.reading is not None
        claimed = {*file.reading.claimed}
        return {
            name: None
            for name, value in record.items()
            if name not in claimed and value not in (None, "", [], {})
        }

    def _reader(self, file: InputFile) -> RowReader:
        assert file.reading is not None
        return RowReader(file.reading, self.used, self.flags.columns)

    def rows(self) -> Iterator[Row | Failure]:
        """Yield every row of the files, or a failure with the reason."""
        for record in self.records():
            yield from record.rows

    def records(self) -> Iterator[ReadRecord]:
        """Yield every record of the files with its rows."""
        for file in self.files:
            if file.reading is None:
                yield from self._unread_records(file)
                continue
            reader = self._reader(file)
            self.late.begin(file.reading, file.columns)
            for number, record in self._stream(file):
                where = f"{file.place}:{number}"
                joined = self._joined(file, number, record)
                if isinstance(joined, Failure):
                    yield ReadRecord(where, record, [joined])
                    continue
                if isinstance(joined, dict):
                    self.late.add(joined, where)
                yield ReadRecord(where, joined, reader.rows(joined, where))

    def _stream(self, file: InputFile) -> Iterator[tuple[int, Record]]:
        """Return the records of a file, with those that were read before from a pipe."""
        if file.held is not None:
            return file.held
        rows_at = self.flags.rows_at
        if file.reading is not None and file.reading.rows_at:
            rows_at = file.reading.rows_at
        return iter(RecordStream(file.name, self._max_row_bytes, rows_at))

    def _unread_records(self, file: InputFile) -> Iterator[ReadRecord]:
        """Yield the records of a file without a reading, each with a failure."""
        for number, record in self._stream(file):
            where = f"{file.place}:{number}"
            error = record
            if not isinstance(error, RowError):
                error = RowError(file.problem or "no reading", error, RowProblem.FORM)
            yield ReadRecord(where, record, [unreadable(where, error, Identity())])

    # What the first records show.

    @property
    def empty(self) -> list[str]:
        """The files without rows."""
        return [file.name for file in self.files if not file.records]

    @property
    def readings(self) -> dict[str, Reading]:
        """The reading of each file that has records."""
        return {file.name: file.reading for file in self.files if file.reading is not None}

    @property
    def columns(self) -> dict[str, list[str]]:
        """The columns that the files have for each field, in the order of the files."""
        found: dict[str, list[str]] = {}
        for reading in self.readings.values():
            for name, path in reading.columns().items():
                paths = found.setdefault(name, [])
                if path not in paths:
                    paths.append(path)
        return found

    @property
    def has_hidden_turns(self) -> bool:
        """Whether a file has conversations of which a rubric without one shows the last turns alone."""
        if "candidate" not in self.used:
            return False
        for reading in self.readings.values():
            if MESSAGES in reading.fields and not reading.turns_are_instruction:
                return True
        return False

    @property
    def how(self) -> str:
        """How the files are read, in one line, and how many of their first records are rows."""
        lines = []
        readings: list[Reading] = []
        for file in self.files:
            if file.reading is None or file.reading in readings:
                continue
            readings.append(file.reading)
            same = [other for other in self.files if other.reading == file.reading]
            rows, records = sum(other.rows for other in same), sum(other.records for other in same)
            parts = [str(file.reading)]
            if 0 < rows < records:
                parts.append(f"{rows} of the first {records} records")
            lines.append(", ".join(part for part in parts if part))
        return "; ".join(line for line in lines if line)

    @property
    def left_out(self) -> str:
        """What of the files the judge is not shown or cannot be read, in lines; empty if there is nothing."""
        lines = [
            f"{file.name}: is not UTF-8, and its rows with other bytes fail; if it is of Windows, convert it: "
            f"iconv -f CP1252 -t UTF-8 {file.name}"
            for file in self.files
            if not file.is_utf8
        ]
        unread = [] if "reference" in self._shown else self._columns_of("reference")
        others: dict[str, None] = {}
        for file in self.files:
            others |= file.not_shown
        not_shown = [name for name in others if name not in self._shown]
        names = dict.fromkeys(unread + not_shown)
        if names:
            kept = "not kept"
            if not_shown:
                kept = "kept as columns"
                if unread:
                    kept += f", except {', '.join(unread)}"
            lines.append(f"not shown to the judge: {known_columns(names)}; {kept}")
        return "\n".join(lines)

    def _columns_of(self, name: str) -> list[str]:
        found: dict[str, None] = {}
        for reading in self.readings.values():
            if name in reading.fields:
                found[reading.columns_of(name)] = None
        return list(found)


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record of a file with its rows.

    Attributes:
        where: its place, such as `answers.jsonl:17`.
        record: its columns, or the reason why it cannot be read.
        rows: its rows, or failures.
    """

    where: str
    record: Record
    rows: Iterable[Row | Failure]


def _has_path(records: Iterable[Mapping[str, object]], path: str) -> bool:
    """Return whether one of several records has a column or a path."""
    start = list_of(path) or path
    return any(look_up(record, start) is not ABSENT for record in records)


def _no_row(file: InputFile, reasons: Counter[str]) -> str:
    ((reason, times),) = reasons.most_common(1)
    return f"none of its first records is a row: {reason} ({times} of its first {file.records})"


class RecordStream(Iterable[tuple[int, Record]]):
    """The records of a file that `find_inputs` returned, each with its line or number.

    Args:
        name: the file.
        max_row_bytes: size limit of a record.
        rows_at: the path of the rows in a file that holds one object; None to find it.

    Attributes:
        found_at: the path of the rows in the file, once it is read; empty if they are not inside an object.

    Raises:
        UsageError: the file cannot be read, or its rows can be in several places.
    """

    def __init__(self, name: str, max_row_bytes: int = MAX_ROW_BYTES, rows_at: str | None = None) -> None:
        self._name, self._max_row_bytes, self._rows_at = name, max_row_bytes, rows_at
        self.found_at = ""

    def __iter__(self) -> Iterator[tuple[int, Record]]:
        for number, record in read_file(self._name, self._max_row_bytes):
            if isinstance(record, Document):
                self.found_at, rows = rows_of_document(record, self._name, self._rows_at)
                yield from enumerate(rows, 1)
            else:
                yield number, record


def read_rows(
    inputs: Iterable[str],
    columns: Columns | None = None,
    max_row_bytes: int = MAX_ROW_BYTES,
    used: Sequence[str] = USED_FIELDS,
) -> Iterator[Row | Failure]:
    """Yield every row of the inputs, or a failure with the reason.

    Args:
        inputs: the result of `find_inputs`; files that others are joined with hold no rows.
        columns: the column of each field whose column has a custom name.
        max_row_bytes: size limit of a row in bytes; a larger row is a failure.
        used: the fields that the rubric's template uses.

    Raises:
        UsageError: a file cannot be read at all.
    """
    return Inputs(list(inputs), columns, used, max_row_bytes=max_row_bytes).rows()
