"""Rows of a Python program: dicts, `Row`s, tables and datasets, read by one reading as a file is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from localjudge.errors import RowError, RowProblem, UsageError
from localjudge.records import Failure, Row
from localjudge.rows.columns import CRITERION, USED_FIELDS, ReadingFlags, own_fields
from localjudge.rows.decision import decide
from localjudge.rows.media import media_column
from localjudge.rows.missing import missing_fields_reason
from localjudge.rows.record import FIRST_RECORDS, RecordError, check_text
from localjudge.rows.row import DEEPEST, Identity, RowReader, field_text, text_of_value, unreadable, writable
from localjudge.rows.table_records import plain, table_records


def rows_of_program(
    rows: object, used: Sequence[str] = USED_FIELDS, *, one_each: bool = False
) -> Iterator[Row | Failure]:
    """Yield rows from dicts, `Row`s, a pandas, Polars or Arrow table, or a `datasets.Dataset`.

    Their reading is decided by the first hundred of them; that of an iterator by its first one.

    Args:
        rows: the rows.
        used: the fields that the rubric's template uses.
        one_each: whether a record that is several rows becomes a failure, so that each record has one outcome.

    Raises:
        UsageError: the argument is a single row, or not a collection of rows.
    """
    records = table_records(rows)
    if records is None and isinstance(rows, Mapping | Row):
        raise UsageError("rows: is a single row, or several splits; write score([row]) or score(rows['test'])")
    if records is None and (isinstance(rows, str | bytes) or not isinstance(rows, Iterable)):
        kind = type(rows).__name__
        raise UsageError(f"rows: a {kind}; give dicts, Rows, a table, or the rows of a file: read_rows([FILE])")
    if records is None:
        assert isinstance(rows, Iterable)
        count = 1 if isinstance(rows, Iterator) else FIRST_RECORDS
        return _read(iter(rows), used, count, one_each=one_each)
    return _read(iter(records), used, FIRST_RECORDS, one_each=one_each)


def _read(
    records: Iterator[Any], used: Sequence[str], count: int, *, one_each: bool
) -> Iterator[Row | Failure]:
    """Yield the rows of records, of which the first ones decide the reading."""
    first = [plain_record(record) for record in islice(records, count)]
    reader: RowReader | None = None
    reason = ""
    dicts = [record for record in first if isinstance(record, dict)]
    if dicts:
        try:
            reader = RowReader(decide(dicts, ReadingFlags(), used), used, {})
        except RecordError as error:
            reason = str(error)
    for number, record in enumerate(chain(first, map(plain_record, records)), 1):
        source = f"row {number}"
        if isinstance(record, Row):
            yield checked_row(record, source, used)
        elif isinstance(record, Failure):
            yield record
        elif isinstance(record, RowError):
            yield unreadable(source, record, Identity())
        elif not isinstance(record, dict):
            yield unreadable(
                source, RowError(f"a {type(record).__name__}; a row is a dict or a Row"), Identity()
            )
        else:
            if reader is None and not reason:  # the first record was no dict
                try:
                    reader = RowReader(decide([record], ReadingFlags(), used), used, {})
                except RecordError as error:
                    reason = str(error)
            if reader is None:
                yield unreadable(source, RowError(reason, record, RowProblem.FORM), _identity(record))
                continue
            found = list(reader.rows(record, source))
            if one_each and len(found) > 1:
                problem = f"holds {len(found)} responses; send a row for each"
                error_value = RowError(problem, record, RowProblem.VALUE)
                yield unreadable(source, error_value, reader.identity(record))
                continue
            yield from found


def plain_record(record: Any) -> Any:
    """Return a dict with values of Python alone, or why it has none; anything else as it is."""
    if not isinstance(record, Mapping):
        return record
    try:
        return {key: plain(value) for key, value in record.items()}
    except RecursionError:
        return RowError(f"its values are nested more than {DEEPEST} deep", problem=RowProblem.TOO_LARGE)


def _identity(record: Mapping[str, Any]) -> Identity:
    """Return the id and the system of a record that has no reading, by the names of these fields."""
    names = [text_of_value(record.get(name)) for name in ("id", "system")]
    return Identity(*[name if isinstance(name, str) else None for name in names])


def checked_row(row: Row, source: str, used: Sequence[str]) -> Row | Failure:
    """Return a `Row` of a program with the rubric's own fields, or a failure with the reason.

    Args:
        row: the row.
        source: its place, if it has none.
        used: the fields that the rubric's template uses.
    """
    source = row.source or source
    try:
        return _checked(row, source, used)
    except RecordError as error:
        record = {**row.columns, **row.fields, "instruction": row.instruction}
        return unreadable(
            source, RowError(str(error), record, error.problem), Identity(row.id or None, row.system)
        )


def _checked(row: Row, source: str, used: Sequence[str]) -> Row:
    """Return a row whose texts can be written.

    Raises:
        RecordError: they cannot, or the row lacks a field.
    """
    columns = {name: plain(value) for name, value in row.columns.items()}
    given = {**columns, **row.fields}
    own = {name: text for name in own_fields(used) if (text := field_text(given.get(name), name)) is not None}
    missing = [name for name in own_fields(used) if name not in own]
    if CRITERION in used and not row.criteria:
        missing.append(CRITERION)
    if missing:
        raise RecordError(missing_fields_reason(missing, given, used, {}), RowProblem.MISSING)
    texts = {
        "instruction": row.instruction,
        **{f"text of response {n}": each.text for n, each in enumerate(row.responses, 1)},
    }
    optional = {
        "reference": row.reference,
        "id": row.id or None,
        "system": row.system,
        "opponent": row.opponent,
    }
    known = {name: text for name, text in optional.items() if text is not None}
    for name, text in (texts | known | own | {"source": source}).items():
        check_text(text, f"the {name}")
    others = {name: value for name, value in columns.items() if name not in own}
    medium = media_column(others)
    if medium is not None:
        reason = f"has an image, sound or a video in {medium!r}; only text is judged"
        raise RecordError(reason, RowProblem.MEDIA)
    return replace(
        row,
        fields=own,
        id=row.id or source,
        source=source,
        columns=writable(others),
        reads_reference="reference" in used,
        reference=row.reference or None,
        criteria=row.criteria if CRITERION in used else (),
    )
