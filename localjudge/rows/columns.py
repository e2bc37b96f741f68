"""Convert a record of an input to a row: match columns to fields, and reject invalid records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from localjudge.errors import RowError, UsageError
from localjudge.records import Criterion, Failure, Response, Row
from localjudge.rows.conversation import CONVERSATIONS, MESSAGES, judges_conversation, with_conversation
from localjudge.rows.criteria import CRITERIA_COLUMNS, CRITERION, NUMBERED_CRITERIA, read_criteria
from localjudge.rows.pair_columns import PAIR, PAIR_COLUMN_NAMES, SYSTEMS, compares_responses
from localjudge.rows.record import Record, RecordError

COLUMN_NAMES: dict[str, tuple[str, ...]] = {
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
"""Column names recognized for each field; the first is the field's own name."""

USED_FIELDS = ("instruction", "reference", "candidate")
"""Fields that a template uses if nothing else is known."""


Columns = Mapping[str, str]


def column_names(used: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the column names recognized for each field of a row.

    Args:
        used: the fields that the rubric's template uses.
    """
    if not compares_responses(used):
        own = {CRITERION: CRITERIA_COLUMNS, NUMBERED_CRITERIA: ()}
        return COLUMN_NAMES | ({**own} if CRITERION in used else {})
    shared = {field: names for field, names in COLUMN_NAMES.items() if field not in ("candidate", "system")}
    shared |= {"instruction": (*shared["instruction"], "input"), "id": (*shared["id"], "pair_id")}
    return {**shared, **PAIR_COLUMN_NAMES}


def names_of(field: str, columns: Columns, used: Iterable[str]) -> tuple[str, ...]:
    """Return the possible columns of a field: its custom name, or the usual ones."""
    return (columns[field],) if field in columns else column_names(used).get(field, (field,))


def responses_of(used: Iterable[str]) -> dict[str, str]:
    """Return the field of each response that is judged, and the field of its system."""
    pair = compares_responses(used)
    return dict(zip(PAIR, SYSTEMS, strict=True)) if pair else {"candidate": "system"}


def own_fields(used: Iterable[str]) -> list[str]:
    """Return the fields of a template that are columns of its own, such as a context."""
    used = list(used)
    whole = CONVERSATIONS if judges_conversation(used) else ()
    return [name for name in used if name not in (*column_names(used), *whole)]


_DEEPEST = 100
"""Limit of nested lists and objects in a record; Python's JSON parser and writer allow little more."""


def parse_columns(assignments: Iterable[str], used: Iterable[str] = ()) -> dict[str, str]:
    """Return `["candidate=my_col"]` as `{"candidate": "my_col"}`.

    Args:
        assignments: fields, each with its column.
        used: the fields that the rubric's template uses.

    Raises:
        UsageError: the field is unknown, or the text is not an assignment.
    """
    columns: dict[str, str] = {}
    fields = dict.fromkeys([*column_names(used), MESSAGES, *used])
    for assignment in assignments:
        field, equals, name = assignment.partition("=")
        if not equals or not name or field not in fields:
            raise UsageError(
                f"`columns` {assignment}: write FIELD=COLUMN, where FIELD is one of {', '.join(fields)}"
            )
        columns[field] = name
    return columns


def columns_taken(record: Mapping[str, Any], columns: Columns, used: Sequence[str]) -> dict[str, str]:
    """Return the column of each field that the record has.

    Args:
        record: columns by name.
        columns: the column of each field whose column has a custom name.
        used: the fields that the rubric's template uses.

    Raises:
        RecordError: several columns are possible for a field.
    """
    taken: dict[str, str] = {}
    for field in column_names(used):
        candidates = [name for name in names_of(field, columns, used) if name in record or field in columns]
        if field in candidates:
            candidates = [field]
        if len(candidates) > 1 and field in ("instruction", "reference", CRITERION, *responses_of(used)):
            raise RecordError(
                f"{' and '.join(map(repr, candidates))} are both possible columns for the {field}; "
                f"choose one with `columns` {field}={candidates[0]}"
            )
        if candidates:
            taken[field] = candidates[0]
    return taken


def as_row(
    record: Record | Row | Failure,
    source: str,
    columns: Columns | None = None,
    used: Sequence[str] = USED_FIELDS,
) -> Row | Failure:
    """Return a record as a row, or as a failure with the reason.

    Args:
        record: columns by name; or the reason why there is no record; or a row, which is checked.
        source: its place in the input, such as `answers.jsonl:17`.
        columns: the column of each field whose column has a custom name.
        used: the fields that the rubric's template uses. A row needs no instruction if it is not one of them.
    """
    if isinstance(record, Failure):
        return record
    if isinstance(record, RowError):
        return unreadable(source, record.reason)
    judged, swapped = responses_of(used), False
    others: tuple[Response, ...] = ()
    if isinstance(record, Row):
        source, swapped, others = record.source or source, record.swapped, record.responses[len(judged) :]
        record = record_of(record, judged)
    if _is_deeper(record, _DEEPEST):
        return unreadable(source, f"its values are nested more than {_DEEPEST} deep")
    try:
        record = with_conversation(record, lambda field: names_of(field, columns or {}, used), used)
        taken = columns_taken(record, columns or {}, used)
    except RecordError as error:
        given = {field: names_of(field, columns or {}, used) for field in ("id", *judged.values())}
        found = [next(filter(None, map(record.get, names)), None) for names in given.values()]
        identity, *systems = (str(each) if isinstance(each, str | int) else None for each in found)
        return unreadable(source, str(error), record, identity, *systems)
    texts: dict[str, Any] = {field: record.get(column) for field, column in taken.items() if field != CRITERION}
    # In a table, NaN means that there is no value.
    texts = {field: None if isinstance(text, float) and text != text else text for field, text in texts.items()}
    for field in ("id", *judged.values()):
        if isinstance(texts.get(field), int | float):
            try:
                texts[field] = str(texts[field])
            except ValueError as error:
                return unreadable(source, f"{taken[field]!r}, the {field}, is too large a number: {error}")
    if "instruction" not in used and taken.get("instruction") not in record:
        texts["instruction"], taken["instruction"] = "", ""
    problem = _invalid_text(texts, taken, record, judged) or _invalid_response(others)
    criteria: tuple[Criterion, ...] = ()
    if CRITERION in used and problem is None:
        try:
            criteria = read_criteria(record[taken[CRITERION]])
        except KeyError:
            no_list = f"no criteria; its columns are {known_columns(record)}; name one with --column"
            problem = f"{no_list} {CRITERION}=COLUMN"
        except RecordError as error:
            problem = f"{taken[CRITERION]!r}, the criteria: {error}"
    others_used = own_fields(used)
    fields = {name: field_text(record, (columns or {}).get(name, name)) for name in others_used}
    for name, text in fields.items():
        if problem is None and text is None:
            problem = (
                f"no {name}; its columns are {known_columns(record)}; name one with --column {name}=COLUMN"
            )
        elif problem is None and (bad := _lone_surrogate(text or "")):
            problem = f"the {name} has {bad}"
    identity = texts.get("id") or None
    identity = identity if isinstance(identity, str) else None
    systems = [texts.get(field) for field in judged.values()]
    if problem:
        return unreadable(source, problem, record, identity, *systems)
    try:
        read = {*taken.values(), *((columns or {}).get(name, name) for name in others_used)}
        rest = _writable({column: value for column, value in record.items() if column not in read})
    except (TypeError, ValueError, RecursionError) as error:
        problem = f"its columns cannot be written as JSON: {error}"
        return unreadable(source, problem, None, identity, *systems)
    return Row(
        instruction=texts["instruction"],
        responses=(*(Response(texts[text], texts.get(system)) for text, system in judged.items()), *others),
        reference=texts.get("reference"),
        swapped=swapped,
        fields={name: text or "" for name, text in fields.items()},
        id=identity or source,
        source=source,
        columns=rest,
        reads_reference="reference" in used,
        criteria=criteria,
    )


def record_of(row: Row, judged: Mapping[str, str]) -> dict[str, Any]:
    """Return the columns of a row by the names of their fields, with a field for each response."""
    given = {name: getattr(row, name) for name in ("instruction", "reference", "id")}
    for (text, system), response in zip(judged.items(), row.responses, strict=False):
        given |= {text: response.text, system: response.system}
    if row.criteria:
        given[CRITERIA_COLUMNS[0]] = [each.model_dump(exclude={"part", "parts"}) for each in row.criteria]
    return {**row.columns, **row.fields, **given}


def field_text(record: Mapping[str, Any], column: str) -> str | None:
    """Return the text of a column, or of a value inside an object: `meta.topic`; None if there is none.

    A value that is not text is written as JSON.
    """
    found: Any = record.get(column)
    if found is None and column not in record:
        found = record
        for step in column.split("."):
            found = found.get(step) if isinstance(found, Mapping) else None
    if found is None or (isinstance(found, float) and found != found):
        return None
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, default=str)


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
    texts: Mapping[str, Any], taken: Mapping[str, str], record: Mapping[str, Any], judged: Iterable[str]
) -> str | None:
    """Return the reason why these texts are not a row; None if they are."""
    required = ("instruction", *judged)
    for field in required:
        if field not in texts or (taken[field] and taken[field] not in record):
            return f"no {field}; its columns are {known_columns(record)}; name one with --column {field}=COLUMN"
    for field, text in texts.items():
        if text is None and field not in required:
            continue
        if not isinstance(text, str):
            what = "null" if text is None else f"of type {type(text).__name__}"
            return f"{taken[field]!r}, the {field}, is {what}; it must be a string"
        if bad := _lone_surrogate(text):
            return f"{taken[field]!r}, the {field}, has {bad}"
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
