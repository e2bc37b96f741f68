"""The numbers of rows that statistics compute with, as columns."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from localjudge.arrays import Floats


@dataclass(frozen=True, slots=True)
class _NumberColumn:
    """The numbers of the m rows that have one: the index of each row, from 0, and its number, all [m]."""

    rows: array[int] = field(default_factory=lambda: array("i"))
    values: array[float] = field(default_factory=lambda: array("d"))


class RowNumbers:
    """The numbers of n rows by kind and column; NaN where a row has none. A row can have any of the columns."""

    def __init__(self) -> None:
        self._rows = 0
        self._columns: defaultdict[tuple[str, str], _NumberColumn] = defaultdict(_NumberColumn)

    def add(self, numbers: Iterable[tuple[str, str, float]]) -> None:
        """Add the numbers of the next row: the kind, the column and the number of each."""
        for kind, name, number in numbers:
            column = self._columns[kind, name]
            column.rows.append(self._rows)
            column.values.append(number)
        self._rows += 1

    def names(self, kind: str) -> list[str]:
        """Return the columns with numbers of this kind, in the order in which the rows have them."""
        return [name for kind_of_column, name in self._columns if kind_of_column == kind]

    def count(self, kind: str, name: str) -> int:
        """Return the number of rows with a number in a column."""
        if (kind, name) not in self._columns:
            return 0
        return len(self._columns[kind, name].values)

    def column(self, kind: str, name: str) -> Floats:
        """Return the number of each row, [n]."""
        numbers = np.full(self._rows, np.nan)
        if (kind, name) in self._columns:
            column = self._columns[kind, name]
            numbers[np.asarray(column.rows)] = column.values
        return numbers

    def table(self, kinds: Sequence[str], names: Sequence[str]) -> Floats:
        """Return the numbers of these columns of each kind, [n, kinds times columns]."""
        columns = []
        for kind in kinds:
            columns += [self.column(kind, name) for name in names]
        return np.column_stack(columns)
