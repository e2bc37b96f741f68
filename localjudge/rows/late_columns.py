"""Columns that appear first in later records, and would have been fields if the first records had had them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from localjudge.rows.columns import MESSAGES, folded, usual_names
from localjudge.rows.reading import Reading
from localjudge.system.quantities import counted


def has_value(value: Any) -> bool:
    """Return whether a record has a value in a column: an empty text, list or object is none."""
    return value not in (None, "", [], {})


class LateColumns:
    """The later columns of the files of a command.

    Args:
        used: the fields that the rubric's template uses.

    Attributes:
        counts: the number of records with each such column and the field that it would have been.
    """

    def __init__(self, used: Sequence[str]) -> None:
        self._used = used
        self.counts: Counter[tuple[str, str]] = Counter()
        self._known: set[Any] = set()
        self._field_of: dict[str, str] = {}
        self._late: dict[Any, str] = {}
        self.first: dict[tuple[str, str], str] = {}

    def begin(self, reading: Reading, known: Iterable[str]) -> None:
        """Begin a file.

        Args:
            reading: its reading; a field without a source has been looked for.
            known: the columns of which its first records have values, among which it was.
        """
        self._known, self._late = set(known), {}
        self._field_of = {}
        for name, names in usual_names(self._used).items():
            if name != MESSAGES and name not in reading.fields and reading.shape.usual:
                self._field_of |= dict.fromkeys(names, name)

    def add(self, record: Mapping[Any, Any], where: str) -> None:
        """Count the late columns of a record."""
        if not record.keys() <= self._known:
            for column in record.keys() - self._known:
                self._known.add(column)
                name = self._field_of.get(folded(column)) if isinstance(column, str) else None
                if name is not None:
                    self._late[column] = name
        for column, name in self._late.items():
            if has_value(record.get(column)):
                self.counts[column, name] += 1
                self.first.setdefault((column, name), where)

    @property
    def lines(self) -> list[str]:
        """A line for each late column, with the flag that makes it a field."""
        lines = []
        for (column, name), count in self.counts.items():
            where = f"{counted(count, 'record')} from {self.first[column, name]} on"
            lines.append(
                f"{column!r} has values in {where}; no field reads it, because the first records have none; "
                f"to read it, begin anew with --column {name}={column}"
            )
        return lines
