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
from math import nan
from typing import Any, Self

from localjudge.modes.mode import (
    ColumnMean,
    ListWords,
    MeanTable,
    Mode,
    RowCriteria,
    RowDetails,
    SystemCounts,
    TagMeans,
)
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
from localjudge.system.quantities import UNDEFINED_SIGN, counted

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
        shares = _shares_of_points(aspect)
        value = outcome.scores[name]
        probabilities = outcome.probabilities.get(name)
        if probabilities is None:
            return cls(criterion, outcome, value, shares[value])
        expected = 0.0  # computed here, since that of the outcome is rounded
        for probability, share in zip(probabilities, shares.values(), strict=True):
            expected += probability * share
        return cls(criterion, outcome, value, shares[value], expected, probability=probabilities[-1])

    @property
    def mark(self) -> str:
        """✓ for a wanted answer, ✗ for an unwanted one, ~ between, ? if it failed.

        Wanted is that a criterion is met; if it has negative points, that it is not met.
        """
        if self.share is None:
            return "?"
        if 0 < self.share < 1:
            return "~"
        is_met = self.share == 1
        is_wanted = is_met if self.criterion.points >= 0 else not is_met
        return "✓" if is_wanted else "✗"

    @property
    def points(self) -> tuple[float, float]:
        """The least and the most points that it earns: two numbers only if it could not be judged."""
        points = self.criterion.points
        if self.share is None:
            return min(0.0, points), max(0.0, points)
        return points * self.share, points * self.share

    def as_dict(self, columns: AnswerColumns) -> dict[str, Any]:
        """Return the result as an object of a row's line."""
        (aspect,) = columns.aspects
        result = self.criterion.model_dump(exclude={"text", "part", "parts"})
        result["criterion"] = self.criterion.text
        result[aspect] = self.value
        result["probability"] = self.probability
        line = to_line(self.outcome, columns)
        for name in (aspect + MASS, "error", *columns.texts, "key"):
            result[name] = line[name]
        return result


def _shares_of_points(aspect: Aspect) -> dict[Value, float]:
    """Return the share of a criterion's points that each value of an aspect earns, from 0 to 1."""
    assert aspect.numbers is not None  # an aspect of a checklist has an order
    low = min(aspect.numbers.values())
    high = max(aspect.numbers.values())
    return {value: (number - low) / (high - low) for value, number in aspect.numbers.items()}


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
    def of(cls, results: Sequence[CriterionResult]) -> Self:
        """Add up the points of some criteria of a row."""
        judged = sum(result.share is not None for result in results)
        positive = sum(max(0.0, result.criterion.points) for result in results)
        if not positive:
            return cls(low=None, high=None, lowest=None, expected=None, judged=judged, criteria=len(results))
        expected = [
            result.criterion.points * result.expected for result in results if result.expected is not None
        ]
        is_expected_known = len(expected) == len(results)
        return cls(
            low=_ratio([result.points[0] for result in results], positive),
            high=_ratio([result.points[1] for result in results], positive),
            lowest=_ratio([min(0.0, result.criterion.points) for result in results], positive),
            expected=_ratio(expected, positive) if is_expected_known else None,
            judged=judged,
            criteria=len(results),
        )

    @property
    def score(self) -> float | None:
        """The score; None also if a criterion failed."""
        if self.judged < self.criteria:
            return None
        return self.low

    @property
    def in_words(self) -> str:
        """The score, or why there is none."""
        if self.low is None:
            return f"{UNDEFINED_SIGN} (no criterion has positive points)"
        if self.score is None:
            judged = f"{self.judged:,} of {self.criteria:,} criteria were judged"
            return f"{UNDEFINED_SIGN} ({judged}: it could be {self.low:.2f} to {self.high:.2f})"
        if self.expected is None:
            return f"{self.score:z.2f}"
        return f"{self.score:z.2f}   expected {self.expected:z.2f}"


