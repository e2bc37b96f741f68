"""The numbers that statistics compute with: one for each ordered aspect, and one for each label of the others.

An aspect without an order has no mean. Each of its labels has a share: a column of 1 where the judgement has
this label, and 0 elsewhere; its expected value is the label's probability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan, sqrt

from localjudge.records import Judgement
from localjudge.rubrics.answer import Value
from localjudge.rubrics.aspect import Aspect


@dataclass(frozen=True, slots=True)
class ScoreColumn:
    """A number of each judgement.

    Attributes:
        name: the aspect, or `aspect=label`.
        aspect: the aspect.
        numbers: the number of each value of the aspect.
        weight: the weight in the mean of all columns; 0 for the share of a label.
        is_best: whether it is the share of the best label.
    """

    name: str
    aspect: str
    numbers: Mapping[Value, int]
    weight: float
    is_best: bool = field(default=False, compare=False)

    @property
    def lowest(self) -> int:
        return min(self.numbers.values())

    @property
    def highest(self) -> int:
        return max(self.numbers.values())

    def number(self, judgement: Judgement) -> int:
        """Return the number of the judgement's value.

        Raises:
            KeyError: it is not one of the aspect's values.
        """
        return self.numbers[judgement.scores[self.aspect]]

    def expected(self, judgement: Judgement) -> float | None:
        """Return the mean of the numbers, weighted by the judge's probabilities; None if it is not known."""
        if self.name == self.aspect:
            return judgement.expected.get(self.aspect)
        probabilities = judgement.probabilities.get(self.aspect)
        if probabilities is None:
            return None
        label = list(self.numbers.values()).index(1)
        return probabilities[label]

    def spread(self, judgement: Judgement) -> float:
        """Return the standard deviation of the numbers under the judge's probabilities; NaN if not known."""
        probabilities = judgement.probabilities.get(self.aspect)
        if not probabilities:
            return nan
        weighted = list(zip(probabilities, self.numbers.values(), strict=True))
        mean = sum(probability * number for probability, number in weighted)
        variance = sum(probability * (number - mean) ** 2 for probability, number in weighted)
        return sqrt(variance)


def score_columns(aspects: Mapping[str, Aspect]) -> tuple[ScoreColumn, ...]:
    """Return the columns of the aspects, in their order."""
    columns: list[ScoreColumn] = []
    for name, aspect in aspects.items():
        if aspect.numbers is not None:
            columns.append(ScoreColumn(name, name, aspect.numbers, aspect.weight))
        else:
            columns += [_share_column(name, aspect, label) for label in aspect.values.values()]
    return tuple(columns)


def _share_column(name: str, aspect: Aspect, label: Value) -> ScoreColumn:
    """Return the column of the share of a label."""
    return ScoreColumn(
        name=f"{name}={label}",
        aspect=name,
        numbers={other: int(other == label) for other in aspect.values.values()},
        weight=0.0,
        is_best=label == aspect.best,
    )


def is_share(column: str) -> bool:
    """Return whether a column of this name is the share of a label."""
    return "=" in column


def heading(column: str) -> str:
    """Return the name of a column for the head of a table; the share of a label takes two lines."""
    return column.replace("=", "=\n", 1)


def averaged(columns: Sequence[ScoreColumn]) -> tuple[ScoreColumn, ...]:
    """Return the columns whose mean is the overall score: all ordered aspects, if they have the same values.

    Empty if no aspect has an order, or if two of them have different values: such scores have no mean.
    """
    ordered = _ordered(columns)
    different_values = {str(column.numbers) for column in ordered}
    if len(different_values) != 1:
        return ()
    return ordered


def _ordered(columns: Sequence[ScoreColumn]) -> tuple[ScoreColumn, ...]:
    """Return the columns of the aspects with an order."""
    return tuple(column for column in columns if column.weight)


def deciding(columns: Sequence[ScoreColumn]) -> tuple[ScoreColumn, ...]:
    """Return the columns whose mean decides which response is better: those of the overall score, or else the
    first ordered aspect; empty if no aspect has an order."""
    of_overall = averaged(columns)
    if of_overall:
        return of_overall
    return _ordered(columns)[:1]


def overall(judgement: Judgement, columns: Sequence[ScoreColumn]) -> float:
    """Return the weighted mean of the expected scores, or of the scores where those are not known.

    Args:
        judgement: the judgement.
        columns: the columns that are averaged, one or more (`averaged`).
    """
    total = 0.0
    weights = 0.0
    for column in columns:
        score = column.expected(judgement)
        if score is None:
            score = column.number(judgement)
        total += column.weight * score
        weights += column.weight
    return total / weights
