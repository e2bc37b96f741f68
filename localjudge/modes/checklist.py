"""One response, checked by each of the row's own criteria: in a prompt for each.

The score is that of HealthBench (arXiv 2505.08775): the points of the criteria that are met, divided by the
sum of the positive points. It is not clipped, so criteria of negative points can make it negative; HealthBench
clips the mean over rows. A level between not met and met earns its share of the points: the middle of three,
half. A criterion that failed is not a criterion that is not met: without it there is no score, but the interval
of what the score could be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import nan
from operator import mul
from typing import Any, Self

from localjudge.modes.mode import ColumnMean, MeanTable, Mode, RowDetails, SystemCounts
from localjudge.modes.row_outcome import (
    EXPECTED,
    LOWEST,
    MOST_TAGS,
    TAG,
    VALUE,
    Join,
    ListedAnswer,
    RowOutcome,
)
from localjudge.records import Criterion, Failure, Outcome, Row
from localjudge.records.outcome_columns import CRITERION_COLUMNS, MASS, AnswerColumns, arrow_kinds, to_line
from localjudge.rubrics.answer import Value
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.system.quantities import counted

SCORE = "score"
"""The name of a row's score."""
SCORE_COLUMN = ScoreColumn(SCORE, SCORE, {"none": 0, "all": 1}, 1.0)
"""Its column, for the scale of a mean; the score of a row can be below 0."""
_MARKS = 16
"""Largest number of criteria that a list shows as marks."""


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
        """A tick for a wanted answer (met, or negative points not met), a cross, ~ between, ? if it failed."""
        if self.share is None:
            return "?"
        return {1.0: "✓✗", 0.0: "✗✓"}.get(self.share, "~~")[self.criterion.points < 0]

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

    @property
    def in_words(self) -> str:
        """The score, or why there is none."""
        if self.low is None:
            return "– (no criterion has positive points)"  # noqa: RUF001
        if self.score is None:
            judged = f"{self.judged:,} of {self.criteria:,} criteria were judged"
            return f"– ({judged}: it could be {self.low:.2f} to {self.high:.2f})"  # noqa: RUF001
        expected = "" if self.expected is None else f"   expected {self.expected:z.2f}"
        return f"{self.score:z.2f}{expected}"


@dataclass(frozen=True, slots=True)
class ChecklistOutcome(RowOutcome):
    """A row whose criteria were judged, or some of whose criteria could not be.

    Attributes:
        results: the result of each criterion; empty for an unreadable row.
    """

    results: tuple[CriterionResult, ...]

    @classmethod
    def from_prompts(cls, prompts: Iterable[Outcome], aspects: Mapping[str, Aspect]) -> Self:
        """Join the outcomes of a row's criteria, in any order."""
        ordered = sorted(prompts, key=lambda each: each.criterion.part if each.criterion else 0)
        results = (
            CriterionResult.from_outcome(each.criterion, each, *aspect)
            for each, aspect in product(ordered, aspects.items())
            if each.criterion
        )
        return cls(tuple(ordered), aspects, tuple(results))

    @property
    def reasons(self) -> Sequence[str]:
        """The reason of each criterion that failed."""
        return [each.reason for each in self.prompts if isinstance(each, Failure)]

    @property
    def points(self) -> Points:
        """The points of all criteria."""
        return Points.of(self.results)

    @property
    def by_tag(self) -> dict[str, Points]:
        """The points of the criteria with each tag."""
        tags = dict.fromkeys(tag for each in self.results for tag in each.criterion.tags)
        return {tag: Points.of(each for each in self.results if tag in each.criterion.tags) for tag in tags}

    @property
    def verdicts(self) -> Mapping[str, Value | None]:
        """Nothing: each criterion has a verdict of its own."""
        return {}

    def numbers(self) -> Iterator[tuple[str, str, float]]:
        """Yield the numbers of the score of the row, and of the criteria with each tag."""
        tags = {TAG + tag: points for tag, points in self.by_tag.items()}
        for name, points in {SCORE: self.points, **tags}.items():
            yield LOWEST, name, points.lowest or 0.0
            for kind, number in ((VALUE, points.score), (EXPECTED, points.expected)):
                if number is not None and self.error is None:
                    yield kind, name, number

    def cells(self) -> Mapping[str, str]:
        """Return the score and the mark of each criterion; of many, the number of those that are met."""
        score, marks = self.points.score, "".join(each.mark for each in self.results)
        many = f"{marks.count('✓')} of {len(marks)} ✓"
        return {
            SCORE: "–" if score is None else f"{score:z.2f}",  # noqa: RUF001
            "criteria": marks if len(marks) <= _MARKS else many,
        }

    def heading(self, prompt: Outcome) -> str:
        asked = prompt.criterion
        if asked is None:
            return ""
        (mark,) = (each.mark for each in self.results if each.outcome is prompt)
        return f"{mark} {asked.points:+g} · {f'{asked.name}: ' if asked.name else ''}{asked.text}"

    def result_lines(self) -> Iterator[str]:
        if self.results:
            yield f"score {self.points.in_words}"
            yield from (f"{tag} {points.in_words}" for tag, points in self.by_tag.items())

    def list_answers(self) -> Sequence[ListedAnswer]:
        return RowOutcome.list_answers(self) if self.results else []

    @property
    def overall(self) -> float:
        score = self.points.score
        return nan if score is None else score

    def line(self, columns: AnswerColumns) -> dict[str, Any]:
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


