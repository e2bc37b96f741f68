"""Make a row from the values of its fields, and reject records that are not rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, time
from decimal import Decimal
from typing import Any, cast

from localjudge.errors import RowError, RowProblem
from localjudge.records import Criterion, Failure, Response, Row
from localjudge.rows.columns import (
    CONVERSATION,
    CONVERSATIONS,
    CRITERION,
    MESSAGES,
    SYSTEM_PROMPT,
    TURN,
    compares_responses,
    judges_conversation,
    own_fields,
    responses_of,
)
from localjudge.rows.conversation import conversation_fields, pair_fields
from localjudge.rows.criteria import read_criteria
from localjudge.rows.field_values import FieldValues, ValueReader, merged
from localjudge.rows.json_records import Document
from localjudge.rows.media import media_column
from localjudge.rows.messages import as_turns, role_of, roles_of
from localjudge.rows.missing import missing_fields_reason
from localjudge.rows.paths import FIRST, Element, is_empty, is_missing, value_at
from localjudge.rows.reading import Reading
from localjudge.rows.record import Record, RecordError, check_text, error_context, lone_surrogate

DEEPEST = 100
"""Limit of nested lists and objects in a record; Python's JSON parser and writer allow little more."""
_ALTERNATIVES = "\nor\n"
"""Separates alternative references; matching either is correct."""
_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)
_DECODER = json.JSONDecoder(parse_constant=lambda _: None)


