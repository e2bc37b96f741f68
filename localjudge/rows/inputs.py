"""Read rows from files with common column names, and from dicts and tables of a Python program.

Rows are streamed: memory does not grow with their number, and the size of a row is limited. A row that cannot
be read becomes a `Failure` that names its file and line, and reading continues. A file that cannot be opened or
lacks a column is reported before any row is judged.
"""

from __future__ import annotations

import glob
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from localjudge.errors import RowError, UsageError
from localjudge.records import Failure, Row
from localjudge.rows.columns import CONVERSATION, MESSAGES, ROWS_AT, USED_FIELDS, Columns
from localjudge.rows.formats import STDIN, bare_path, can_be_read_twice, check_file, has_no_suffix, read_file
from localjudge.rows.joins import Joins
from localjudge.rows.json_records import Document, unwrapped
from localjudge.rows.paths import ABSENT, value_at
from localjudge.rows.record import MAX_ROW_BYTES, Record, RecordError
from localjudge.rows.record_reader import Fields, RecordReader
from localjudge.rows.row import identity, known_columns, lacks, rows_of, unreadable
from localjudge.rows.table_records import table_records

FILENAME = "@filename"
"""Column with the name of a row's file, without folder and suffix."""
_RECORDS_CHECKED = 100
_REQUIRED = {"reference", "system"}
"""Fields that a row may lack, and that each row needs if the rubric shows them or pairs are formed by them."""
_NO_VALUE: tuple[Any, ...] = (None, "", [], {})


def find_inputs(names: Sequence[str]) -> list[str]:
    """Return the files that names and globs match, in order; `-` is stdin, `examples` the included rows.

    Raises:
        UsageError: there is no such file, its format is unknown, or the package that reads it is missing.
    """
    found: list[str] = []
    for name in names:
        matches = glob.glob(glob.escape(name)) or sorted(glob.glob(name, recursive=True)) or [name]
        for path in map(Path, () if has_no_suffix(name) else matches):
            try:
                if path.is_file() or not path.exists():  # opening a pipe would take its writer's rows
                    path.open("rb").close()
            except OSError as error:
                raise UsageError(f"{path}: {error.strerror}") from None
            check_file(str(path))
        found += matches
    if found.count(STDIN) > 1:
        raise UsageError("-: stdin can be read only once")
    if STDIN in found and sys.stdin is None:
        raise UsageError("-: stdin is closed; pipe rows into it or name a file")
    return found


@dataclass(slots=True)
class CheckedInputs:
    """What the first records of the inputs show.

    Attributes:
        empty: the files without rows, if another file may have some.
        columns: the columns that the rows have for each field, in the order of the files.
        read_as: the titles of the shapes of the records, in the order of the files, what JSON lines are
            instead, and where the rows are in a document.
        not_utf8: the files that have bytes of another encoding.
        unread: the columns of the reference, if the judge is not shown it.
        not_shown: the other columns with values that the judge is not shown.
    """

    empty: list[str] = field(default_factory=list)
    columns: dict[str, list[str]] = field(default_factory=dict)
    read_as: dict[str, None] = field(default_factory=dict)
    not_utf8: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    not_shown: dict[str, None] = field(default_factory=dict)

    @property
    def how(self) -> str:
        """How the inputs are read: the shapes, and the fields that are in columns of other names."""
        taken = [f"{name}={'|'.join(found)}" for name, found in self.columns.items() if [name] != found]
        read = f"read as: {', '.join(self.read_as)}" * bool(self.read_as)
        return ", ".join(filter(None, [read, " ".join(taken)]))

    @property
    def left_out(self) -> str:
        """What of the inputs the judge is not shown or cannot be read, in lines; empty if there is nothing."""
        lines = [
            f"{name}: is not UTF-8, and its rows with other bytes fail; if it is of Windows, convert it: "
            f"iconv -f CP1252 -t UTF-8 {name}"
            for name in self.not_utf8
        ]
        if names := dict.fromkeys([*self.unread, *self.not_shown]):
            kept = "kept as columns" + f", except {', '.join(self.unread)}" * bool(self.unread)
            kept = kept if self.not_shown else "not kept"
            lines.append(f"not shown to the judge: {known_columns(names)}; {kept}")
        return "\n".join(lines)


