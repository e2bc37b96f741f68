"""What identifies the row of a record: a row of the input, an exported outcome or a line of labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    columns = dict(record)
    try:
        rows = list(reader.values(columns))
    except RecordError:
        rows = [_id_and_systems(columns, reader)]
    return [(_identity(values, where, used=reader.used), values) for values in rows]


def _id_and_systems(columns: dict[str, Any], reader: RowReader) -> FieldValues:
    """Return the id and the systems of a record as the values of its fields."""
    names = reader.identity(columns)
    fields = {"id": names.id}
    systems = (names.system, names.opponent)
    for field, system in zip(responses_of(reader.used).values(), systems, strict=False):
        fields[field] = system
    return FieldValues(columns, fields, others=columns)


def _identity(values: FieldValues, where: str, *, used: Sequence[str]) -> Identity:
    """Return the identity of a row of a record.

    Args:
        values: the values of the row's fields.
        where: the file and line of the record.
        used: the fields that the template of the rubric uses.
    """
    record = values.record
    fields = values.values
    responses = responses_of(used)
    texts = _texts(fields, used)
    shown_names = shared_fields(used) + list(responses)
    shown_texts = {name: texts[name] for name in shown_names if name in texts}
    hashes = hashes_of_texts(shown_texts, responses)
    columns = {**record, **values.others, **fields}
    hashes |= hashes_of_criterion_and_turn(_criterion(record, used), columns)
    group = _group(texts, record, used=used)
    systems = [name_or_none(fields.get(name)) for name in responses.values()]
    label = record.get("label")
    is_drawn_row = isinstance(label, Mapping) and "row" in label
    return Identity(
        where=where,
        id=name_or_none(fields.get("id")),
        systems=tuple(systems),
        digests=_response_digests(texts, record, used=used),
        group=group,
        texts=hashes,
        of_equal_texts=is_drawn_row and group is not None,
    )


def _texts(fields: Mapping[str, Any], used: Sequence[str]) -> dict[str, str]:
    """Return the texts of a row by the names of their fields, without those that are missing.

    Args:
        fields: the value of each field that the row has.
        used: the fields that the template of the rubric uses.
    """
    responses = responses_of(used)
    values = {"instruction": fields.get("instruction")}
    for name in responses:
        values[name] = fields.get(name)
    values["reference"] = reference_text(fields.get("reference"))
    for name in own_fields(used):
        values[name] = field_text(fields.get(name), name)
    texts: dict[str, str] = {}
    for name, text in values.items():
        if isinstance(text, str) and (text or name in responses):
            texts[name] = text
    has_response = any(name in texts for name in responses)
    if has_response and "instruction" not in used:
        texts.setdefault("instruction", "")  # as in a row without this column
    return texts


def _criterion(record: Mapping[str, Any], used: Sequence[str]) -> Criterion | None:
    """Return the criterion that a record is about; None if it names none."""
    text = record.get(CRITERION)
    if CRITERION not in used or not isinstance(text, str) or not text:
        return None
    return Criterion(text=text)


def _group(texts: Mapping[str, str], record: Mapping[str, Any], *, used: Sequence[str]) -> str | None:
    """Return the digest of the texts that all responses to an instruction share; None if it is not known.

    A line of `localjudge label` has the digest, and the names of the texts.
    """
    shared = shared_fields(used)
    if all(name in texts for name in shared):
        own_texts = {name: texts[name] for name in own_fields(used)}
        row = Row(
            instruction=texts["instruction"],
            responses=(),
            reference=texts.get("reference"),
            fields=own_texts,
            reads_reference="reference" in used,
        )
        return row.group
    label = record.get("label")
    if isinstance(label, Mapping) and label.get("shows") == shared:
        return name_or_none(label.get("group"))
    return None


def _response_digests(
    texts: Mapping[str, str], record: Mapping[str, Any], *, used: Sequence[str]
) -> tuple[str | None, ...]:
    """Return the digest of each response: of its text, or else the one that an exported outcome has."""
    columns = PAIR_DIGESTS if compares_responses(used) else RESPONSE_DIGESTS[:1]
    digests: list[str | None] = []
    for name, column in zip(responses_of(used), columns, strict=True):
        if name in texts and "instruction" in texts:
            digests.append(response_digest(texts["instruction"], texts[name]))
        else:
            digests.append(name_or_none(record.get(column)))
    return tuple(digests)
