"""Make a row from a record of an input, and reject records that are not rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

from localjudge.errors import RowError
from localjudge.records import Failure, Response, Row
from localjudge.rows.columns import COLUMN_NAMES, CONVERSATIONS, CRITERION, PAIR
from localjudge.rows.criteria import read_criteria
from localjudge.rows.json_records import Document
from localjudge.rows.paths import ABSENT, unpacked, value_at
from localjudge.rows.record import Record, RecordError, check_text, is_nan, lone_surrogate, said_of
from localjudge.rows.record_reader import Fields, RecordReader
from localjudge.rows.shapes import COLUMNS

_DEEPEST = 100
"""Limit of nested lists and objects in a record; Python's JSON parser and writer allow little more."""
_MEDIA = frozenset(("image", "images", "video", "videos", "audio", "audios"))
_ALTERNATIVES = "\nor\n"
"""What stands between two references of a row. Each of the two is a right answer."""
_COLUMNS_NAMED = 12
_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)
_DECODER = json.JSONDecoder(parse_constant=lambda _: None)


def rows_of(
    record: Record | Row | Failure,
    source: str,
    reader: RecordReader,
    note: Callable[[Fields], None] = lambda _: None,
) -> Iterator[Row | Failure]:
    """Yield the rows of a record, at least one, or a failure with the reason.

    Args:
        record: columns by name; or the reason why there is no record; or a row, which is checked.
        source: its place in the input, such as `answers.jsonl:17`.
        reader: the reader of the records of this input.
        note: takes the fields of each row.
    """
    given = record if isinstance(record, Row) else None
    if given is not None:
        source, record = given.source or source, record_of(given, reader.judged)
    if isinstance(record, Failure):
        yield record
    elif isinstance(record, RowError):
        known = identity(record.record, reader) if record.record else ()
        yield unreadable(source, record.reason, record.record, *known)
    elif not isinstance(record, Mapping):
        yield unreadable(source, f"a {type(record).__name__}; a row is a dict or a Row")
    elif given is None and _is_deeper(record, _DEEPEST):
        yield unreadable(source, f"its values are nested more than {_DEEPEST} deep")
    else:
        shape = reader.shape_of(record) if given is None else COLUMNS
        try:
            for fields in reader.fields(record, shape):
                note(fields)
                if isinstance(record, Document) and fields.number is not None:  # its rows are those of the file
                    source = f"{source.rpartition(':')[0]}:{fields.number + 1}"
                yield _row(record, fields, source, reader, given)
        except RecordError as error:
            yield unreadable(source, str(error), record, *identity(record, reader))


def identity(record: Mapping[str, Any], reader: RecordReader) -> tuple[str | None, ...]:
    """Return the id and the systems of a record that is not a row, as far as they are known."""
    texts = (_plain_text(reader.first(record, field)) for field in ("id", *reader.judged.values()))
    return tuple(text if isinstance(text, str) else None for text in texts)


def _row(
    record: Mapping[str, Any], found: Fields, source: str, reader: RecordReader, given: Row | None
) -> Row | Failure:
    taken, judged, values = found.taken, reader.judged, found.values
    if "instruction" not in reader.used:
        values.setdefault("instruction", "")
    names = {field: _plain_text(values.get(field)) for field in ("id", *judged.values())}
    texts = {field: values[field] for field in ("instruction", *judged) if field in values}
    reference = reference_text(values.get("reference"))
    fields = {name: text for name in reader.own_fields if (text := field_text(found, name)) is not None}
    others = () if given is None else given.responses[len(judged) :]
    asks = CRITERION in reader.used
    try:
        if lacking := reader.needed - texts.keys() - fields.keys() - ({CRITERION} & values.keys()):
            raise RecordError(lacks(lacking | {"reference"} if reference is None else lacking, record, reader))
        known = {field: text for field, text in {"reference": reference, **names}.items() if text is not None}
        for field, text in {**texts, **known}.items():
            check_text(text, f"{taken.get(field)!r}, the {field},")
        more = {f"text of response {number}": each.text for number, each in enumerate(others, 2)}
        for name, text in {**fields, **more, "source": source}.items():
            check_text(text, f"the {name}")
        if media := [name for name, each in found.others.items() if name in _MEDIA and _is_media(each)]:
            raise RecordError(f"has {media[0]}, which are not supported; only text is judged")
        with said_of(f"{taken.get(CRITERION)!r}, the criteria:"):
            criteria = read_criteria(values[CRITERION]) if asks else ()
        read = {taken.get(name, name) for name in fields}
        columns = _writable({column: value for column, value in found.others.items() if column not in read})
    except RecordError as error:
        return unreadable(source, str(error), record, *names.values())
    return Row(
        instruction=texts["instruction"],
        responses=(*(Response(texts[text], names[system]) for text, system in judged.items()), *others),
        reference=reference,
        swapped=given is not None and given.swapped,
        fields=fields,
        id=names["id"] or (source if found.number is None else f"{source}-{found.number + 1}"),
        source=source,
        columns=columns,
        reads_reference="reference" in reader.used,
        criteria=criteria,
    )


