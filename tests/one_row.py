"""A record as one row, for tests of what is read from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from localjudge import Failure, Row
from localjudge.rows.columns import USED_FIELDS
from localjudge.rows.record_reader import RecordReader
from localjudge.rows.row import rows_of


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
    return next(rows_of(record, source, RecordReader(columns or {}, used)))
