"""The counts of one system's rows, and the means of their numbers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from localjudge.modes.row_outcome import RowOutcome, Side

Classes = Mapping[str, Sequence[Sequence[float]]]
"""The numbers in each class of each column, for a table of frequencies."""


@dataclass(slots=True)
class ColumnMean:
    """The mean of a number, and of its expected values, over the rows that have one."""

    rows: int = 0
    total: float = 0.0
    expected_rows: int = 0
    expected_total: float = 0.0

    @property
    def mean(self) -> float | None:
        """The mean; None if no row has the number."""
        return round(self.total / self.rows, 4) if self.rows else None

    @property
    def expected(self) -> float | None:
        """The mean of the expected values; None if no row has one."""
        return round(self.expected_total / self.expected_rows, 4) if self.expected_rows else None

    @property
    def is_measured(self) -> bool:
        """Whether every row with the number has its expected value."""
        return self.rows == self.expected_rows


@dataclass(slots=True)
class SystemCounts:
    """The rows of one system.

    Attributes:
        judged: number of rows without a failure.
        failed: number of the others.
        cut: number of rationales that were cut at their limit.
        truncated: number of prompts whose response was cut to fit the model's context.
        columns: the mean of each number.
        answers: number of answers by their column and number.
    """

    judged: int = 0
    failed: int = 0
    cut: int = 0
    truncated: int = 0
    columns: defaultdict[str, ColumnMean] = field(default_factory=lambda: defaultdict(ColumnMean))
    answers: Counter[tuple[str, float]] = field(default_factory=Counter)

    def add(self, row: RowOutcome, side: Side) -> None:
        """Count a row, and its numbers for this system."""
        for prompt in row.judged:
            self.cut += prompt.rationale_cut
            self.truncated += prompt.candidate_cut > 0
        if row.error is not None:
            self.failed += 1
            return
        self.judged += 1
        for name, value in side.values.items():
            column = self.columns[name]
            column.rows += 1
            column.total += value
            if (expected := side.expected.get(name)) is not None:
                column.expected_rows += 1
                column.expected_total += expected

    def unscored(self, column: str) -> int:
        """Return the number of judged rows without this number."""
        return self.judged - self.columns[column].rows

    def shares(self, column: str, classes: Sequence[Sequence[float]]) -> list[float]:
        """Return the share of the answers in each class of a column, by the numbers of the classes."""
        counts = [sum(self.answers[column, number] for number in numbers) for numbers in classes]
        return [count / max(1, sum(counts)) for count in counts]


@dataclass(frozen=True, slots=True)
class MeanTable:
    """The numbers of systems as a table.

    Attributes:
        title: what is above it.
        systems: the heading of the systems.
        rows: the heading of the numbers of rows.
        columns: the number of each system, by the heading of the column.
        unscored: the column whose missing numbers are counted; None to count none.
        tags: a second table, of the same systems: its heading and the numbers of each system in each row.
    """

    title: str
    systems: str
    rows: str
    columns: Mapping[str, Sequence[float | None]]
    unscored: str | None = None
    tags: tuple[str, Mapping[str, Sequence[float | None]]] | None = None
