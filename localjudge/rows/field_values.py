"""Take the values of a row's fields from a record, strictly by the reading of its file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from localjudge.errors import RowProblem
from localjudge.rows.joins import JoinedRecord
from localjudge.rows.paths import (
    ABSENT,
    EACH,
    FIRST,
    Element,
    ElementList,
    column,
    elements,
    is_column,
    is_empty,
    is_missing,
    list_of,
    look_up,
    steps,
    value_at,
    values_of_each,
)
from localjudge.rows.reading import KIND_NAMES, FieldSource, Kind, Reading, Source, kind_of
from localjudge.rows.record import RecordError
from localjudge.rows.shapes import Shape, recognized
from localjudge.rows.turns import alternating_turns, turns_of

GATHERED = "@responses"
"""The column of the responses that a shape gathers from several columns."""
RESPONSES = ("candidate", "candidate_a", "candidate_b", "messages", "conversation")
"""The fields that hold what is judged: a list in their path makes rows."""


@dataclass(frozen=True, slots=True)
class FieldValues:
    """The values of the fields of one row.

    Attributes:
        record: the columns of the record by name.
        values: the value of each field that the record has.
        others: the other columns of the record.
        number: the place of the row among the rows of the record, from 0; None if the record is one row.
        element: the elements of lists that the row is made of.
        problem: why the values cannot be read, where the record has several rows; None if they can.
    """

    record: Mapping[str, Any]
    values: Mapping[str, Any]
    others: Mapping[str, Any]
    number: int | None = None
    element: Element = field(default_factory=dict)
    problem: RecordError | None = None


class ValueReader:
    """A reader of the values of the fields of a file's records.

    Args:
        reading: the reading of the file.
    """

    def __init__(self, reading: Reading) -> None:
        self._reading, self._shape = reading, reading.shape
        self._response_lists = _response_lists(reading)
        self._claimed = frozenset([*reading.claimed, GATHERED])
        # Texts in a column of their own, the usual case, are looked up without a path.
        self._columns_of_texts: dict[str, str] = {}
        self._other_fields: list[str] = []
        for name, source in reading.fields.items():
            first = source.texts[0] if len(source.texts) == 1 else None
            if first is not None and first.file == "rows" and first.kind == "text" and is_column(first.path):
                self._columns_of_texts[name] = column(first.path)
            else:
                self._other_fields.append(name)

    def rows(self, record: dict[str, Any]) -> Iterator[FieldValues]:
        """Yield the values of each row of a record.

        Of several rows, one whose values cannot be read leaves the others as they are.

        Args:
            record: columns by name.

        Raises:
            RecordError: the record is of another form than its file, or a value of its only row is of another
                kind.
        """
        reading = self._reading
        if reading.encoded:
            record = decoded(record, reading.encoded)
        if self._shape.gather:
            record = gathered(record, self._shape.gather)
        if not reading.any_form:
            check_form(record, reading.form, self._shape)
        others = self._other_columns(record)
        places = None
        if self._response_lists:
            lists = [
                ElementList(
                    columns_of(record, source),
                    list_of(source.path),
                    is_object=list_of(source.path) in reading.object_lists,
                )
                for source in self._response_lists
            ]
            places = elements(lists, product=self._shape.product)
        if places is None:
            yield FieldValues(record=record, values=self._values(record, FIRST), others=others)
            return
        for number, element in enumerate(places):
            values: dict[str, Any] = {}
            problem = None
            try:
                values = self._values(record, element)
            except RecordError as error:
                problem = error
            yield FieldValues(
                record=record,
                values=values,
                others=others | _columns_of_element(record, reading, element),
                number=number,
                element=element,
                problem=problem,
            )

    def _values(self, record: dict[str, Any], element: Element) -> dict[str, Any]:
        """Return the value of each field that a row has."""
        values = {}
        for name, key in self._columns_of_texts.items():
            value = record.get(key)
            if not isinstance(value, str):
                value = take(record, name, self._reading, element)
            if value is not ABSENT:
                values[name] = value
        for name in self._other_fields:
            value = take(record, name, self._reading, element)
            if value is not ABSENT:
                values[name] = value
        return values

    def _other_columns(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return the columns in no field; one of both files has the name of the joined file before it."""
        claimed, reading = self._claimed, self._reading
        others = {name: value for name, value in record.items() if name not in claimed}
        if isinstance(record, JoinedRecord):
            for name, value in record.other.items():
                is_shared = name in reading.shared_columns or name in record
                shown = f"{reading.joined_name}.{name}" if is_shared else name
                if shown not in claimed and not (is_shared and record.get(name) == value):
                    others[shown] = value
        return others


