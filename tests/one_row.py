"""A record as one row, and files that are checked, for tests of what is read from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from localjudge import Failure, Row
from localjudge.errors import RowError
from localjudge.rows.columns import USED_FIELDS, ReadingFlags
from localjudge.rows.decision import decide
from localjudge.rows.inputs import Inputs
from localjudge.rows.program_rows import checked_row, plain_record
from localjudge.rows.record import RecordError
from localjudge.rows.row import Identity, RowReader, unreadable


def as_row(
    record: Any,
    source: str,
    columns: Mapping[str, str] | None = None,
    used: Sequence[str] = USED_FIELDS,
) -> Row | Failure:
    """Return a record of one row as a row, or as a failure with the reason.

    Args:
        record: columns by name; or the reason why there is no record; or a row, which is checked.
        source: its place in the input.
        columns: the column of each field whose column has a custom name.
        used: the fields that the rubric's template uses.
    """
    if isinstance(record, Row):
        return checked_row(record, source, used)
    if isinstance(record, RowError):
        return unreadable(source, record, Identity())
    flags = ReadingFlags.of(columns or {})
    values = plain_record(record)
    if isinstance(values, RowError):
        return unreadable(source, values, Identity())
    try:
        reading = decide([values], flags, used)
    except RecordError as error:
        return unreadable(source, RowError(str(error), values, error.problem), Identity())
    return next(RowReader(reading, used, flags.columns).rows(values, source))


def checked_inputs(
    names: Sequence[str], columns: Mapping[str, str], used: Sequence[str], shown: Sequence[str] | None = None
) -> Inputs:
    """Return files of rows whose first records have been checked, as a command opens them."""
    inputs = Inputs(names, columns, used, shown=shown)
    inputs.check()
    return inputs
