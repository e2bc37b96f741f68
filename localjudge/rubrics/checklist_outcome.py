"""The outcome of a row with criteria of its own: the value of each criterion, and the points that were reached.

The score is that of HealthBench (arXiv 2505.08775): the points of the criteria that are met, divided by the
sum of the positive points. It is not clipped, so criteria of negative points can make it negative; HealthBench
clips the mean over rows. A level between not met and met earns its share of the points: the middle of three,
half. A criterion that failed is not a criterion that is not met: without it there is no score, but the interval
of what the score could be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import mul
from typing import Any, Self

from localjudge.records import Criterion, Failure, Judgement, Outcome
from localjudge.records.outcome_columns import MASS, AnswerColumns
from localjudge.rubrics.answer import Value
from localjudge.rubrics.aspect import Aspect

SCORE = "score"
"""The name of a row's score."""


@dataclass(frozen=True, slots=True)
class CriterionResult:
    """The judge's answer to one criterion.

    Attributes:
        criterion: the criterion.
        value: the value of the answer; None if the criterion could not be judged.
        share: the share of the points that the value earns, 0 to 1; None likewise.
        expected: the mean share under the judge's probabilities; None if they are not known.
        probability: the probability of the highest value, met; None likewise.
        mass: as in a judgement.
        outcome: the outcome of its prompt.
    """

    criterion: Criterion
    value: Value | None
    share: float | None
    expected: float | None
    probability: float | None
    mass: float | None
    outcome: Outcome

    @classmethod
    def from_outcome(cls, outcome: Outcome, name: str, aspect: Aspect) -> Self:
        """Return the result of a prompt.

        Args:
            outcome: the outcome of the prompt, which has a criterion.
            name: the name of the rubric's aspect.
            aspect: the aspect, which has an order.
        """
        criterion, numbers = outcome.criterion, aspect.numbers
        assert criterion is not None
        assert numbers is not None
        if isinstance(outcome, Failure):
            return cls(criterion, None, None, None, None, None, outcome)
        low, reach = min(numbers.values()), max(numbers.values()) - min(numbers.values())
        value, expected, shares = (
            outcome.scores[name],
            outcome.expected.get(name),
            outcome.probabilities.get(name),
        )
        if shares is not None:  # the expected value is rounded
            expected = sum(map(mul, shares, numbers.values()))
        return cls(
            criterion=criterion,
            value=value,
            share=(numbers[value] - low) / reach,
            expected=None if expected is None else (expected - low) / reach,
            probability=None if shares is None else shares[-1],
            mass=outcome.mass.get(name),
            outcome=outcome,
        )

    @property
    def mark(self) -> str:
        """A tick, a cross, ~ between them, or ? if it could not be judged."""
        return "?" if self.share is None else {1.0: "✓", 0.0: "✗"}.get(self.share, "~")

    def as_dict(self, columns: AnswerColumns) -> dict[str, Any]:
        """Return the result as an object of a row's line."""
        (aspect,) = columns.aspects
        judged = self.outcome if isinstance(self.outcome, Judgement) else None
        return {
            **self.criterion.model_dump(exclude={"text", "part", "parts"}),
            "criterion": self.criterion.text,
            aspect: self.value,
            "probability": self.probability,
            aspect + MASS: self.mass,
            "error": self.outcome.error,
            **{text: judged and judged.texts[text] for text in columns.texts},
            "key": self.outcome.key,
        }


@dataclass(frozen=True, slots=True)
class Points:
    """The points of a row for some of its criteria.

    Attributes:
        score: the points reached by the values, divided by the positive points; None if a criterion failed, or
            no points are positive.
        expected: the same of the judge's probabilities; None also if some are not known.
        low, high: the interval of what the score could be, whatever the criteria that failed would be judged.
        judged: the number of criteria that were judged.
        criteria: the number of criteria.
    """

    score: float | None
    expected: float | None
    low: float | None
    high: float | None
    judged: int
    criteria: int

    @classmethod
    def of(cls, results: Iterable[CriterionResult]) -> Self:
        results = list(results)
        positive = sum(max(0.0, each.criterion.points) for each in results)
        judged = [each for each in results if each.share is not None]
        failed = [each.criterion.points for each in results if each.share is None]
        known, sums = sum(each.criterion.points * (each.share or 0.0) for each in judged), None
        if None not in (shares := [each.expected for each in results]):
            sums = sum(
                each.criterion.points * (share or 0.0) for each, share in zip(results, shares, strict=True)
            )
        if not positive:
            return cls(None, None, None, None, len(judged), len(results))
        return cls(
            score=None if failed else round(known / positive, 6),
            expected=None if sums is None else round(sums / positive, 6),
            low=round((known + sum(min(0.0, points) for points in failed)) / positive, 6),
            high=round((known + sum(max(0.0, points) for points in failed)) / positive, 6),
            judged=len(judged),
            criteria=len(results),
        )


@dataclass(frozen=True, slots=True)
class ChecklistOutcome:
    """A row whose criteria were judged, or some of whose criteria could not be.

    Attributes:
        of_prompts: the outcome of each criterion, in their order; that of an unreadable row.
        results: the result of each criterion; empty for an unreadable row.
    """

    of_prompts: tuple[Outcome, ...]
    results: tuple[CriterionResult, ...]

    @classmethod
    def from_prompts(cls, prompts: Iterable[Outcome], aspects: Mapping[str, Aspect]) -> Self:
        """Join the outcomes of a row's criteria, in any order."""
        ordered = sorted(prompts, key=lambda each: each.criterion.part if each.criterion else 0)
        ((name, aspect),) = aspects.items()
        asked = [each for each in ordered if each.criterion is not None]
        return cls(tuple(ordered), tuple(CriterionResult.from_outcome(each, name, aspect) for each in asked))

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
        first, points = self.first, self.points
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