def _plain_text(given: Any) -> Any:
    """Return a number or a boolean as JSON writes it, None for an empty value, and any other value as it is."""
    if isinstance(given, int | float) and not is_nan(given):
        with suppress(ValueError):  # more digits than Python writes
            return json.dumps(given)
    return None if is_nan(given) or given == "" else given


def reference_text(given: Any) -> Any:
    """Return a reference as text, the alternatives of a list as one."""
    given = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(given, list | tuple):
        texts = [reference_text(each) for each in given if each not in (None, "")]
        return (_ALTERNATIVES.join(texts) or None) if all(isinstance(each, str) for each in texts) else given
    return _plain_text(given)


def _is_media(given: Any) -> bool:
    """Return whether a column has images or sound, and not their description."""
    given = unpacked(given)
    return isinstance(given, Mapping | list | bytes) and bool(given)


def field_text(found: Fields, name: str) -> str | None:
    """Return the text of a column that a template uses; None if there is none.

    A value that is not text is written as JSON.
    """
    value = found.values.get(name, ABSENT)
    if value is ABSENT and name not in found.taken:
        value = value_at(found.record, name)
    if value is ABSENT or value is None or is_nan(value) or (value == "" and name not in CONVERSATIONS):
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def lacks(fields: Iterable[str], record: Mapping[str, Any], reader: RecordReader) -> str:
    """Return the reason why a record without these fields is not a row, with the flags to name them."""
    wanted = {*fields} & {*reader.used, *reader.judged, *reader.given}
    fields = [field for field in dict.fromkeys([*reader.names, *reader.used]) if field in wanted]
    said = {field: f"no column {path!r} for the {field}" for field, path in reader.given.items()}
    lacking = ({CRITERION: "no criteria", **said}.get(field, f"no {field}") for field in fields)
    flags = " ".join(f"--column {field}=COLUMN" for field in fields)
    other = ", or judge without one: --rubric no-reference" if fields == ["reference"] else ""
    names = {field: {*COLUMN_NAMES[field]} for field in (*PAIR, "candidate", "system")}
    pairs = {"conversation_a"}.union(*(names[field] for field in PAIR))
    if "candidate" in fields and pairs.intersection(record):
        other = ", or compare the two responses of each record: --rubric pairwise"
    if "candidate_a" in fields and all(names[field].intersection(record) for field in ("candidate", "system")):
        other = ", or compare the systems of these rows: score --pairs all"
    return f"{', '.join(lacking)}; its columns are {known_columns(record)}; name them with {flags}{other}"


def record_of(row: Row, judged: Mapping[str, str]) -> dict[str, Any]:
    """Return the columns of a row by the names of their fields, with a field for each response."""
    given = {name: getattr(row, name) for name in ("instruction", "reference", "id")}
    for (text, system), response in zip(judged.items(), row.responses, strict=False):
        given |= {text: response.text, system: response.system}
    if row.criteria:
        given["criteria"] = [each.model_dump(exclude={"part", "parts"}) for each in row.criteria]
    return {**row.columns, **row.fields, **given}


def known_columns(record: Mapping[str, Any]) -> str:
    """Return the names of a record's first columns, for a message."""
    more = f" and {len(record) - _COLUMNS_NAMED} more" if len(record) > _COLUMNS_NAMED else ""
    return (", ".join(map(str, list(record)[:_COLUMNS_NAMED])) or "none") + more


def _is_deeper(value: Any, most: int) -> bool:
    """Return whether lists and objects are nested deeper in a value than so many times."""
    if not isinstance(value, list | tuple | Mapping):
        return False
    inner = value.values() if isinstance(value, Mapping) else value
    return most < 0 or any(_is_deeper(each, most - 1) for each in inner if not isinstance(each, str))


def _writable(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns in a form that UTF-8 JSON can hold: dates as text, no NaN, no lone surrogates.

    Raises:
        RecordError: there is no such form.
    """
    try:
        text = _ENCODER.encode(columns)
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"its columns cannot be written as JSON: {error}") from None
    text = text.encode("utf-8", "replace").decode()
    return cast(dict[str, Any], _DECODER.decode(text))


def unreadable(source: str, problem: str, record: Any = None, *identity: Any) -> Failure:
    """Return the failure of a row that cannot be read; its key depends on its place and content.

    Args:
        source: its place in the input.
        problem: the reason.
        record: its columns.
        identity: its id and its systems, as far as they are known.
    """
    try:
        content = json.dumps([source, problem, record], sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):  # a Python object that JSON cannot hold
        content = json.dumps([source, problem])
    source = str(source).encode("utf-8", "replace").decode()
    key = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    known = (each if isinstance(each, str) and not lone_surrogate(each) else None for each in identity)
    own, system, opponent = (*known, None, None, None)[:3]
    error = f"{source}: {problem}".encode("utf-8", "replace").decode()
    return Failure(id=own or source, system=system, opponent=opponent, key=key, source=source, error=error)
