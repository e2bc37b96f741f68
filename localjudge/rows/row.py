"""Make a row from a record of an input, and reject records that are not rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from localjudge.errors import RowError
from localjudge.records import Criterion, Failure, Response, Row
from localjudge.rows.columns import USED_FIELDS, Columns, own_fields, responses_of
from localjudge.rows.conversation import CONVERSATIONS
from localjudge.rows.criteria import CRITERIA_COLUMNS, CRITERION, read_criteria
from localjudge.rows.json_records import Document
from localjudge.rows.paths import ABSENT, unpacked, value_at
from localjudge.rows.record import Record, RecordError
from localjudge.rows.record_reader import Fields, RecordReader
from localjudge.rows.shapes import Shape

_DEEPEST = 100
"""Limit of nested lists and objects in a record; Python's JSON parser and writer allow little more."""
_MEDIA = ("image", "images", "video", "videos", "audio", "audios")
_ALTERNATIVES = "\nor\n"
"""What stands between two references of a row. Each of the two is a right answer."""


def as_row(
    record: Record | Row | Failure,
    source: str,
    columns: Columns | None = None,
    used: Sequence[str] = USED_FIELDS,
) -> Row | Failure:
    """Return a record of one row as a row, or as a failure with the reason.

    Args:
        record: columns by name; or the reason why there is no record; or a row, which is checked.
        source: its place in the input, such as `answers.jsonl:17`.
        columns: the column of each field whose column has a custom name.
        used: the fields that the rubric's template uses. A row needs no instruction if it is not one of them.
    """
    return next(rows_of(record, source, RecordReader(columns or {}, used)))


def rows_of(record: Record | Row | Failure, source: str, reader: RecordReader) -> Iterator[Row | Failure]:
    """Yield the rows of a record, at least one, or a failure with the reason.

    Args:
        record: columns by name; or the reason why there is no record; or a row, which is checked.
        source: its place in the input, such as `answers.jsonl:17`.
        reader: the reader of the records of this input.
    """
    if isinstance(record, Failure):
        yield record
        return
    if isinstance(record, RowError):
        yield unreadable(source, record.reason)
        return
    judged, swapped = responses_of(reader.used), False
    others: tuple[Response, ...] = ()
    shape: Shape | None = None
    if isinstance(record, Row):
        source, swapped, others = record.source or source, record.swapped, record.responses[len(judged) :]
        record = record_of(record, judged)
    elif _is_deeper(record, _DEEPEST):
        yield unreadable(source, f"its values are nested more than {_DEEPEST} deep")
        return
    else:
        shape = reader.shape_of(record)
    try:
        for fields in reader.fields(record, shape):
            if isinstance(record, Document) and fields.number is not None:  # its rows are those of the file
                source = f"{source.rpartition(':')[0]}:{fields.number + 1}"
            yield _row(record, fields, source, reader.used, swapped, others)
    except RecordError as error:
        yield unreadable(source, str(error), record, *identity(record, reader))


def identity(record: Mapping[str, Any], reader: RecordReader) -> tuple[str | None, ...]:
    """Return the id and the systems of a record that is not a row, as far as they are known."""
    texts = [reader.first(record, field) for field in ("id", *responses_of(reader.used).values())]
    return tuple(str(each) if isinstance(each, str | int) else None for each in texts)


def _row(
    record: Mapping[str, Any],
    found: Fields,
    source: str,
    used: Sequence[str],
    swapped: bool,
    others: tuple[Response, ...],
) -> Row | Failure:
    judged, taken = responses_of(used), found.taken
    kept = ("instruction", "reference", "id", *judged, *judged.values())
    texts: dict[str, Any] = {field: found.values[field] for field in kept if field in found.values}
    # In a table, NaN means that there is no value.
    texts = {field: None if isinstance(text, float) and text != text else text for field, text in texts.items()}
    for field in ("id", *judged.values()):
        if isinstance(texts.get(field), int | float):
            try:
                texts[field] = str(texts[field])
            except ValueError as error:
                return unreadable(source, f"{taken[field]!r}, the {field}, is too large a number: {error}")
    texts["reference"] = reference_text(texts.get("reference"))
    for field in ("id", *judged.values()):
        texts[field] = None if texts.get(field) == "" else texts.get(field)
    if "instruction" not in used and "instruction" not in texts:
        texts["instruction"], taken["instruction"] = "", ""
    problem = _invalid_text(texts, found, record, judged) or _invalid_response(others) or _media(record, found)
    criteria: tuple[Criterion, ...] = ()
    if CRITERION in used and problem is None:
        try:
            criteria = read_criteria(found.values[CRITERION])
        except KeyError:
            problem = _lacks(CRITERION, record, "criteria")
        except RecordError as error:
            problem = f"{taken[CRITERION]!r}, the criteria: {error}"
    fields = {name: field_text(found, record, name) for name in own_fields(used)}
    for name, text in fields.items():
        if problem is None and text is None:
            problem = _lacks(name, record)
        elif problem is None and (bad := _lone_surrogate(text or "")):
            problem = f"the {name} has {bad}"
    own = texts["id"] if isinstance(texts["id"], str) else None
    systems = [texts[field] for field in judged.values()]
    if problem:
        return unreadable(source, problem, record, own, *systems)
    try:
        read = {taken.get(name, name) for name in fields}
        rest = _writable({column: value for column, value in found.others.items() if column not in read})
    except (TypeError, ValueError, RecursionError) as error:
        problem = f"its columns cannot be written as JSON: {error}"
        return unreadable(source, problem, None, own, *systems)
    return Row(
        instruction=texts["instruction"],
        responses=(*(Response(texts[text], texts[system]) for text, system in judged.items()), *others),
        reference=texts["reference"],
        swapped=swapped,
        fields={name: text or "" for name, text in fields.items()},
        id=own or (source if found.number is None else f"{source}-{found.number + 1}"),
        source=source,
        columns=rest,
        reads_reference="reference" in used,
        criteria=criteria,
    )