def _ratio(points: Sequence[float], positive: float) -> float:
    """Return the sum of points as a share of the positive points, with six digits."""
    return round(sum(points) / positive, 6)


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
        ordered = sorted(prompts, key=lambda prompt: prompt.criterion.part if prompt.criterion else 0)
        results: list[CriterionResult] = []
        for prompt in ordered:
            if prompt.criterion is None:
                continue
            for name, aspect in aspects.items():
                results.append(CriterionResult.from_outcome(prompt.criterion, prompt, name, aspect))
        return cls(tuple(ordered), aspects, tuple(results))

    @property
    def reasons(self) -> Sequence[str]:
        """The reason of each criterion that failed."""
        return [prompt.reason for prompt in self.prompts if isinstance(prompt, Failure)]

    @property
    def points(self) -> Points:
        """The points of all criteria."""
        return Points.of(self.results)

    @property
    def by_tag(self) -> dict[str, Points]:
        """The points of the criteria with each tag."""
        with_tag: dict[str, list[CriterionResult]] = {}
        for result in self.results:
            for tag in dict.fromkeys(result.criterion.tags):
                with_tag.setdefault(tag, []).append(result)
        return {tag: Points.of(results) for tag, results in with_tag.items()}

    @property
    def verdicts(self) -> Mapping[str, Value | None]:
        """Nothing: each criterion has a verdict of its own."""
        return {}

    def numbers(self) -> Iterator[tuple[str, str, float]]:
        """Yield the numbers of the score of the row, and of the criteria with each tag."""
        columns = {SCORE: self.points}
        for tag, points in self.by_tag.items():
            columns[TAG + tag] = points
        has_failed = self.error is not None
        for name, points in columns.items():
            yield LOWEST, name, points.lowest or 0.0
            if has_failed:
                continue
            if points.score is not None:
                yield VALUE, name, points.score
            if points.expected is not None:
                yield EXPECTED, name, points.expected

    def cells(self) -> Mapping[str, str]:
        """Return the score and the mark of each criterion; of many, the number of ticks."""
        score = self.points.score
        marks = "".join(result.mark for result in self.results)
        if len(marks) > _MARKS:
            marks = f"{marks.count('✓')} of {len(marks)} ✓"
        return {SCORE: UNDEFINED_SIGN if score is None else f"{score:z.2f}", "criteria": marks}

    def heading(self, prompt: Outcome) -> str:
        criterion = prompt.criterion
        if criterion is None:
            return ""
        (mark,) = (result.mark for result in self.results if result.outcome is prompt)
        text = f"{criterion.name}: {criterion.text}" if criterion.name else criterion.text
        return f"{mark} {criterion.points:+g} · {text}"

    def result_lines(self) -> Iterator[str]:
        if not self.results:
            return
        yield f"score {self.points.in_words}"
        for tag, points in self.by_tag.items():
            yield f"{tag} {points.in_words}"

    def list_answers(self) -> Sequence[ListedAnswer]:
        if not self.results:
            return []
        return RowOutcome.list_answers(self)

    @property
    def overall(self) -> float:
        score = self.points.score
        if score is None:
            return nan
        return score

    def line(self, columns: AnswerColumns) -> dict[str, Any]:
        first = self.first
        points = self.points
        of_criteria = replace(columns, prompt=CRITERION_COLUMNS)
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
            "criteria": [result.as_dict(of_criteria) for result in self.results],
            "tags": [
                {"tag": tag, "score": of_tag.score, "score_expected": of_tag.expected}
                for tag, of_tag in self.by_tag.items()
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
    criteria = RowCriteria(score=SCORE_COLUMN)
    most_aspects = 1
    prompt_columns = CRITERION_COLUMNS
    list_columns = (SCORE, "criteria")
    list_words = ListWords(one="row", many="rows", answer="A criterion is")
    options_for = "is for runs of one score for each row; these check criteria"

    def reserves(self, name: str) -> bool:
        if super().reserves(name) or name in CRITERION_COLUMNS or name in ("name", "probability"):
            return True
        return name in self.column_names(AnswerColumns({}))

    def refusal(self, aspect: Aspect) -> str | None:
        reason = super().refusal(aspect)
        if reason is not None:
            return reason
        if aspect.numbers is None:
            return "has no order, so it earns no points; give ordered = true"
        return None

    def prompt_rows(self, rows: Iterable[Row | Failure]) -> Iterator[Row | Failure]:
        """Yield a row for each criterion of a row."""
        for row in rows:
            if isinstance(row, Failure):
                yield row
                continue
            for criterion in row.criteria:
                yield replace(row, criteria=(criterion,))

    def join(self, aspects: Mapping[str, Aspect], prompts: int) -> Join[ChecklistOutcome]:
        return Join(lambda parts: ChecklistOutcome.from_prompts(parts, aspects), None)

    def row_columns(self, aspects: Mapping[str, Aspect]) -> tuple[ScoreColumn, ...]:
        return (SCORE_COLUMN,)

    def details(self, aspects: Mapping[str, Aspect]) -> ChecklistDetails:
        return ChecklistDetails()

    def mean_table(self, systems: Mapping[str, SystemCounts], columns: Sequence[ScoreColumn]) -> MeanTable:
        """The mean scores, clipped to 0 to 1, as by HealthBench; the score of a row is not."""
        scores = [counts.columns[SCORE] for counts in systems.values()]
        return MeanTable(
            title="Mean scores of all rows: points met of the positive points, clipped to 0 to 1",
            systems="system",
            rows="n",
            columns={
                "score": [_clipped(score.mean) for score in scores],
                "expected": [_clipped_expected(score) for score in scores],
            },
            unscored=SCORE,
            tags=_tag_means(list(systems.values())),
        )

    def types(self, columns: AnswerColumns) -> dict[str, Any]:
        import pyarrow

        text = pyarrow.string()
        real = pyarrow.float64()
        ((aspect, kind),) = columns.aspects.items()
        criterion = {
            "criterion": text,
            "name": text,
            "points": real,
            "tags": pyarrow.list_(text),
            aspect: arrow_kinds()[kind],
            "probability": real,
            aspect + MASS: real,
            "error": text,
        }
        for name in (*columns.texts, "key"):
            criterion[name] = text
        tag = {"tag": text, "score": real, "score_expected": real}
        return {
            "score": real,
            "score_expected": real,
            "score_low": real,
            "score_high": real,
            "criteria": pyarrow.list_(pyarrow.struct(criterion)),
            "tags": pyarrow.list_(pyarrow.struct(tag)),
            "criteria_judged": pyarrow.int64(),
        }


def _tag_means(systems: Sequence[SystemCounts]) -> TagMeans:
    """Return the mean scores of the criteria with each tag, for the tags of most rows."""
    rows = Counter[str]()
    for counts in systems:
        for name, mean in counts.columns.items():
            if name.startswith(TAG):
                rows[name] += mean.rows
    means: dict[str, list[float | None]] = {}
    for name, _ in rows.most_common(MOST_TAGS):
        means[name.removeprefix(TAG)] = [_clipped(counts.columns[name].mean) for counts in systems]
    more = len(rows) - MOST_TAGS
    return TagMeans(heading=f"tag ({more} more)" if more > 0 else "tag", means=means)


def _clipped(mean: float | None) -> float | None:
    """Return a mean score, at least 0 and at most 1."""
    if mean is None:
        return None
    return min(1.0, max(0.0, mean))


def _clipped_expected(column: ColumnMean) -> float | None:
    """Return the mean of the expected scores, clipped; None unless all rows have one."""
    if not column.is_measured:
        return None
    return _clipped(column.expected)


CHECKLIST = ChecklistMode()
