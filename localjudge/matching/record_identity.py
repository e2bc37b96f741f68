"""What identifies the row of a record: a row of the input, an exported outcome or a line of labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from localjudge.matching.identity import (
    Identity,
    hashes_of_criterion_and_turn,
    hashes_of_texts,
    name_or_none,
    shared_fields,
)
from localjudge.records import Criterion, Row
from localjudge.records.keys import RESPONSE_DIGESTS, response_digest
from localjudge.records.outcome_columns import PAIR_DIGESTS
from localjudge.rows.columns import (
    CRITERION,
    Columns,
    ReadingFlags,
    compares_responses,
    own_fields,
    responses_of,
)
from localjudge.rows.decision import decide
from localjudge.rows.field_values import FieldValues
from localjudge.rows.paths import ABSENT, look_up
from localjudge.rows.record import RecordError
from localjudge.rows.row import RowReader, field_text, reference_text


@dataclass(frozen=True, slots=True)
class _RubricFields:
    """The fields of a rubric's template.

    Attributes:
        used: all fields.
        responses: the field of each response, and the field of its system.
        extra: the columns of its own, such as a context.
        shared: the fields whose texts all responses to an instruction share.
        digest_columns: the column of each response's digest in an exported outcome.
    """

    used: tuple[str, ...]
    responses: Mapping[str, str]
    extra: Sequence[str]
    shared: Sequence[str]
    digest_columns: Sequence[str]


@lru_cache(maxsize=16)
def _rubric_fields(used: tuple[str, ...]) -> _RubricFields:
    """Return the fields of a rubric's template; once, since every record needs them."""
    return _RubricFields(
        used=used,
        responses=responses_of(used),
        extra=own_fields(used),
        shared=shared_fields(used),
        digest_columns=PAIR_DIGESTS if compares_responses(used) else RESPONSE_DIGESTS[:1],
    )


def label_reader(
    records: Sequence[Mapping[str, Any]],
    columns: Columns,
    used: Sequence[str],
    label_columns: Iterable[str] = (),
    user_columns: Columns | None = None,
) -> RowReader:
    """Return the reader of label records, by a reading of their own.

    Args:
        records: the first records: rows, exported outcomes, or lines of `localjudge label`.
        columns: the column of each field that the run names; it is read if the records have it.
        used: the fields that the template of the run's rubric uses.
        label_columns: the columns with the labels, which do not identify a row.
        user_columns: the column of each field that the user names for these records.

    Raises:
        RecordError: the records can be read in several ways, or lack a column that the user names.
    """
    named: dict[str, str] = {}
    for name, path in columns.items():
        is_field = not name.startswith("@")
        if is_field and any(look_up(record, path) is not ABSENT for record in records):
            named[name] = path
    if user_columns is not None:
        named |= user_columns
    reading = decide(
        [dict(record) for record in records],
        ReadingFlags(columns=named),
        used=used,
        label_columns=label_columns,
        of_labels=True,
    )
    return RowReader(reading, used, named)


def identities_of(
    record: Mapping[str, Any], where: str, reader: RowReader
) -> list[tuple[Identity, FieldValues]]:
    """Return the identity of each row in a record, from the columns that the record has, and its fields.

    An empty text of another field than a response is a missing value. A record whose texts cannot be read is
    identified by its id and its systems.

    Args:
        record: the columns by name: those of a row, of an exported outcome, or of a line of `localjudge label`.
        where: its file and line, for a message.
        reader: the reader of these records.
    """
    rubric_fields = _rubric_fields(tuple(reader.used))
    columns = dict(record)
    try:
        rows = list(reader.values(columns))
    except RecordError:
        rows = [_id_and_systems(columns, reader, rubric_fields=rubric_fields)]
    return [(_identity(values, where, rubric_fields=rubric_fields), values) for values in rows]


