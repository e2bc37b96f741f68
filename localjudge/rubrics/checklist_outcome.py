"""The outcome of a row with criteria of its own: the value of each criterion, and the points that were reached.

The score is that of HealthBench (arXiv 2505.08775): the points of the criteria that are met, divided by the
sum of the positive points. It is not clipped, so criteria of negative points can make it negative; HealthBench
clips the mean over rows. A level between not met and met earns its share of the points: the middle of three,
half. A criterion that failed is not a criterion that is not met: without it there is no score, but the interval
of what the score could be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from operator import mul
from typing import Any, Self

from localjudge.records import Criterion, Failure, Outcome
from localjudge.records.outcome_columns import CRITERION_COLUMNS, MASS, AnswerColumns, to_line
from localjudge.rubrics.answer import Value
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.score_column import ScoreColumn

SCORE = "score"
"""The name of a row's score."""
SCORE_COLUMN = ScoreColumn(SCORE, SCORE, {"none": 0, "all": 1}, 1.0)
"""Its column, for the scale of a mean; the score of a row can be below 0."""


@dataclass(frozen=True, slots=True)
class CriterionResult:
    """The judge's answer to one criterion.

    Attributes:
        criterion: the criterion.
        outcome: the outcome of its prompt.
        value: the value of the answer; None if the criterion could not be judged.
        share: the share of the points that the value earns, 0 to 1; None likewise.
        expected: the mean share under the judge's probabilities; None if they are not known.
        probability: the probability of the highest value, met; None likewise.
    """

    criterion: Criterion
    outcome: Outcome
    value: Value | None = None
    share: float | None = None
    expected: float | None = None
    probability: float | None = None

    @classmethod
    def from_outcome(cls, criterion: Criterion, outcome: Outcome, name: str, aspect: Aspect) -> Self:
        """Return the result of the prompt of a criterion.

        Args:
            criterion: the criterion.
            outcome: the outcome of the prompt.
            name: the name of the rubric's aspect.
            aspect: the aspect, which has an order.
        """
        if isinstance(outcome, Failure):
            return cls(criterion, outcome)
        assert aspect.numbers is not None
        low, high = min(aspect.numbers.values()), max(aspect.numbers.values())
        earned = {value: (number - low) / (high - low) for value, number in aspect.numbers.items()}
        value, shares = outcome.scores[name], outcome.probabilities.get(name)
        if shares is None:
            return cls(criterion, outcome, value, earned[value])
        expected = sum(map(mul, shares, earned.values()))  # that of the outcome is rounded
        return cls(criterion, outcome, value, earned[value], expected, shares[-1])

    @property
    def mark(self) -> str:
        """A tick, a cross, ~ between them, or ? if it could not be judged."""
        return "?" if self.share is None else {1.0: "✓", 0.0: "✗"}.get(self.share, "~")

    @property
    def points(self) -> tuple[float, float]:
        """The least and the most points that it earns: two numbers only if it could not be judged."""
        points = self.criterion.points
        if self.share is None:
            return min(0.0, points), max(0.0, points)
        return points * self.share, points * self.share

    def as_dict(self, columns: AnswerColumns) -> dict[str, Any]:
        """Return the result as an object of a row's line."""
        (aspect,), line = columns.aspects, to_line(self.outcome, columns)
        return {
            **self.criterion.model_dump(exclude={"text", "part", "parts"}),
            "criterion": self.criterion.text,
            aspect: self.value,
            "probability": self.probability,
            **{name: line[name] for name in (aspect + MASS, "error", *columns.texts, "key")},
        }


