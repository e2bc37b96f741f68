"""Arrays that cross modules: their types, records that have one value for each row, and labels.

A value that is not known is NaN; the module that defines an array says where it can be.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class RowArrays:
    """A dataclass with one value for each row in its arrays and lists; its other fields are of all rows."""

    __slots__ = ()

    def take(self, rows: NDArray[Any]) -> Self:
        """Return only these rows, given by number or mask. Instructions keep their numbers."""
        numbers = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        values: dict[str, Any] = {}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                values[field.name] = value[numbers]
            elif isinstance(value, list) and value:
                values[field.name] = [value[row] for row in numbers.tolist()]
        return replace(self, **values)  # type: ignore[type-var]


@dataclass(frozen=True, slots=True)
class LabelArray:
    """The m labels of one aspect: the row of the scores, the annotator and the number of each, all [m].

    `weight` has the inverse of the chance of each label's row to be drawn, up to a common factor; None if all
    chances are equal.
    """

    row: Integers
    annotator: Integers
    value: Floats
    weight: Floats | None = None

    @property
    def weights(self) -> Floats:
        """The weight of each label, 1 if all chances are equal, [m]."""
        if self.weight is None:
            return np.ones(len(self.row))
        return self.weight

    def weight_of(self, rows: Integers) -> Floats | None:
        """Return the weight of each of these rows, which have labels, [n]; None if all are equal."""
        if self.weight is None:
            return None
        weights: Floats = np.bincount(self.row, self.weight)[rows] / np.bincount(self.row)[rows]
        return weights

    def of_rows(self, chosen: Flags) -> LabelArray:
        """Return the labels of the chosen rows, a mask of the rows of the scores."""
        kept = chosen[self.row]
        weight = None if self.weight is None else self.weight[kept]
        return LabelArray(self.row[kept], self.annotator[kept], self.value[kept], weight)

    def means(self) -> tuple[Integers, Floats]:
        """Return the rows that have labels, and the mean label of each."""
        rows, index = np.unique(self.row, return_inverse=True)
        return rows, np.bincount(index, self.value) / np.bincount(index)