def _id_and_systems(columns: dict[str, Any], reader: RowReader, *, rubric_fields: _RubricFields) -> FieldValues:
    """Return the id and the systems of a record as the values of its fields."""
    names = reader.identity(columns)
    values = {"id": names.id}
    systems = (names.system, names.opponent)
    for field, system in zip(rubric_fields.responses.values(), systems, strict=False):
        values[field] = system
    return FieldValues(columns, values, others=columns)


def _identity(row: FieldValues, where: str, *, rubric_fields: _RubricFields) -> Identity:
    """Return the identity of a row of a record.

    Args:
        row: the values of the row's fields.
        where: the file and line of the record.
        rubric_fields: the fields of the rubric's template.
    """
    record = row.record
    values = row.values
    responses = rubric_fields.responses
    texts = _texts(values, rubric_fields)
    shown_texts: dict[str, str | None] = {}
    for names in (rubric_fields.shared, responses):
        shown_texts |= {name: texts[name] for name in names if name in texts}
    hashes = hashes_of_texts(shown_texts, responses)
    columns = {**record, **row.others, **values}
    hashes |= hashes_of_criterion_and_turn(_criterion(record, rubric_fields), columns)
    group = _group(texts, record, rubric_fields=rubric_fields)
    systems = [name_or_none(values.get(name)) for name in responses.values()]
    label = record.get("label")
    is_drawn_row = isinstance(label, Mapping) and "row" in label
    return Identity(
        where=where,
        id=name_or_none(values.get("id")),
        systems=tuple(systems),
        digests=_response_digests(texts, record, rubric_fields=rubric_fields),
        group=group,
        text_hashes=hashes,
        of_equal_texts=is_drawn_row and group is not None,
    )


def _texts(values: Mapping[str, Any], rubric_fields: _RubricFields) -> dict[str, str]:
    """Return the texts of a row by the names of their fields, without those that are missing.

    Args:
        values: the value of each field that the row has.
        rubric_fields: the fields of the rubric's template.
    """
    responses = rubric_fields.responses
    read = {"instruction": values.get("instruction")}
    for name in responses:
        read[name] = values.get(name)
    read["reference"] = reference_text(values.get("reference"))
    for name in rubric_fields.extra:
        read[name] = field_text(values.get(name), name)
    texts: dict[str, str] = {}
    for name, text in read.items():
        if isinstance(text, str) and (text or name in responses):
            texts[name] = text
    has_response = any(name in texts for name in responses)
    if has_response and "instruction" not in rubric_fields.used:
        texts.setdefault("instruction", "")  # as in a row without this column
    return texts


def _criterion(record: Mapping[str, Any], rubric_fields: _RubricFields) -> Criterion | None:
    """Return the criterion that a record is about; None if it names none."""
    text = record.get(CRITERION)
    if CRITERION not in rubric_fields.used or not isinstance(text, str) or not text:
        return None
    return Criterion(text=text)


def _group(texts: Mapping[str, str], record: Mapping[str, Any], *, rubric_fields: _RubricFields) -> str | None:
    """Return the digest of the texts that all responses to an instruction share; None if it is not known.

    A line of `localjudge label` has the digest, and the names of the texts.
    """
    if all(name in texts for name in rubric_fields.shared):
        extra_texts = {name: texts[name] for name in rubric_fields.extra}
        row = Row(
            instruction=texts["instruction"],
            responses=(),
            reference=texts.get("reference"),
            fields=extra_texts,
            reads_reference="reference" in rubric_fields.used,
        )
        return row.group
    label = record.get("label")
    if isinstance(label, Mapping) and label.get("shows") == rubric_fields.shared:
        return name_or_none(label.get("group"))
    return None


def _response_digests(
    texts: Mapping[str, str], record: Mapping[str, Any], *, rubric_fields: _RubricFields
) -> tuple[str | None, ...]:
    """Return the digest of each response: of its text, or else the one that an exported outcome has."""
    digests: list[str | None] = []
    for name, column in zip(rubric_fields.responses, rubric_fields.digest_columns, strict=True):
        if name in texts and "instruction" in texts:
            digests.append(response_digest(texts["instruction"], texts[name]))
        else:
            digests.append(name_or_none(record.get(column)))
    return tuple(digests)
