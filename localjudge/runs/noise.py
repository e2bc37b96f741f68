"""The noise of a run: how far its scores move when the same engine judges rows again, in other batches.

A sample of the rows is judged again when all rows are done (`RunDirectory.measure_noise`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from localjudge.arrays import Floats, Integers
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.runs.repeated_rows import RepeatedRow
from localjudge.statistics.absolute_change import AbsoluteChange, absolute_change


@dataclass(frozen=True, slots=True)
class ColumnNoise:
    """The noise of a column of scores.

    Attributes:
        expected: whether it is that of the expected scores; False for the written values, where not all rows
            have an expected score.
        width: the width of the scale.
        change: how far the numbers moved.
    """

    expected: bool
    width: float
    change: AbsoluteChange

    @property
    def mean_share(self) -> float:
        """The mean change as a share of the scale; 0 if no row has a number."""
        if self.change.mean.value is None:
            return 0.0
        return self.change.mean.value / self.width


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a run, of the rows that were judged again.

    Attributes:
        rows: number of rows that were judged again and are compared.
        failed: number of rows that failed when they were judged again; they are in no other number.
        instructions: number of instructions of the rows.
        columns: the noise of each column of scores.
        values: number of values that the judge wrote for each aspect, of all prompts of the rows.
        changed: for each aspect, the number of values that changed.
        changed_rows: number of rows with a value that changed.
        changed_rationales: number of rows with a rationale that changed.
    """

    rows: int
    failed: int
    instructions: int
    columns: Mapping[str, ColumnNoise]
    values: int
    changed: Mapping[str, int]
    changed_rows: int
    changed_rationales: int

    @classmethod
    def from_rows(cls, rows: Iterable[RepeatedRow], columns: Sequence[ScoreColumn]) -> Self:
        """Return the noise of rows that were judged twice.

        Args:
            rows: the rows.
            columns: the numbers of a row, as `Rubric.row_columns` has them.
        """
        all_rows = list(rows)
        compared = [row for row in all_rows if not row.failed]
        prompts = 0
        changed_values: Counter[str] = Counter()
        changed_rows = 0
        changed_rationales = 0
        for row in compared:
            prompts += len(row.prompts)
            for prompt in row.prompts:
                for name, value in prompt.first.items():
                    changed_values[name] += int(prompt.again[name] != value)
            if any(prompt.first != prompt.again for prompt in row.prompts):
                changed_rows += 1
            if any(prompt.changed_texts for prompt in row.prompts):
                changed_rationales += 1
        return cls(
            rows=len(compared),
            failed=len(all_rows) - len(compared),
            instructions=len({row.group for row in compared}),
            columns={column.name: _column_noise(compared, column) for column in columns},
            values=prompts,
            changed=dict(changed_values),
            changed_rows=changed_rows,
            changed_rationales=changed_rationales,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the noise for `summary.json`; a mean without an interval says why it has none."""
        return asdict(self)


def _column_noise(rows: Sequence[RepeatedRow], column: ScoreColumn) -> ColumnNoise:
    """Return the noise of a column: that of the expected scores if all rows have one."""
    name = column.name
    width = column.highest - column.lowest
    rows_with_value = [row for row in rows if name in row.values]
    all_expected = all(name in row.expected for row in rows_with_value)
    return ColumnNoise(
        expected=all_expected,
        width=width,
        change=column_change(rows_with_value, name, expected=all_expected, width=width),
    )


def column_change(rows: Sequence[RepeatedRow], column: str, *, expected: bool, width: float) -> AbsoluteChange:
    """Return how far the numbers of a column moved, of the rows that have one.

    Args:
        rows: the rows.
        column: the column.
        expected: as for `RepeatedRow.numbers`.
        width: the width of its scale. (The score of a checklist can move further, by its negative points.)
    """
    numbered = [row for row in rows if column in row.numbers(expected=expected)]
    numbers: Floats = np.array([row.numbers(expected=expected)[column] for row in numbered], dtype=np.float64)
    numbers = numbers.reshape(-1, 2)
    first = numbers[:, 0]
    again = numbers[:, 1]
    groups: Integers
    _, groups = np.unique([row.group for row in numbered], return_inverse=True)
    largest_change = float(np.abs(again - first).max(initial=0.0))
    return absolute_change(first, again, group=groups, width=max(width, largest_change))