def reference_text(given: Any) -> Any:
    """Return a reference as text: a number or a boolean as JSON writes it, and the alternatives of a list."""
    given = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(given, list | tuple):
        texts = [reference_text(each) for each in given if each not in (None, "")]
        return (_ALTERNATIVES.join(texts) or None) if all(isinstance(each, str) for each in texts) else given
    if isinstance(given, bool | int | float):
        with suppress(ValueError):  # more digits than Python writes
            return json.dumps(given)
    return None if given == "" else given


def _media(record: Mapping[str, Any], found: Fields) -> str | None:
    """Return the reason why a row with images or sound in a column of their own cannot be judged."""
    for name in _MEDIA:
        if name not in found.others:
            continue
        given = unpacked(found.others[name])
        if isinstance(given, Mapping | list | bytes) and given:
            return f"has {name}, which are not supported; only text is judged"
    return None


def field_text(found: Fields, record: Mapping[str, Any], name: str) -> str | None:
    """Return the text of a column that a template uses; None if there is none.

    A value that is not text is written as JSON.
    """
    value = found.values.get(name, ABSENT)
    if value is ABSENT and name not in found.taken:
        value = value_at(record, name)
    if value is ABSENT or value is None or (isinstance(value, float) and value != value):
        return None
    if value == "" and name not in CONVERSATIONS:
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _lacks(field: str, record: Mapping[str, Any], what: str = "") -> str:
    return f"no {what or field}; its columns are {known_columns(record)}; name one with --column {field}=COLUMN"


def record_of(row: Row, judged: Mapping[str, str]) -> dict[str, Any]:
    """Return the columns of a row by the names of their fields, with a field for each response."""
    given = {name: getattr(row, name) for name in ("instruction", "reference", "id")}
    for (text, system), response in zip(judged.items(), row.responses, strict=False):
        given |= {text: response.text, system: response.system}
    if row.criteria:
        given[CRITERIA_COLUMNS[0]] = [each.model_dump(exclude={"part", "parts"}) for each in row.criteria]
    return {**row.columns, **row.fields, **given}


def known_columns(record: Mapping[str, Any]) -> str:
    """Return the names of a record's first columns, for a message."""
    return ", ".join(map(str, list(record)[:12])) or "none"


def _is_deeper(record: Any, most: int) -> bool:
    layer = [record]
    for _ in range(most + 1):
        if not layer:
            return False
        values = (each.values() if isinstance(each, Mapping) else each for each in layer)
        layer = [inner for each in values for inner in each if isinstance(inner, Mapping | list | tuple)]
    return bool(layer)


def _writable(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns in a form that UTF-8 JSON can hold: dates as text, no NaN, no lone surrogates."""
    text = json.dumps(columns, ensure_ascii=False, default=str)
    text = text.encode("utf-8", "replace").decode()
    return cast(dict[str, Any], json.loads(text, parse_constant=lambda _: None))


def _invalid_text(
    texts: Mapping[str, Any], found: Fields, record: Mapping[str, Any], judged: Iterable[str]
) -> str | None:
    """Return the reason why these texts are not a row; None if they are."""
    required = ("instruction", *judged)
    for field in required:
        if field not in texts:
            return _lacks(field, record)
    for field, text in texts.items():
        if text is None and field not in required:
            continue
        if not isinstance(text, str):
            what = "null" if text is None else f"of type {type(text).__name__}"
            return f"{found.taken[field]!r}, the {field}, is {what}; it must be a string"
        if bad := _lone_surrogate(text):
            return f"{found.taken[field]!r}, the {field}, has {bad}"
    return None


def _invalid_response(others: Iterable[Response]) -> str | None:
    """Return the reason why one of the responses after the first is invalid; None if none is."""
    for number, response in enumerate(others, 2):
        for what, text in (("text", response.text), ("system", response.system or "")):
            if not isinstance(text, str):
                return f"the {what} of response {number} is of type {type(text).__name__}; it must be a string"
            if bad := _lone_surrogate(text):
                return f"the {what} of response {number} has {bad}"
    return None


def _lone_surrogate(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        # The CSV decoder turns a byte that is not UTF-8 into U+DC80 to U+DCFF.
        if 0xDC80 <= code <= 0xDCFF:
            byte = f"(0x{code - 0xDC00:02X}) at character {error.start + 1}"
            return f"a byte that is not UTF-8 {byte}; save the file as UTF-8"
        return f"a lone surrogate (U+{code:04X}) at character {error.start + 1}"
    return None


def unreadable(
    source: str,
    problem: str,
    record: Any = None,
    identity: str | None = None,
    system: Any = None,
    opponent: Any = None,
) -> Failure:
    """Return the failure of a row that cannot be read; its key depends on its place and content."""
    try:
        content = json.dumps([source, problem, record], sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):  # a Python object that JSON cannot hold
        content = json.dumps([source, problem])
    key = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    if identity is None or _lone_surrogate(identity):
        identity = source
    names = [
        name if isinstance(name, str) and not _lone_surrogate(name) else None for name in (system, opponent)
    ]
    error = f"{source}: {problem}".encode("utf-8", "replace").decode()
    return Failure(id=identity, system=names[0], opponent=names[1], key=key, source=source, error=error)