class RowReader:
    """A reader of the records of a file as rows.

    Args:
        reading: the reading of the file.
        used: the fields that the rubric's template uses.
        given: the column of each field that a flag names.

    Attributes:
        reading: the reading of the file.
        used: the fields that the rubric's template uses.
    """

    def __init__(self, reading: Reading, used: Sequence[str], given: Mapping[str, str]) -> None:
        self.reading, self.used, self._given = reading, used, given
        self._values, self._shape = ValueReader(reading), reading.shape
        self._responses, self._own_fields = responses_of(used), own_fields(used)
        self._names = ("id", *self._responses.values())
        needed = ["instruction"] if "instruction" in used else []
        needed += [*self._responses, *self._own_fields]
        if CRITERION in used:
            needed.append(CRITERION)
        self._needed = needed
        self._is_pair = compares_responses(used)
        self._can_have_turns = _can_have_turns(reading, used)
        self._phrases = {name: self._phrase(name) for name in ("instruction", "reference", *self._responses)}
        self._phrases |= {name: self._phrase(name) for name in self._names}

    def rows(self, record: Record, source: str) -> Iterator[Row | Failure]:
        """Yield the rows of a record, at least one, or a failure with the reason.

        Args:
            record: columns by name, or the reason why there is no record.
            source: its place in the input, such as `answers.jsonl:17`.
        """
        if isinstance(record, RowError):
            identity = self.identity(record.record) if record.record else Identity()
            yield unreadable(source, record, identity)
            return
        if _is_deeper(record, DEEPEST):
            reason = f"its values are nested more than {DEEPEST} deep"
            yield unreadable(source, RowError(reason, None, RowProblem.TOO_LARGE), Identity())
            return
        try:
            for values in self._values.rows(record):
                yield self._row(values, self._source(values, record, source))
        except RecordError as error:
            yield unreadable(source, RowError(str(error), record, error.problem), self.identity(record))

    def _source(self, values: FieldValues, record: Record, source: str) -> str:
        """Return the place of a row; the rows of a file that is one object are those of the file."""
        if isinstance(record, Document) and values.number is not None:
            return f"{source.rpartition(':')[0]}:{values.number + 1}"
        return source

    def identity(self, record: Mapping[str, Any], element: Element = FIRST) -> Identity:
        """Return the id and the systems of a record, or of one of its rows, as far as they are known."""
        names = []
        for name in self._names:
            field = self.reading.fields.get(name)
            value = value_at(merged(record), field.texts[0].path, element) if field and field.texts else None
            names.append(text_of_value(value))
        known = [name if isinstance(name, str) else None for name in names]
        return Identity(*known)

    def values_of_fields(self, record: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yield the values of the fields of each row of a record, as they stand in its columns.

        Raises:
            RecordError: the record cannot be read.
        """
        for values in self._values.rows(record):
            if values.problem is None:
                yield values.values

    def values(self, record: dict[str, Any]) -> Iterator[FieldValues]:
        """Yield the values of each row of a record, with those that its conversation has.

        Raises:
            RecordError: the record cannot be read.
        """
        for values in self._values.rows(record):
            if values.problem is not None:
                raise values.problem
            yield replace(values, values=self._with_conversation(dict(values.values), values))

    def _row(self, values: FieldValues, source: str) -> Row | Failure:
        """Return a row, or a failure with the reason."""
        if values.problem is not None:
            identity = self.identity(values.record, values.element)
            return self._failed(values.problem, identity, values, source)
        names = {name: text_of_value(values.values.get(name)) for name in self._names}
        try:
            fields = self._with_conversation(dict(values.values), values)
            self._check_present(fields, values)
            return self._made(fields, names, values, source)
        except RecordError as error:
            known = [name if isinstance(name, str) else None for name in names.values()]
            return self._failed(error, Identity(*known), values, source)

    def _failed(self, error: RecordError, identity: Identity, values: FieldValues, source: str) -> Failure:
        """Return the failure of a row whose values are no row."""
        if values.number is not None and identity.id is not None:
            identity = replace(identity, id=f"{identity.id}-{values.number + 1}")
        reason = RowError(str(error), values.record, error.problem)
        return unreadable(source, reason, identity, part=values.number)

    def _with_conversation(self, fields: dict[str, Any], values: FieldValues) -> dict[str, Any]:
        """Return the fields with those that are read from the turns of a conversation."""
        shape = self._shape
        if shape.turns is not None:
            fields |= _first_turns(fields, _number_of_turns(values, shape.turns), self._responses)
        if shape.whole and not self._is_pair:
            self._check_all_turns_are_shown(fields)
        if shape.reference_of_turns:
            fields = self._with_reference_of_turns(fields)
        if not self._can_have_turns:
            return fields
        if self._is_pair:
            return pair_fields(fields, self.reading, self.used)
        return conversation_fields(fields, self.reading, self.used)

    def _check_all_turns_are_shown(self, fields: Mapping[str, Any]) -> None:
        roles = roles_of(fields.get(MESSAGES))
        is_shown = not CONVERSATIONS.isdisjoint(self.used) or "@turns" in self.used
        if not is_shown and (roles.count("user") > 1 or "tool" in roles):
            rubric = "agent" if "tool" in roles else "conversation"
            reason = f"has turns that only {{$conversation}} shows; judge it with --rubric {rubric}"
            raise RecordError(reason, RowProblem.CONVERSATION)

    def _with_reference_of_turns(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields with the reference of the judged turns, of a list with one for each turn."""
        texts = fields.get("reference")
        if not isinstance(texts, list) or not texts:
            return fields
        shows_all = judges_conversation(self.used) or "@turns" in self.used
        reference = "\n\n".join(str(text) for text in texts) if shows_all else texts[-1]
        return fields | {"reference": reference}

    def _check_present(self, fields: Mapping[str, Any], values: FieldValues) -> None:
        """Check that a row has all fields that each row needs.

        Raises:
            RecordError: it lacks some.
        """
        missing = [name for name in self._needed if is_missing(fields.get(name))]
        if not missing:
            return
        places = []
        for name in missing:
            if name in self.reading.fields:
                places.append(f"no {name}: no value at {self.reading.columns_of(name)!r}")
        if places:
            raise RecordError(", ".join(places), RowProblem.MISSING)
        if "reference" in self.used and is_empty(fields.get("reference")):
            missing.append("reference")
        reason = missing_fields_reason(missing, values.record, self.used, self._given)
        raise RecordError(reason, RowProblem.MISSING)

    def _made(
        self, fields: Mapping[str, Any], names: Mapping[str, Any], values: FieldValues, source: str
    ) -> Row:
        """Return the row of fields that are all there.

        Raises:
            RecordError: a text cannot be written, or the record has media.
        """
        instruction = fields.get("instruction", "")
        check_text(instruction, self._phrases["instruction"])
        responses = []
        for text, system in self._responses.items():
            check_text(fields[text], self._phrases[text])
            responses.append(Response(fields[text], names[system]))
        reference = reference_text(fields.get("reference"))
        for name, text in {"reference": reference, **names}.items():
            if text is not None:
                check_text(text, self._phrases[name])
        check_text(source, "the source")
        own = self._texts_of_own_fields(fields)
        others = {name: value for name, value in values.others.items() if name not in own}
        medium = media_column(others)
        if medium is not None:
            reason = f"has an image, sound or a video in {medium!r}; only text is judged"
            raise RecordError(reason, RowProblem.MEDIA)
        if TURN in fields:
            others[TURN] = fields[TURN]
        return Row(
            instruction=instruction,
            responses=tuple(responses),
            reference=reference,
            fields=own,
            id=_id_of(names, values, source),
            source=source,
            columns=writable(others) if others else {},
            reads_reference="reference" in self.used,
            criteria=self._criteria(fields),
        )

    def _texts_of_own_fields(self, fields: Mapping[str, Any]) -> dict[str, str]:
        """Return the texts of the fields that are the rubric's own.

        Raises:
            RecordError: one cannot be written.
        """
        own = {}
        for name in self._own_fields:
            text = field_text(fields.get(name), name)
            if text is not None:
                check_text(text, f"the {name}")
                own[name] = text
        return own

    def _phrase(self, name: str) -> str:
        """Return a field with its column, for a message."""
        path = self.reading.columns_of(name) if name in self.reading.fields else name
        return f"{path!r}, the {name},"

    def _criteria(self, fields: Mapping[str, Any]) -> tuple[Criterion, ...]:
        if CRITERION not in self.used:
            return ()
        with error_context(f"{self.reading.columns_of(CRITERION)!r}, the criteria:"):
            return read_criteria(fields[CRITERION])


@dataclass(frozen=True, slots=True)
class Identity:
    """The id and the systems of a record, as far as they are known."""

    id: str | None = None
    system: str | None = None
    opponent: str | None = None


def _can_have_turns(reading: Reading, used: Sequence[str]) -> bool:
    """Return whether rows by a reading have turns, or a rubric makes turns of their texts."""
    if judges_conversation(used) or {MESSAGES, SYSTEM_PROMPT} & reading.fields.keys():
        return True
    return any(source.kind == "turns" for source in reading.fields.values())


def _number_of_turns(values: FieldValues, path: str) -> int:
    """Return the number of turns that a record is of; 0 for all.

    Raises:
        RecordError: it is not a number.
    """
    value = value_at(values.record, path)
    if is_empty(value):
        return 0
    try:
        return int(value)
    except (TypeError, ValueError):
        raise RecordError(f"{path!r} is not a number of turns", RowProblem.VALUE) from None


def _first_turns(fields: Mapping[str, Any], turns: int, responses: Mapping[str, str]) -> dict[str, Any]:
    """Return the responses that are conversations, up to as many turns of the user and the answers to them."""
    found = {}
    for name in responses:
        talk = as_turns(fields.get(name))
        if talk is None:
            continue
        asked = [place for place, turn in enumerate(talk) if role_of(turn) == "user"]
        found[name] = talk[: asked[turns]] if 0 < turns < len(asked) else talk
    return found


def _id_of(names: Mapping[str, Any], values: FieldValues, source: str) -> str:
    """Return the id of a row: its own, with a number if several rows without systems share it; or its place."""
    own = names["id"]
    if own is None:
        return source if values.number is None else f"{source}-{values.number + 1}"
    if values.number is not None and "system" in names and names["system"] is None:
        return f"{own}-{values.number + 1}"
    return str(own)


def record_of(row: Row, used: Sequence[str]) -> dict[str, Any]:
    """Return the columns of a row by the names of their fields, with a field for each response.

    Args:
        row: the row.
        used: the fields that the rubric's template uses.
    """
    record: dict[str, Any] = {**row.columns, **row.fields}
    record |= {"instruction": row.instruction, "reference": row.reference, "id": row.id}
    for (text, system), response in zip(responses_of(used).items(), row.responses, strict=False):
        record |= {text: response.text, system: response.system}
    if judges_conversation(used):
        record[CONVERSATION] = record.pop("candidate", None)
    if row.criteria:
        record[CRITERIA] = [each.model_dump(exclude={"part", "parts"}) for each in row.criteria]
    return record


CRITERIA = "criteria"
"""The column with the list of criteria of a row."""


def text_of_value(value: Any) -> Any:
    """Return a number or a boolean as JSON writes it, None for an empty value, and any other value as it is."""
    if is_empty(value):
        return None
    if isinstance(value, Decimal | date | time):
        return str(value)
    if isinstance(value, int | float):
        with suppress(ValueError):  # more digits than Python writes
            return json.dumps(value)
    return value


def reference_text(value: Any) -> Any:
    """Return a reference as text, the alternatives of a list as one; anything else as it is."""
    if not isinstance(value, list):
        return text_of_value(value)
    texts = [reference_text(each) for each in value if not is_empty(each)]
    if not all(isinstance(text, str) for text in texts):
        return value
    return _ALTERNATIVES.join(texts) or None


def field_text(value: Any, name: str) -> str | None:
    """Return the text of a field of the rubric's own, other values as JSON; None if there is none."""
    if is_missing(value) or (value == "" and name not in CONVERSATIONS):
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _is_deeper(value: Any, most: int) -> bool:
    """Return whether lists and objects are nested deeper in a value than so many levels."""
    if not isinstance(value, list | tuple | Mapping):
        return False
    inner = value.values() if isinstance(value, Mapping) else value
    return most < 0 or any(_is_deeper(each, most - 1) for each in inner if not isinstance(each, str))


def writable(columns: Mapping[str, Any]) -> dict[str, Any]:
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


def unreadable(source: str, error: RowError, identity: Identity, *, part: int | None = None) -> Failure:
    """Return the failure of a row that cannot be read.

    Its key depends on its place, the kind of problem and the content of the record, and not on the sentence.

    Args:
        source: its place in the input.
        error: the reason, with the columns of the record if they are known.
        identity: its id and its systems, as far as they are known.
        part: its place among the rows of the record; None if the record is one row.
    """
    place = [source, error.problem] if part is None else [source, error.problem, part]
    try:
        content = json.dumps([*place, error.record], sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):  # a Python object that JSON cannot hold
        content = json.dumps(place)
    source = str(source).encode("utf-8", "replace").decode()
    key = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    message = f"{source}: {error.reason}".encode("utf-8", "replace").decode()
    return Failure(
        id=_written(identity.id) or source,
        system=_written(identity.system),
        opponent=_written(identity.opponent),
        key=key,
        source=source,
        error=message,
    )


def _written(name: str | None) -> str | None:
    """Return a name that UTF-8 can encode; None for any other."""
    return None if name is None or lone_surrogate(name) else name
