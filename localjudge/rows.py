"""Reading rows: from files, whatever their columns are called, and from a program's own dicts and tables.

Rows stream: memory does not grow with their number, and the size of a row is limited. A row that cannot be
read ends as a `Failure` that names its file and line, and the next rows are read. A file that cannot be opened,
or that lacks a column, stops the reading before it starts.
"""

from __future__ import annotations

import glob
import gzip
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from localjudge.errors import UsageError
from localjudge.formats import MAX_ROW_BYTES, Record, read_csv, read_jsonl, read_parquet, table_records
from localjudge.records import Failure, Row
from localjudge.requirements import require

EXAMPLES = "examples"
STDIN = "-"
FILENAME = "@filename"
"""The column that holds the name of a row's file, without its folder and its kind."""

COLUMN_NAMES: Mapping[str, tuple[str, ...]] = {
    "instruction": ("instruction", "prompt", "question", "query", "user_query", "user_input"),
    "reference": (
        "reference", "reference_answer", "reference_output", "gold", "gold_answer", "ground_truth",
        "expected_output", "target",
    ),
    "candidate": (
        "candidate", "output", "response", "completion", "generation", "prediction", "model_output",
        "model_answer", "answer",
    ),
    "id": ("id", "row_id", "uid", "example_id", "question_id", "idx"),
    "system": ("system", "generator", "model", "model_name", "model_id"),
}  # fmt: skip
"""The names that each field goes by, the first of them being its own."""

Columns = Mapping[str, str]


def _names_of(field: str, columns: Columns) -> tuple[str, ...]:
    return (columns[field],) if field in columns else COLUMN_NAMES[field]


_RECORDS_CHECKED = 100
_COLUMNS_NAMED = 12
_DEEPEST = 100
"""The most levels of lists and objects in a record: Python's own parser and writer go not much deeper."""


def parse_columns(assignments: Iterable[str]) -> dict[str, str]:
    """`["candidate=my_col"]` as `{"candidate": "my_col"}`.

    Raises:
        UsageError: an assignment to no known field, or none at all.
    """
    columns: dict[str, str] = {}
    for assignment in assignments:
        field, equals, name = assignment.partition("=")
        if not equals or not name or field not in COLUMN_NAMES:
            raise UsageError(
                f"--column {assignment}: write FIELD=COLUMN, where FIELD is one of {', '.join(COLUMN_NAMES)}"
            )
        columns[field] = name
    return columns


