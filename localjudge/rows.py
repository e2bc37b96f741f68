"""Reading rows: JSONL (also gzipped, also from stdin), CSV and Parquet, whatever the columns are called.

Rows stream: memory does not grow with their number. A row that cannot be read ends as a `Failure` that names
its file and line, and the rest is read on. A file that cannot be opened at all stops the reading before it
starts.
"""

from __future__ import annotations

import csv
import glob
import gzip
import hashlib
import io
import json
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, BinaryIO, cast

from localjudge.errors import UsageError
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

# What a file raises that breaks off or is damaged.
_BROKEN_OFF = (EOFError, OSError, zlib.error)
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
            _reader(match)
            found.append(match)
    if found.count(STDIN) > 1:
        raise UsageError("-: stdin can be read only once")
    return found


def read_rows(inputs: Iterable[str], columns: Columns | None = None) -> Iterator[Row | Failure]:
    """Every row of the inputs, or why it is none.

    Args:
        inputs: what `find_inputs` gave.
        columns: the column of a field, where it goes by a name of its own.
    """
    for name in inputs:
        # A file's name may be no UTF-8, and then could not be written down.
        place = "stdin" if name == STDIN else name.encode("utf-8", "replace").decode()
        known = {FILENAME: _stem(place)} if columns and FILENAME in columns.values() else {}
        for number, record in read_records(name):
            told = {**record, **known} if isinstance(record, Mapping) else record
            yield as_row(told, f"{place}:{number}", columns or {})


def _stem(place: str) -> str:
    return Path(place.removesuffix(".gz")).stem


Record = Mapping[str, Any] | str
"""What stands at a place: its columns, or what is wrong there."""


def read_records(name: str) -> Iterator[tuple[int, Record]]:
    """What stands in one of the files that `find_inputs` gave, each with its line (in Parquet, its number)."""
    yield from _reader(name)(name)


def _reader(name: str) -> Any:
    plain = name.removesuffix(".gz")
    if name in (STDIN, EXAMPLES) or plain.endswith((".jsonl", ".ndjson")):
        return _read_jsonl
    if plain.endswith((".csv", ".tsv")):
        return _read_csv
    if name.endswith(".parquet"):
        require(name, "parquet")
        return _read_parquet
    raise UsageError(f"{name}: of no known kind; rows come as .jsonl, .jsonl.gz, .csv, .tsv or .parquet")


def _open(name: str) -> BinaryIO:
    if name == STDIN:
        return sys.stdin.buffer
    if name == EXAMPLES:
        return cast(BinaryIO, (files("localjudge") / "examples.jsonl").open("rb"))
    return cast(BinaryIO, gzip.open(name) if name.endswith(".gz") else Path(name).open("rb"))


def _read_jsonl(name: str) -> Iterator[tuple[int, Record]]:
    number = 0
    with _open(name) as stream:
        try:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield number, _parse_json(line)
        except _BROKEN_OFF as error:
            yield number + 1, f"the file cannot be read on from here: {error}"


def _parse_json(line: bytes) -> Record:
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start + 1} of the line"
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at column {error.colno}"
    except (ValueError, RecursionError) as error:
        return f"not JSON that can be read: {error}"
    if not isinstance(record, dict):
        return "not a JSON object with named fields"
    if _is_deeper(record, _DEEPEST):
        return f"its values are nested more than {_DEEPEST} deep"
    return record


def _is_deeper(record: Any, most: int) -> bool:
    layer = [record]
    for _ in range(most + 1):
        if not layer:
            return False
        values = (each.values() if isinstance(each, dict) else each for each in layer)
        layer = [inner for each in values for inner in each if isinstance(inner, dict | list)]
    return bool(layer)


def _read_csv(name: str) -> Iterator[tuple[int, Record]]:
    csv.field_size_limit(2**31 - 1)
    delimiter = "\t" if name.removesuffix(".gz").endswith(".tsv") else ","
    with io.TextIOWrapper(_open(name), "utf-8-sig", errors="surrogateescape", newline="") as stream:
        reader = csv.reader(stream, delimiter=delimiter, strict=True)
        header: list[str] | None = None
        while True:
            number = reader.line_num + 1
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield number, f"not CSV: {error}"
                header = header or []
                continue
            except _BROKEN_OFF as error:
                yield number, f"the file cannot be read on from here: {error}"
                return
            if not fields:
                continue
            if header is None:
                header = fields
            elif len(fields) != len(header):
                yield number, f"{len(fields)} fields, where the header has {len(header)}"
            elif len(set(header)) < len(header):
                yield number, "the header gives two columns the same name"
            else:
                yield number, dict(zip(header, fields, strict=True))


def _read_parquet(name: str) -> Iterator[tuple[int, Record]]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(name) as file:
            for batch in file.iter_batches(batch_size=256):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record
    except (pyarrow.ArrowException, OSError) as error:
        yield number + 1, f"the file cannot be read on from here: {error}"


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
    columns = columns or {}
    taken: dict[str, Any] = {}
    for field, names in COLUMN_NAMES.items():
        candidates = [columns[field]] if field in columns else [name for name in names if name in record]
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
    for field in ("id", "system"):
        if isinstance(texts.get(field), int | float):
            texts[field] = str(texts[field])
    problem = _problem(texts, taken, record)
    identity = texts.get("id") or None
    identity = identity if isinstance(identity, str) else None
    if problem:
        return unreadable(source, problem, record, identity, texts.get("system"))
    rest = {column: value for column, value in record.items() if column not in taken.values()}
    return Row(
        instruction=texts["instruction"],
        candidate=texts["candidate"],
        reference=texts.get("reference"),
        id=identity or source,
        system=texts.get("system"),
        source=source,
        columns=_writable(rest),
    )


def _writable(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns as JSON in UTF-8 can hold them: dates as text, no NaN, no lone surrogates."""
    text = json.dumps(columns, ensure_ascii=False, skipkeys=True, default=str)
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
    content = json.dumps([source, problem, record], sort_keys=True, default=str)
    key = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    if identity is None or _lone_surrogate(identity):
        identity = source
    if not isinstance(system, str) or _lone_surrogate(system):
        system = None
    error = f"{source}: {problem}".encode("utf-8", "replace").decode()
    return Failure(id=identity, system=system, key=key, source=source, error=error)