@dataclass(frozen=True, slots=True)
class Points:
    """The points of a row for some of its criteria, divided by their positive points; None without any.

    Attributes:
        low, high: the interval that contains the score, however the failed criteria would be judged.
        lowest: the score if only the criteria with negative points were met.
        expected: the mean under the judge's probabilities; None also if some are not known.
        judged: the number of criteria that were judged.
        criteria: the number of criteria.
    """

    low: float | None
    high: float | None
    lowest: float | None
    expected: float | None
    judged: int
    criteria: int

    @classmethod
    def of(cls, results: Iterable[CriterionResult]) -> Self:
        results = list(results)
        positive = sum(max(0.0, each.criterion.points) for each in results)

        def ratio(points: Iterable[float]) -> float | None:
            return round(sum(points) / positive, 6) if positive else None

        expected = [each.criterion.points * each.expected for each in results if each.expected is not None]
        return cls(
            low=ratio(each.points[0] for each in results),
            high=ratio(each.points[1] for each in results),
            lowest=ratio(min(0.0, each.criterion.points) for each in results),
            expected=ratio(expected) if len(expected) == len(results) else None,
            judged=sum(each.share is not None for each in results),
            criteria=len(results),
        )

    @property
    def score(self) -> float | None:
        """The score; None also if a criterion failed."""
        return self.low if self.judged == self.criteria else None


@dataclass(frozen=True, slots=True)
class ChecklistOutcome:
    """A row whose criteria were judged, or some of whose criteria could not be.

    Attributes:
        of_prompts: the outcome of each criterion, in their order, also where one prompt asked for all; that of
            an unreadable row.
        results: the result of each criterion; empty for an unreadable row.
    """

    of_prompts: tuple[Outcome, ...]
    results: tuple[CriterionResult, ...]

    @classmethod
    def from_prompts(cls, prompts: Iterable[Outcome], aspects: Mapping[str, Aspect]) -> Self:
        """Join the outcomes of a row's criteria, in any order."""
        parts = (part for prompt in prompts for part in prompt.of_prompts)
        ordered = sorted(parts, key=lambda each: each.criterion.part if each.criterion else 0)
        results = (
            CriterionResult.from_outcome(each.criterion, each, *aspect)
            for each, aspect in product(ordered, aspects.items())
            if each.criterion
        )
        return cls(tuple(ordered), tuple(results))

    @property
    def first(self) -> Outcome:
        """The outcome of the first criterion."""
        return self.of_prompts[0]

    @property
    def id(self) -> str:
        return self.first.id

    @property
    def systems(self) -> tuple[str | None, ...]:
        """The system that wrote the response."""
        return self.first.systems

    @property
    def response_digests(self) -> tuple[str | None, ...]:
        """The digest of the instruction and the response."""
        return self.first.response_digests

    @property
    def error(self) -> str | None:
        """Why a criterion could not be judged; None if all were."""
        errors = [each.error for each in self.of_prompts if each.error is not None]
        return "; ".join(dict.fromkeys(errors)) or None

    @property
    def points(self) -> Points:
        """The points of all criteria."""
        return Points.of(self.results)

    @property
    def by_tag(self) -> dict[str, Points]:
        """The points of the criteria with each tag."""
        tags = dict.fromkeys(tag for each in self.results for tag in each.criterion.tags)
        return {tag: Points.of(each for each in self.results if tag in each.criterion.tags) for tag in tags}

    def line(self, columns: AnswerColumns) -> dict[str, Any]:
        """Return the row as one JSON object; judged and failed rows have the same columns.

        Args:
            columns: the columns of its rubric.
        """
        first, points, columns = self.first, self.points, replace(columns, prompt=CRITERION_COLUMNS)
        return {
            "id": self.id,
            "system": first.system,
            "status": "failed" if self.error else "judged",
            "error": self.error,
            "score": points.score,
            "score_expected": points.expected,
            "score_low": points.low,
            "score_high": points.high,
            "criteria_judged": points.judged,
            "criteria": [each.as_dict(columns) for each in self.results],
            "tags": [
                {"tag": tag, "score": each.score, "score_expected": each.expected}
                for tag, each in self.by_tag.items()
            ],
            "group": first.group,
            "response_digest": first.response_digest,
            "source": first.source,
            "columns": first.columns,
        }