def find_inputs(names: Sequence[str]) -> list[str]:
    """The files that the names and globs mean, in their order; `-` is stdin, `examples` ships.

    Raises:
        UsageError: there is no such file, or nothing to read it with.
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
            if path.is_dir():
                raise UsageError(f"{match}: a folder; name its files, for instance {match.rstrip('/')}/*.jsonl")
            try:
                path.open("rb").close()
            except OSError as error:
                raise UsageError(f"{match}: {error.strerror}") from None
            _kind(match)
            found.append(match)
    if found.count(STDIN) > 1:
        raise UsageError("-: stdin can be read only once")
    if STDIN in found and sys.stdin is None:
        raise UsageError("-: stdin is closed; pipe rows into it or name a file")
    return found


def check_inputs(files: Iterable[str], columns: Columns, *, needs_reference: bool) -> list[str]:
    """Read the beginning of each file, so that a wrong column is found before a model is loaded.

    Rows of one file may differ: a field is missing where none of the first hundred records has a column for it.
    Standard input and pipes can be read only once, and are left alone.

    Args:
        files: the result of `find_inputs`.
        columns: the column of a field, where it goes by a name of its own.
        needs_reference: whether the rubric judges against a reference.

    Returns:
        The files that hold no rows, where another file may.

    Raises:
        UsageError: a file lacks columns, all of which the message names; or no file holds a row.
    """
    files = list(files)
    required = ["instruction", "candidate", *(["reference"] if needs_reference else [])]
    wanted = {
        field: _names_of(field, columns) for field in COLUMN_NAMES if field in required or field in columns
    }
    empty = []
    for name in files:
        if name == STDIN or (name != EXAMPLES and not Path(name).is_file()):
            continue
        known: dict[str, None] = {}
        missing, records = list(wanted), 0
        for _, record in islice(read_records(name), _RECORDS_CHECKED):
            records += 1
            known |= dict.fromkeys(record if isinstance(record, Mapping) else ())
            missing = [field for field, names in wanted.items() if not {FILENAME, *known} & set(names)]
            if not missing:
                break
        if not records:
            empty.append(name)
        elif known and missing:
            raise UsageError(_lacks(name, missing, list(known), columns))
    if files and len(empty) == len(files):
        raise UsageError(f"{', '.join(empty)}: holds no rows")
    return empty


def _lacks(name: str, missing: Sequence[str], known: Sequence[str], columns: Columns) -> str:
    lacking = [
        f"no column {columns[field]!r} for the {field}" if field in columns else f"no {field}"
        for field in missing
    ]
    more = f" and {len(known) - _COLUMNS_NAMED} more" if len(known) > _COLUMNS_NAMED else ""
    there = ", ".join(map(str, known[:_COLUMNS_NAMED])) + more
    flags = " ".join(f"--column {field}=COLUMN" for field in missing)
    return f"{name}: {', '.join(lacking)}; its columns are {there}; name them with {flags}"


def read_rows(
    inputs: Iterable[str], columns: Columns | None = None, max_row_bytes: int = MAX_ROW_BYTES
) -> Iterator[Row | Failure]:
    """Every row of the inputs, or why it is none.

    Args:
        inputs: what `find_inputs` gave.
        columns: the column of a field, where it goes by a name of its own.
        max_row_bytes: the largest row that is read; a larger one is a failure.
    """
    for name in inputs:
        # A file's name may be no UTF-8, and then could not be written down.
        place = "stdin" if name == STDIN else name.encode("utf-8", "replace").decode()
        known = {FILENAME: _stem(place)} if columns and FILENAME in columns.values() else {}
        for number, record in read_records(name, max_row_bytes):
            told = {**record, **known} if isinstance(record, Mapping) else record
            yield as_row(told, f"{place}:{number}", columns or {})


def given_rows(rows: object) -> Iterator[Row | Failure]:
    """Rows as a program has them: dicts, `Row`s, or a pandas, Polars or Arrow table.

    Raises:
        UsageError: it is a single row, or nothing that holds rows.
    """
    if isinstance(rows, Mapping | Row):
        raise UsageError("rows: a single row; write score([row])")
    if isinstance(rows, str | bytes | Path):
        raise UsageError(
            f"rows: a {type(rows).__name__}; to read a file, write score(read_rows([{str(rows)!r}]))"
        )
    records: Iterable[Any] | None = table_records(rows)
    if records is None:
        if not isinstance(rows, Iterable):
            raise UsageError(f"rows: a {type(rows).__name__}; give dicts, Rows or a table")
        records = rows
    return (_given_row(record, f"row {number}") for number, record in enumerate(records, 1))


def _given_row(record: Any, source: str) -> Row | Failure:
    if isinstance(record, Mapping | Row | Failure):
        return as_row(record, source)
    return unreadable(source, f"a {type(record).__name__}; a row is a dict or a Row")


def _stem(place: str) -> str:
    return Path(place.removesuffix(".gz")).stem


def read_records(name: str, max_row_bytes: int = MAX_ROW_BYTES) -> Iterator[tuple[int, Record]]:
    """What stands in one of the files that `find_inputs` gave, each with its line (in Parquet, its number)."""
    kind = _kind(name)
    if kind == "parquet":
        yield from read_parquet(name, max_row_bytes)
        return
    with _open(name) as stream:
        if kind == "jsonl":
            yield from read_jsonl(stream, max_row_bytes)
        else:
            yield from read_csv(stream, "\t" if kind == "tsv" else ",", max_row_bytes)


def _kind(name: str) -> str:
    plain = name.removesuffix(".gz")
    if name in (STDIN, EXAMPLES) or plain.endswith((".jsonl", ".ndjson")):
        return "jsonl"
    if plain.endswith((".csv", ".tsv")):
        return plain[-3:]
    if name.endswith(".parquet"):
        require(name, "parquet")
        return "parquet"
    raise UsageError(f"{name}: of no known kind; rows come as .jsonl, .jsonl.gz, .csv, .tsv or .parquet")


def _open(name: str) -> BinaryIO:
    if name == STDIN:
        return sys.stdin.buffer
    if name == EXAMPLES:
        return cast(BinaryIO, (files("localjudge") / "examples.jsonl").open("rb"))
    return cast(BinaryIO, gzip.open(name) if name.endswith(".gz") else Path(name).open("rb"))


def as_row(record: Record | Row | Failure, source: str, columns: Columns | None = None) -> Row | Failure:
    """A record as a row, or why it is none.

    Args:
        record: its columns by their names; or what is wrong at this place; or a row, which is checked.
        source: where it stands.
        columns: the column of a field, where it goes by a name of its own.
    """
    if isinstance(record, Failure):
        return record
    if isinstance(record, str):
        return unreadable(source, record)
    if isinstance(record, Row):
        source = record.source or source
        record = {**record.columns, **{name: getattr(record, name) for name in COLUMN_NAMES}}
    if _is_deeper(record, _DEEPEST):
        return unreadable(source, f"its values are nested more than {_DEEPEST} deep")
    columns = columns or {}
    taken: dict[str, Any] = {}
    for field in COLUMN_NAMES:
        candidates = [name for name in _names_of(field, columns) if name in record or field in columns]
        if field in candidates:
            candidates = [field]
        if len(candidates) > 1 and field in ("instruction", "reference", "candidate"):
            return unreadable(
                source,
                f"{' and '.join(map(repr, candidates))} may each be the {field}; "
                f"say which with --column {field}={candidates[0]}",
                record,
            )
        if candidates:
            taken[field] = candidates[0]
    texts: dict[str, Any] = {field: record.get(column) for field, column in taken.items()}
    # NaN is how a table says that there is no value.
    texts = {field: None if isinstance(text, float) and text != text else text for field, text in texts.items()}
    for field in ("id", "system"):
        if isinstance(texts.get(field), int | float):
            texts[field] = str(texts[field])
    problem = _problem(texts, taken, record)
    identity = texts.get("id") or None
    identity = identity if isinstance(identity, str) else None
    if problem:
        return unreadable(source, problem, record, identity, texts.get("system"))
    try:
        rest = _writable({column: value for column, value in record.items() if column not in taken.values()})
    except (TypeError, ValueError, RecursionError) as error:
        problem = f"its columns cannot be written as JSON: {error}"
        return unreadable(source, problem, None, identity, texts.get("system"))
    return Row(
        instruction=texts["instruction"],
        candidate=texts["candidate"],
        reference=texts.get("reference"),
        id=identity or source,
        system=texts.get("system"),
        source=source,
        columns=rest,
    )


def _is_deeper(record: Any, most: int) -> bool:
    layer = [record]
    for _ in range(most + 1):
        if not layer:
            return False
        values = (each.values() if isinstance(each, Mapping) else each for each in layer)
        layer = [inner for each in values for inner in each if isinstance(inner, Mapping | list | tuple)]
    return bool(layer)


def _writable(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns as JSON in UTF-8 can hold them: dates as text, no NaN, no lone surrogates."""
    text = json.dumps(columns, ensure_ascii=False, default=str)
    text = text.encode("utf-8", "replace").decode()
    return cast(dict[str, Any], json.loads(text, parse_constant=lambda _: None))


