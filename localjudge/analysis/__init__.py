"""Measure how reliable a judge is, from its runs: agreement, ranking, juries, calibration.

    scores → labels, texts → agreement, ranking, jury, calibration → tables and JSON

All intervals resample instructions, not rows, because rows with the same instruction are not independent.
A statistic that cannot be computed, because scores are constant, rows too few or labels missing, is undefined:
None, and never a number. The statistics come from SciPy and scikit-learn, which are imported when used.
"""

from dataclasses import fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Columns:
    """A dataclass of columns: its arrays and lists have a value for each row, its other fields do not."""

    __slots__ = ()

    def take(self, rows: NDArray[Any]) -> Self:
        """Return only these rows, given by number or mask. Instructions keep their numbers."""
        chosen = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        taken: dict[str, Any] = {}
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if isinstance(value, np.ndarray):
                taken[each.name] = value[chosen]
            elif isinstance(value, list) and value:
                taken[each.name] = [value[row] for row in chosen.tolist()]
        return replace(self, **taken)  # type: ignore[type-var]