def check_inputs(
    files: Iterable[str], columns: Columns, used: Sequence[str], shown: Sequence[str] | None = None
) -> CheckedInputs:
    """Read the beginning of each file as rows, so that a wrong column is found before a model is loaded.

    Rows of one file may differ: it is refused if none of its first hundred records is a row. Standard input and
    pipes can be read only once, so they are not checked.

    Args:
        files: the result of `find_inputs`.
        columns: the column of each field whose column has a custom name.
        used: the fields that each row needs.
        shown: the fields that the judge is shown, if they are others.

    Raises:
        UsageError: no row is among the first records of a file (the message names all columns that it lacks,
            or the most frequent reason), or no file has a row.
    """
    files = list(files)
    joins, checked = _joins(files, columns), CheckedInputs()
    files = [name for name in files if name not in joins.files]
    if joins.files and not files:
        raise UsageError(
            f"{joins.files[0]}: holds no responses, but what other files are joined with; give these, too"
        )
    for name in filter(can_be_read_twice, files):
        _check_file(name, joins, RecordReader(columns, used), checked)
    if files and len(checked.empty) == len(files):
        raise UsageError(f"{', '.join(checked.empty)}: holds no rows; give a file with at least one")
    seen = {*(shown or used)}
    checked.unread = [] if "reference" in seen else checked.columns.get("reference", [])
    checked.not_shown = {column: None for column in checked.not_shown if column not in seen}
    return checked