def _problem(texts: Mapping[str, Any], taken: Mapping[str, str], record: Mapping[str, Any]) -> str | None:
    """Why these texts make no row."""
    for field in ("instruction", "candidate"):
        if field not in texts or taken[field] not in record:
            known = ", ".join(map(str, list(record)[:12]))
            return f"no {field}; its columns are {known}; name one with --column {field}=COLUMN"
    for field, text in texts.items():
        optional = field not in ("instruction", "candidate")
        if text is None and optional:
            continue
        if not isinstance(text, str):
            what = "null" if text is None else f"of type {type(text).__name__}"
            return f"{taken[field]!r}, the {field}, is {what}; it must be a string"
        if bad := _lone_surrogate(text):
            return f"{taken[field]!r}, the {field}, has {bad}"
    return None


def _lone_surrogate(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        # CSV is decoded so that a byte that is not UTF-8 becomes U+DC80 to U+DCFF.
        if 0xDC80 <= code <= 0xDCFF:
            return f"a byte that is not UTF-8 (0x{code - 0xDC00:02X}) at character {error.start + 1}"
        return f"a lone surrogate (U+{code:04X}) at character {error.start + 1}"
    return None


def unreadable(
    source: str, problem: str, record: Any = None, identity: str | None = None, system: Any = None
) -> Failure:
    """The failure of a row that makes no sense where it stands; its key follows from its place and content."""
    try:
        content = json.dumps([source, problem, record], sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):  # a record of Python's own that JSON cannot hold
        content = json.dumps([source, problem])
    key = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    if identity is None or _lone_surrogate(identity):
        identity = source
    if not isinstance(system, str) or _lone_surrogate(system):
        system = None
    error = f"{source}: {problem}".encode("utf-8", "replace").decode()
    return Failure(id=identity, system=system, key=key, source=source, error=error)
