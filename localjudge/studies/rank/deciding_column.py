"""The column that decides the order of the systems of a ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from localjudge.errors import UsageError
from localjudge.matching.scores import ScoreKind, Scores
from localjudge.records.outcome_columns import OVERALL
from localjudge.rubrics.score_column import averaged, deciding


@dataclass(frozen=True, slots=True)
class DecidingColumn:
    """The column that decides, and what it follows from.

    Attributes:
        name: the column.
        is_default: whether nobody named it.
        ordered_aspects: the aspects with an order; empty if the column is the share of a label.
        weights: the weight of each ordered aspect in the overall mean; empty if their values differ, so that
            there is none.
        integer_aspects: the aspects whose integers are compared, because some judgements have no expected
            scores.
    """

    name: str
    is_default: bool
    ordered_aspects: Sequence[str]
    weights: Mapping[str, float]
    integer_aspects: Sequence[str]

    @classmethod
    def of(cls, scores: Scores, kind: ScoreKind, by: str | None) -> DecidingColumn:
        """Return the column that decides.

        Args:
            scores: the scores of all systems.
            kind: the kind of scores.
            by: the column that is named; None for the default.

        Raises:
            UsageError: there is no such column, or some row has no score of this kind.
        """
        columns = list(scores.table(kind))
        integer_aspects: list[str] = []
        if kind == "expected" and not scores.calibrated:
            integer_aspects = [name for name in scores.aspects if name in scores.without_expected]
        return cls(
            name=chosen_column(by, columns, default_column(scores, columns)),
            is_default=by is None,
            ordered_aspects=[column.name for column in scores.columns if column.weight],
            weights={column.name: column.weight for column in averaged(scores.columns)},
            integer_aspects=integer_aspects,
        )


def chosen_column(by: str | None, columns: Sequence[str], default: str) -> str:
    """Return the column that is named, or the default.

    Raises:
        UsageError: there is no such column.
    """
    if by is None:
        return default
    if by not in columns:
        raise UsageError(f"`by` {by}: give one of {', '.join(columns)}")
    return by


def default_column(scores: Scores, columns: Sequence[str]) -> str:
    """Return the column that decides the order of the systems if none is named."""
    if OVERALL in columns:
        return OVERALL
    ordered = deciding(scores.columns)
    if ordered:
        return ordered[0].name
    return columns[0]
