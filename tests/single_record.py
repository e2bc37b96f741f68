"""The row of one record, for tests of what is read in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from localjudge import Row
from localjudge.records import Failure
from localjudge.rows.columns import USED_FIELDS
from localjudge.rows.record_reader import RecordReader
from localjudge.rows.row import rows_of


def as_row(
    record: Any, source: str, columns: Mapping[str, str] | None = None, used: Sequence[str] = USED_FIELDS
) -> Row | Failure:
    """Return the row of a record, or a failure with the reason."""
    return next(rows_of(record, source, RecordReader(columns or {}, used)))