def decoded(record: dict[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """Return a record with the values that the JSON texts at these paths stand for.

    Raises:
        RecordError: a value there is not the text of JSON.
    """
    found = record
    for path in paths:
        text = look_up(merged(found), path)
        if text == "":
            found = _with_value(found, path, None)
        if is_empty(text):
            continue
        if not isinstance(text, str):
            kind = KIND_NAMES[kind_of(text) or "data"]
            reason = f"{path!r} is {kind}; the reading of this file expects the text of its JSON"
            raise RecordError(reason, RowProblem.KIND)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{path!r} is not JSON: {error}", RowProblem.KIND) from None
        found = _with_value(found, path, value)
    return found


def _with_value(record: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of a record with another value at a path."""
    if isinstance(record, JoinedRecord) and column(path) not in record and path not in record:
        return JoinedRecord(record, other=_with_value(record.other, path, value))
    copy: Any = record.copy()
    keys = [path] if path in record else list(steps(path))
    inner = copy
    for key in keys[:-1]:
        place: Any = int(key) if isinstance(inner, list) else key
        inner[place] = inner[place].copy()
        inner = inner[place]
    inner[int(keys[-1]) if isinstance(inner, list) else keys[-1]] = value
    return cast(dict[str, Any], copy)


def gathered(record: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """Return a record with the column of all responses that stand in several columns."""
    if not columns:
        return record
    lists = [value for name in columns if isinstance(value := value_at(record, name), list)]
    found: dict[str, Any] = record.copy()
    found[GATHERED] = [each for values in lists for each in values]
    return found


def check_form(record: Mapping[str, Any], form: str, shape: Shape) -> None:
    """Check that a record has the form of its file.

    Args:
        record: columns by name.
        form: the name of the form.
        shape: its declaration.

    Raises:
        RecordError: it has another one.
    """
    own = recognized(merged(record))
    if own.name == form or shape.reads(own):
        return
    has = own.title or "without the paths of this form"
    expected = shape.title or "rows with usual columns"
    reason = f"is {has}, and its file is read as {expected}; name the form with --shape"
    raise RecordError(reason, RowProblem.FORM)


def merged(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the columns of a record and of the one that it is joined with; its own come first."""
    return {**record.other, **record} if isinstance(record, JoinedRecord) else record


def take(record: Mapping[str, Any], name: str, reading: Reading, element: Element = FIRST) -> Any:
    """Return the value of a field; `ABSENT` if the record has none.

    Args:
        record: columns by name.
        name: the field.
        reading: the reading of the file.
        element: the element that `[*]` stands for.

    Raises:
        RecordError: the value is of another kind than the reading says.
    """
    source = reading.fields[name]
    if source.turns:
        return _turns(record, source, element) or ABSENT
    if len(source.texts) == 1:
        return _value(record, source.texts[0], name, element)
    values = [_value(record, each, name, element) for each in source.texts]
    if is_missing(values[0]):
        return ABSENT
    return _one_text(values)


def _value(record: Mapping[str, Any], source: Source, name: str, element: Element) -> Any:
    """Return the value of a source, checked to be of its kind; `ABSENT` for a missing one."""
    columns = columns_of(record, source)
    if EACH in source.path and list_of(source.path) not in element:
        value = _joined_values(values_of_each(columns, source.path, element), name)
    else:
        value = value_at(columns, source.path, element)
    if is_missing(value):
        return ABSENT
    if name in _STRICT and not _is_of_kind(value, source):
        kind = KIND_NAMES[kind_of(value) or "data"]
        expected = KIND_NAMES[source.kind]
        said = f"{source.path!r}, the {name}, is {kind}; the reading of this file expects {expected}"
        raise RecordError(said, RowProblem.KIND)
    return value


_STRICT = frozenset({"instruction", "candidate", "candidate_a", "candidate_b", "messages", "system_prompt"})
"""The fields of which all values in a file are of one kind."""


def _is_of_kind(value: Any, source: Source) -> bool:
    kind = kind_of(value)
    if source.kind == "turns":
        return kind == "turns" or value == []
    return kind == source.kind


def _joined_values(values: Any, name: str) -> Any:
    """Return the values of a list outside of the responses: alternatives of a reference, otherwise one text."""
    if values is ABSENT or name == "reference":
        return values
    known = [value for value in values if not is_empty(value)]
    if all(isinstance(value, str) for value in known):
        return "\n\n".join(known) if known else ABSENT
    return known


def _turns(record: Mapping[str, Any], source: FieldSource, element: Element) -> list[Any]:
    """Return the turns of a conversation from all of its sources.

    Raises:
        RecordError: the record lacks turns that are not optional.
    """
    turns: list[Any] = []
    for part in source.turns:
        values = {role: _turn_value(record, role, sources, element) for role, sources in part.roles.items()}
        for role, value in values.items():
            if not part.optional and (is_missing(value) or (value == "" and role == "user")):
                paths = " + ".join(each.path for each in part.roles[role])
                raise RecordError(
                    f"no value at {paths!r}, which has turns of its conversation", RowProblem.MISSING
                )
        if len(values) > 1:
            turns += alternating_turns(values)
            continue
        ((role, value),) = values.items()
        if not is_empty(value) or (value == "" and role == "assistant"):
            turns += turns_of(role, value)
    return turns


def _turn_value(record: Mapping[str, Any], role: str, sources: Sequence[Source], element: Element) -> Any:
    """Return the value of a turn, of several texts as one; `ABSENT` if the first is missing.

    Raises:
        RecordError: a value is of another kind than in the file.
    """
    values = []
    for source in sources:
        value = value_at(columns_of(record, source), source.path, element)
        kind = kind_of(value)
        if kind is not None and kind not in _kinds_of_turn(role, source.kind):
            reason = f"{source.path!r} is {KIND_NAMES[kind]}; the reading of this file expects "
            raise RecordError(reason + KIND_NAMES[source.kind], RowProblem.KIND)
        values.append(value)
    if len(values) == 1 or is_missing(values[0]):
        return values[0]
    return _one_text(values)


def _one_text(values: Sequence[Any]) -> str:
    """Return the text of several values with an empty line between them; an object or a list as its JSON."""
    texts = []
    for value in values:
        if not is_empty(value):
            texts.append(
                value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            )
    return "\n\n".join(texts)


def _kinds_of_turn(role: str, kind: Kind) -> Sequence[Kind]:
    """Return the kinds that the value of a turn can have, where most values in the file are of one kind.

    The input of an API may be a text or messages, and a content may be a list of parts.
    """
    if role == "messages":
        return ("text", "turns", "data")
    if kind == "text":
        return ("text",)
    return ("texts", "turns", "data")


def columns_of(record: Mapping[str, Any], source: Source) -> Mapping[str, Any]:
    """Return the columns of the file that has the values of a source."""
    return record.other if source.file == "joined" and isinstance(record, JoinedRecord) else record


def _response_lists(reading: Reading) -> list[Source]:
    """Return the sources of the responses that go through a list."""
    found = []
    for name in RESPONSES:
        source = reading.fields.get(name)
        if source is not None:
            found += [each for each in source.sources if EACH in each.path]
    return found


def _columns_of_element(record: Mapping[str, Any], reading: Reading, element: Element) -> dict[str, Any]:
    """Return the keys of the elements that a row is made of, without those that are fields."""
    found: dict[str, Any] = {}
    paths = [source.path for each in reading.fields.values() for source in each.sources]
    for name in element:
        inner = value_at(merged(record), name + EACH, element)
        if isinstance(inner, Mapping):
            fields = {
                column(path.partition(EACH)[2].removeprefix(".")) for path in paths if list_of(path) == name
            }
            found |= {key: value for key, value in inner.items() if key not in fields}
    return found
