"""Read rows from files with common column names, and from dicts and tables of a Python program.

Rows are streamed: memory does not grow with their number, and the size of a row is limited. A row that cannot
be read becomes a `Failure` that names its file and line, and reading continues. A file that cannot be opened or
lacks a column is reported before any row is judged.
"""

from __future__ import annotations

import glob
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from localjudge.errors import UsageError
from localjudge.records import Failure, Row
from localjudge.rows.columns import (
    USED_FIELDS,
    Columns,
    as_row,
    column_names,
    columns_taken,
    names_of,
    responses_of,
    unreadable,
)
from localjudge.rows.conversation import (
    CONVERSATION,
    CONVERSATIONS,
    MESSAGES,
    judges_conversation,
    with_conversation,
)
from localjudge.rows.criteria import NUMBERED_CRITERIA, by_criterion
from localjudge.rows.formats import JSON_LINES, Records, check_file, read_file, read_text
from localjudge.rows.pair_columns import compares_responses
from localjudge.rows.questions import Questions
from localjudge.rows.record import MAX_ROW_BYTES, RecordError
from localjudge.rows.table_records import table_records

EXAMPLES = "examples"
STDIN = "-"
FILENAME = "@filename"
"""Column with the name of a row's file, without folder and suffix."""


_RECORDS_CHECKED = 100
_COLUMNS_NAMED = 12


def find_inputs(names: Sequence[str]) -> list[str]:
    """Return the files that names and globs match, in order; `-` is stdin, `examples` the included rows.

    Raises:
        UsageError: there is no such file, its format is unknown, or the package that reads it is missing.
    """
    found: list[str] = []
    for name in names:
        if name == STDIN or (name == EXAMPLES and not Path(name).exists()):
            found.append(name)
            continue
        is_glob = glob.has_magic(name) and not Path(name).exists()
        matches = sorted(glob.glob(name, recursive=True)) if is_glob else [name]
        if not matches:
            raise UsageError(f"{name}: no file matches")
        for match in matches:
            path = Path(match)
            try:
                if path.is_file() or not path.exists():  # opening a pipe would take its writer's rows
                    path.open("rb").close()
            except OSError as error:
                raise UsageError(f"{match}: {error.strerror}") from None
            check_file(match)
            found.append(match)
    if found.count(STDIN) > 1:
        raise UsageError("-: stdin can be read only once")
    if STDIN in found and sys.stdin is None:
        raise UsageError("-: stdin is closed; pipe rows into it or name a file")
    return found


@dataclass(frozen=True, slots=True)
class CheckedInputs:
    """What the first records of the inputs show.

    Attributes:
        empty: the files without rows, if another file may have some.
        columns: the columns that the first record of each file has for each field, in the order of the files.
    """

    empty: list[str]
    columns: dict[str, list[str]]


def check_inputs(files: Iterable[str], columns: Columns, used: Sequence[str]) -> CheckedInputs:
    """Read the beginning of each file, so that a wrong column is found before a model is loaded.

    Rows of one file may differ: a field is missing if none of the first hundred records has a column for it,
    and questions are missing if none of these records can be joined with one. Standard input and pipes can be
    read only once, so they are not checked.

    Args:
        files: the result of `find_inputs`.
        columns: the column of each field whose column has a custom name.
        used: the fields that the rubric's template uses.

    Raises:
        UsageError: a file lacks columns (the message names all of them) or the questions that its answers name,
            or no file has a row.
    """
    files = list(files)
    fields = dict.fromkeys([*column_names(used), MESSAGES, *used])
    fields.pop(NUMBERED_CRITERIA, None)  # filled from the same column as the single criterion
    wanted = {
        field: (*names_of(field, columns, used), *_names_in_messages(field, columns, used))
        for field in fields
        if field in (*responses_of(used), *used) or field in columns
    }
    empty: list[str] = []
    found: dict[str, dict[str, None]] = {}
    questions = _questions(files, columns, used)
    files = [name for name in files if name not in questions.files]
    if questions.files and not files:
        raise UsageError(f"{questions.files[0]}: holds questions; give the files of the answers, too")
    for name in filter(can_be_read_twice, files):
        known: dict[str, None] = {}
        missing, records, problem = list(wanted), 0, ""
        for number, given in islice(read_records(name), _RECORDS_CHECKED):
            records += 1
            try:
                record = questions.joined(given)
            except RecordError as error:
                problem = problem or f"{name}:{number}: {error}"
                continue
            if records == 1 and isinstance(record, Mapping):
                for field, column in _columns_of(record, columns, used):
                    found.setdefault(field, {})[column] = None
            known |= dict.fromkeys(record if isinstance(record, Mapping) else ())
            missing = [field for field, names in wanted.items() if not _has(known, names)]
            if not missing:
                break
        if not records:
            empty.append(name)
        elif problem and not known:
            raise UsageError(problem)
        elif known and missing:
            raise UsageError(_lacks(name, missing, list(known), columns, used))
    if files and len(empty) == len(files):
        raise UsageError(f"{', '.join(empty)}: holds no rows; give a file with at least one")
    return CheckedInputs(empty, {field: list(taken) for field, taken in found.items()})