def _check_file(name: str, joins: Joins, reader: RecordReader, checked: CheckedInputs) -> None:
    """Note what the first records of a file show.

    Raises:
        UsageError: the file lacks a column that is given, or none of its first records is a row.
    """
    instead, is_utf8 = check_file(name)
    checked.not_utf8 += [name] * (not is_utf8)
    reasons, last, count, rows = Counter[str](), dict[str, Any](), 0, 0
    absent, taken, titles = {*reader.given}, dict[str, str](), dict[str, None]()

    def note(fields: Fields) -> None:  # and keep no record: a hundred may be large
        titles[fields.shape.title] = None
        checked.not_shown |= {key: None for key, value in fields.others.items() if value not in _NO_VALUE}
        absent.difference_update(
            [own for own in absent if value_at(fields.record, reader.given[own]) is not ABSENT]
        )
        taken.update({} if taken else fields.taken)

    for where, record in islice(joined_records([name], reader, joins=joins), _RECORDS_CHECKED):
        count += 1
        last = record if isinstance(record, dict) else last
        for row in rows_of(record, where, reader, note):
            if isinstance(row, Failure):
                reasons[row.reason] += 1
            elif missing := [each for each in _REQUIRED & {*reader.used} if getattr(row, each) is None]:
                reasons[lacks(missing, last, reader)] += 1
            else:
                rows += 1
    at = f" at {reader.found_at}" if reader.found_at else ""
    checked.read_as |= dict.fromkeys(
        filter(None, (instead, *(f"{each or (at and 'a list')}{at}" for each in titles)))
    )
    if titles and absent:
        others = [] if rows or reader.first(last, "reference") is not None else ["reference"]
        raise UsageError(f"{name}: {lacks([*absent, *others], last, reader)}")
    if not count:
        checked.empty.append(name)
    elif not rows:
        ((reason, times),) = reasons.most_common(1)
        raise UsageError(f"{name}: none of its first records is a row: {reason} ({times} of its first {count})")
    chat = CONVERSATION if CONVERSATION in taken else MESSAGES
    for own, column in taken.items():
        if own == chat or column != taken.get(chat):  # what is read from it is not in a column of its own
            found = checked.columns.setdefault(own, [])
            found += [column] * (column not in found)


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
    """
    reader = RecordReader(columns or {}, used)
    for where, record in joined_records(inputs, reader, max_row_bytes):
        yield from rows_of(record, where, reader)


def joined_records(
    inputs: Iterable[str],
    reader: RecordReader,
    max_row_bytes: int = MAX_ROW_BYTES,
    joins: Joins | None = None,
) -> Iterator[tuple[str, Record | Failure]]:
    """Yield the records of the inputs, each with its place and joined with those of other files.

    Args:
        inputs: as for `read_rows`.
        reader: the reader of the records.
        max_row_bytes: as for `read_rows`.
        joins: the records of the other files; None to read them.
    """
    inputs = list(inputs)
    joins = joins or _joins(inputs, reader.columns)
    systems = names_of_files(inputs) if FILENAME in reader.given.values() else {}
    for name in (each for each in inputs if each not in joins.files):
        # A file name that is not UTF-8 could not be written to the run.
        place = "stdin" if name == STDIN else name.encode("utf-8", "replace").decode()
        for number, record in read_records(name, max_row_bytes, reader):
            where = f"{place}:{number}"
            if isinstance(record, RowError):
                yield where, record
                continue
            if systems:
                record[FILENAME] = systems[name]
            try:
                joins.join(record)
                yield where, record
            except RecordError as error:
                yield where, unreadable(where, str(error), record, *identity(record, reader))


def _joins(inputs: Iterable[str], columns: Columns) -> Joins:
    """Return the records that those of the inputs are joined with."""
    joins = Joins(columns)
    for name in find_inputs([joins.given_file]) if joins.given_file is not None else ():
        joins.read(name, read_records(name), is_given=True)
    for name in filter(can_be_read_twice, inputs):
        joins.read(name, read_records(name, reader=RecordReader(columns, ())))
    return joins


def given_rows(rows: object, used: Sequence[str] = USED_FIELDS) -> Iterator[Row | Failure]:
    """Yield rows from Python objects: dicts, `Row`s, a pandas, Polars or Arrow table, or a `datasets.Dataset`.

    Args:
        rows: the rows.
        used: the fields that the rubric's template uses.

    Raises:
        UsageError: the argument is a single row, or not a collection of rows.
    """
    records: Iterable[Any] | None = table_records(rows)
    if records is None and isinstance(rows, Mapping | Row):
        raise UsageError("rows: is a single row, or several splits; write score([row]) or score(rows['test'])")
    if records is None and isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        records = rows
    if records is None:
        kind = type(rows).__name__
        raise UsageError(f"rows: a {kind}; give dicts, Rows, a table, or the rows of a file: read_rows([FILE])")
    reader = RecordReader({}, used)
    found = (rows_of(record, f"row {number}", reader) for number, record in enumerate(records, 1))
    return chain.from_iterable(found)


def names_of_files(inputs: Iterable[str]) -> dict[str, str]:
    """Return a name for each input: its file's, or as many of the last parts of its path as tell all apart."""
    parts = {name: bare_path(Path(name.encode("utf-8", "replace").decode())).parts for name in inputs}
    for length in range(1, max(map(len, parts.values()), default=1) + 1):
        found = {name: "/".join(each[-length:]) for name, each in parts.items()}
        if len({*found.values()}) == len(parts):
            return found
    return {name: name for name in parts}


def read_records(
    name: str, max_row_bytes: int = MAX_ROW_BYTES, reader: RecordReader | None = None
) -> Iterator[tuple[int, Record]]:
    """Yield the records of a file that `find_inputs` returned, each with its line or number.

    Args:
        name: the file.
        max_row_bytes: size limit of a record.
        reader: the reader of the records. It says where the rows are in a file that holds one object, and is
            told where they were found.

    Raises:
        UsageError: the file cannot be read, or its rows can be in several places.
    """
    for number, record in read_file(name, max_row_bytes):
        if isinstance(record, Document):
            path, rows = unwrapped(record, name, reader.columns.get(ROWS_AT) if reader is not None else None)
            if reader is not None:
                reader.found_at = path
            yield from enumerate(rows, 1)
        else:
            yield number, record