class ChecklistDetails(RowDetails[ChecklistOutcome]):
    """The number of criteria that were judged."""

    def __init__(self) -> None:
        self._criteria = 0

    def add(self, row: ChecklistOutcome) -> None:
        self._criteria += len(row.judged)

    def counted(self, judged: int, failed: int, orders: int) -> str:
        criteria = counted(self._criteria, "criterion", "criteria")
        return f"{counted(judged, 'row')} judged, {failed:,} failed ({criteria} judged)"


class ChecklistMode(Mode[ChecklistOutcome]):
    name = "checklist"
    judges = "checks one response by criteria of the row"
    features = frozenset({"score", "criteria"})
    most_aspects = 1
    prompt_columns = CRITERION_COLUMNS
    list_columns = (SCORE, "criteria")
    list_words = ("row", "rows", "A criterion is")
    statistics = "points"
    options_for = "is for runs of one score for each row; these check criteria"

    def reserves(self, name: str) -> bool:
        own = self.column_names(AnswerColumns({}))
        return super().reserves(name) or name in {*CRITERION_COLUMNS, *own, "name", "probability"}

    def refusal(self, aspect: Aspect) -> str | None:
        unordered = "has no order, so it earns no points; give ordered = true"
        return super().refusal(aspect) or (unordered if aspect.numbers is None else None)

    def prompt_rows(self, rows: Iterable[Row | Failure]) -> Iterator[Row | Failure]:
        """Yield a row for each criterion of a row."""
        for row in rows:
            if isinstance(row, Row):
                yield from (replace(row, criteria=(criterion,)) for criterion in row.criteria)
            else:
                yield row

    def join(self, aspects: Mapping[str, Aspect], prompts: int) -> Join[ChecklistOutcome]:
        return Join(lambda parts: ChecklistOutcome.from_prompts(parts, aspects), None)

    def row_columns(self, aspects: Mapping[str, Aspect]) -> tuple[ScoreColumn, ...]:
        return (SCORE_COLUMN,)

    def details(self, aspects: Mapping[str, Aspect]) -> ChecklistDetails:
        return ChecklistDetails()

    def mean_table(self, systems: Mapping[str, SystemCounts], columns: Sequence[ScoreColumn]) -> MeanTable:
        """The mean scores, clipped to 0 to 1, as by HealthBench; the score of a row is not."""
        own = [counts.columns[SCORE] for counts in systems.values()]
        rows = Counter[str]()
        for counts in systems.values():
            rows.update({name: each.rows for name, each in counts.columns.items() if name.startswith(TAG)})
        tags = [name for name, _ in rows.most_common()]
        more = len(tags) - MOST_TAGS
        of_tags = {
            name.removeprefix(TAG): [_clipped(counts.columns[name].mean) for counts in systems.values()]
            for name in tags[:MOST_TAGS]
        }
        return MeanTable(
            "Mean scores of all rows: points met of the positive points, clipped to 0 to 1",
            "system",
            "n",
            {"score": [_clipped(each.mean) for each in own], "expected": [*map(_clipped_expected, own)]},
            unscored=SCORE,
            tags=(f"tag ({more} more)" if more > 0 else "tag", of_tags),
        )

    def types(self, columns: AnswerColumns) -> dict[str, Any]:
        import pyarrow

        text, real = pyarrow.string(), pyarrow.float64()
        ((aspect, kind),) = columns.aspects.items()
        asked = {"criterion": text, "name": text, "points": real, "tags": pyarrow.list_(text)}
        asked |= {aspect: arrow_kinds()[kind], "probability": real, aspect + MASS: real, "error": text}
        asked |= dict.fromkeys((*columns.texts, "key"), text)
        types = dict.fromkeys(("score", "score_expected", "score_low", "score_high"), real)
        scores = {"tag": text, "score": real, "score_expected": real}
        lists = {"criteria": asked, "tags": scores}
        types |= {name: pyarrow.list_(pyarrow.struct(each)) for name, each in lists.items()}
        return types | {"criteria_judged": pyarrow.int64()}


def _clipped(mean: float | None) -> float | None:
    return None if mean is None else min(1.0, max(0.0, mean))


def _clipped_expected(column: ColumnMean) -> float | None:
    """Return the mean of the expected scores, clipped; None unless all rows have one."""
    return _clipped(column.expected) if column.is_measured else None


CHECKLIST = ChecklistMode()