def _columns_of(record: Mapping[str, Any], columns: Columns, used: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the fields that a record has, each with its column; none if it is not a row."""
    with suppress(RecordError):
        told = with_conversation(record, lambda field: names_of(field, columns, used), used)
        taken = columns_taken(told, columns, used)
        yield from ((CONVERSATION, column) for column in record if column not in told)
        yield from taken.items()


def _names_in_messages(field: str, columns: Columns, used: Sequence[str]) -> tuple[str, ...]:
    """Return further columns that can have the text of a field: those with a conversation."""
    if compares_responses(used) or field not in ("candidate", "instruction", *CONVERSATIONS):
        return ()
    names = (CONVERSATION, "candidate") if judges_conversation(used) and field != "instruction" else ()
    return tuple(name for each in (MESSAGES, *names) for name in names_of(each, columns, used))


def _has(known: Iterable[str], names: Iterable[str]) -> bool:
    """Return whether one of these columns is there, or the object that holds it."""
    there = {FILENAME, *known}
    return any(name in there or name.partition(".")[0] in there for name in names)


def _lacks(
    name: str, missing: Sequence[str], known: Sequence[str], columns: Columns, used: Sequence[str]
) -> str:
    lacking = [
        f"no column {columns[field]!r} for the {field}"
        if field in columns
        else f"no {field}"
        if field in column_names(used)
        else f"no {field}, which the prompt uses as {{${field}}}"
        for field in missing
    ]
    more = f" and {len(known) - _COLUMNS_NAMED} more" if len(known) > _COLUMNS_NAMED else ""
    there = ", ".join(map(str, known[:_COLUMNS_NAMED])) + more
    flags = " ".join(f"`columns` {field}=COLUMN" for field in missing)
    without = ", or judge without one: `rubric` no-reference" if list(missing) == ["reference"] else ""
    return f"{name}: {', '.join(lacking)}; its columns are {there}; name them with {flags}{without}"


def read_rows(
    inputs: Iterable[str],
    columns: Columns | None = None,
    max_row_bytes: int = MAX_ROW_BYTES,
    used: Sequence[str] = USED_FIELDS,
) -> Iterator[Row | Failure]:
    """Yield every row of the inputs, or a failure with the reason.

    Args:
        inputs: the result of `find_inputs`; files of questions are joined with the answers in the others.
        columns: the column of each field whose column has a custom name.
        max_row_bytes: size limit of a row in bytes; a larger row is a failure.
        used: the fields that the rubric's template uses.
    """
    inputs, columns = list(inputs), columns or {}
    questions = _questions(inputs, columns, used)
    for name in (each for each in inputs if each not in questions.files):
        # A file name that is not UTF-8 could not be written to the run.
        place = "stdin" if name == STDIN else name.encode("utf-8", "replace").decode()
        known = {FILENAME: _stem(place)} if FILENAME in columns.values() else {}
        for number, record in read_records(name, max_row_bytes):
            told = {**record, **known} if isinstance(record, Mapping) else record
            try:
                yield as_row(questions.joined(told), f"{place}:{number}", columns, used)
            except RecordError as error:
                assert isinstance(told, Mapping)  # only an answer has a question
                yield unreadable(f"{place}:{number}", str(error), told, *questions.identity(told))


def _questions(inputs: Iterable[str], columns: Columns, used: Sequence[str]) -> Questions:
    """Return the questions in those inputs that are files of questions."""
    questions = Questions(columns, used)
    for name in filter(can_be_read_twice, inputs):
        questions.read(name, read_records(name))
    return questions


def given_rows(rows: object, used: Sequence[str] = USED_FIELDS) -> Iterator[Row | Failure]:
    """Yield rows from Python objects: dicts, `Row`s, a pandas, Polars or Arrow table, or a `datasets.Dataset`.

    A row with criteria becomes one for each.

    Args:
        rows: the rows.
        used: the fields that the rubric's template uses.

    Raises:
        UsageError: the argument is a single row, or not a collection of rows.
    """
    records: Iterable[Any] | None = table_records(rows)
    if records is None and isinstance(rows, Mapping | Row):
        raise UsageError("rows: is a single row; write score([row])")
    if isinstance(rows, str | bytes | Path):
        raise UsageError(
            f"rows: a {type(rows).__name__}; to read a file, write score(read_rows([{str(rows)!r}]))"
        )
    if records is None:
        if not isinstance(rows, Iterable):
            raise UsageError(f"rows: a {type(rows).__name__}; give dicts, Rows or a table")
        records = rows
    found = (_given_row(record, f"row {number}", used) for number, record in enumerate(records, 1))
    return by_criterion(found, used)


def _given_row(record: Any, source: str, used: Sequence[str]) -> Row | Failure:
    if isinstance(record, Mapping | Row | Failure):
        return as_row(record, source, used=used)
    return unreadable(source, f"a {type(record).__name__}; a row is a dict or a Row")


def _stem(place: str) -> str:
    return Path(place).name if Path(place).is_dir() else Path(place.removesuffix(".gz")).stem


def read_records(name: str, max_row_bytes: int = MAX_ROW_BYTES) -> Records:
    """Yield the records of a file that `find_inputs` returned, each with its line or number."""
    if name == STDIN:
        return read_text(sys.stdin.buffer, name, JSON_LINES, max_row_bytes)
    if name == EXAMPLES:
        examples = files("localjudge") / "rows" / "examples.jsonl"
        return read_text(cast(BinaryIO, examples.open("rb")), name, JSON_LINES, max_row_bytes)
    return read_file(name, max_row_bytes)


def count_lines_of(files: Iterable[str]) -> int | None:
    """Return the number of lines of JSONL files; None if one is of another format, or can be read only once."""
    count = 0
    for name in files:
        if not name.endswith(JSON_LINES) or not Path(name).is_file():
            return None
        last = b"\n"
        with Path(name).open("rb") as stream:
            while block := stream.read(1 << 20):
                count, last = count + block.count(b"\n"), block
        count += not last.endswith(b"\n")
    return count


def can_be_read_twice(name: str) -> bool:
    """Return whether an input exists and is neither standard input nor a pipe."""
    return name == EXAMPLES or (name != STDIN and (Path(name).is_file() or Path(name).is_dir()))
