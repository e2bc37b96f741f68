"""The outcome of a row of the input, and the join of the outcomes of its prompts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import Any, Generic, TypeVar

from localjudge.modes.pair_preference import Preference
from localjudge.records import Criterion, Failure, Judgement, Outcome
from localjudge.records.outcome_columns import AnswerColumns
from localjudge.rubrics.answer import Value, shown
from localjudge.rubrics.aspect import Aspect

Numbers = Mapping[str, float]
"""Numbers by the names of their columns; one that is not known is missing."""
VALUE = "value"
"""The kind of a number in a column: the number itself."""
EXPECTED = "expected"
"""The kind of its mean under the judge's probabilities."""
LOWEST = "lowest"
"""The kind of the lowest number that the row could have, if rows differ in it."""
TAG = "tag: "
"""The beginning of the name of a column that is of the criteria with a tag."""
MOST_TAGS = 15
"""Largest number of tags in a table: the most frequent."""


@dataclass(frozen=True, slots=True)
class Side:
    """The numbers of a row for one system.

    Attributes:
        system: the system; None if it is not known.
        values: the number in each column.
        expected: its mean under the judge's probabilities, for some of these columns.
    """

    system: str | None
    values: Numbers
    expected: Numbers


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict on a row in one aspect, as a number.

    Attributes:
        number: the number of the verdict.
        probability: its probability, that of the verdicts that count as the same included.
    """

    number: float
    probability: float


@dataclass(frozen=True, slots=True)
class ListedAnswer:
    """An answer to one aspect, as the list of a report has it; NaN is unknown.

    Attributes:
        value_index: its index among the values that the list shows; -1 if it failed.
        expected: the number under the judge's probabilities.
        confidence: the probability of the value.
        agree: 1 if both orders of a pair say the same, 0 if they do not.
    """

    value_index: int = -1
    expected: float = nan
    confidence: float = nan
    agree: float = nan


@dataclass(frozen=True, slots=True)
class RowOutcome(ABC):
    """The outcome of a row, in any mode: a row that was judged, or one of whose prompts failed.

    Attributes:
        prompts: the outcome of each prompt, in their order.
        aspects: the aspects of the rubric.
    """

    prompts: tuple[Outcome, ...]
    aspects: Mapping[str, Aspect]

    @property
    def first(self) -> Outcome:
        """The outcome of the first prompt."""
        return self.prompts[0]

    @property
    def id(self) -> str:
        return self.first.id

    @property
    def criterion(self) -> Criterion | None:
        """The only criterion that the row stands for; None for a whole row."""
        return None

    @property
    def judged(self) -> tuple[Judgement, ...]:
        """The judgements of the prompts that did not fail."""
        return tuple(prompt for prompt in self.prompts if isinstance(prompt, Judgement))

    @property
    def error(self) -> str | None:
        """Why a prompt could not be judged; None if all were."""
        errors = [prompt.error for prompt in self.prompts if prompt.error is not None]
        if not errors:
            return None
        return "; ".join(dict.fromkeys(errors))

    @property
    def reasons(self) -> Sequence[str]:
        """The reasons of the failure, without files and lines, as a summary counts them."""
        reasons = [prompt.reason for prompt in self.prompts if isinstance(prompt, Failure)]
        return list(dict.fromkeys(reasons))

    @property
    def systems(self) -> tuple[str | None, ...]:
        """The system that wrote each response, in the input's order."""
        return (self.first.system,)

    @property
    def response_digests(self) -> tuple[str | None, ...]:
        """The digest of the instruction with each response, in the input's order."""
        return (self.first.response_digest,)

    @property
    def response_lengths(self) -> tuple[int | None, ...]:
        """The characters of each response, in the input's order; None if they are not known."""
        return (self.first.characters,)

    @property
    def response_names(self) -> tuple[str, ...]:
        """The names of the responses, for people."""
        return ("candidate",)

    @property
    @abstractmethod
    def verdicts(self) -> Mapping[str, Value | None]:
        """The verdict in each aspect, None if it is undecided; empty if the row failed or has no verdict."""

    @property
    def verdict_texts(self) -> Mapping[str, str]:
        """The verdicts as people read them, with the judge's texts on one response."""
        return {name: "undecided" if value is None else shown(value) for name, value in self.verdicts.items()}

    def decision(self, aspect: str, within: int) -> Decision | None:
        """Return the verdict in an aspect as a number; None without a verdict.

        Args:
            aspect: the aspect.
            within: values whose numbers differ by at most this count as the same.
        """
        return None

    def preference(self, aspect: str) -> Preference | None:
        """Return the preference between two responses in an aspect; None without two, or if they failed."""
        return None

    @abstractmethod
    def numbers(self) -> Iterator[tuple[str, str, float]]:
        """Yield the numbers of the row that statistics compute with: the kind, the column and the number."""

    @property
    def values(self) -> Numbers:
        """The number of the row in each column; empty if it failed."""
        return {name: number for kind, name, number in self.numbers() if kind == VALUE}

    @property
    def expected(self) -> Numbers:
        """The mean of each number under the judge's probabilities, where they are known."""
        return {name: number for kind, name, number in self.numbers() if kind == EXPECTED}

    @property
    def sides(self) -> Sequence[Side]:
        """What the row says of each system, for means of systems."""
        values: dict[str, float] = {}
        expected: dict[str, float] = {}
        for kind, name, number in self.numbers():
            if kind == VALUE:
                values[name] = number
            elif kind == EXPECTED:
                expected[name] = number
        return [Side(self.first.system, values, expected)]

    @abstractmethod
    def cells(self) -> Mapping[str, str]:
        """Return what a list shows of a row that did not fail, by the headings of its columns."""

    def heading(self, prompt: Outcome) -> str:
        """Return the heading above the answer to a prompt of the row; empty if it needs none."""
        return ""

    def result_lines(self) -> Iterator[str]:
        """Yield what was made of the answers of all prompts, a line each."""
        yield from ()

    def list_answers(self) -> Sequence[ListedAnswer]:
        """Return the answers as the list of a report has them: by prompt, if it lists each, and aspect."""
        return [
            _listed_answer(prompt, name, aspect)
            for prompt in self.prompts
            for name, aspect in self.aspects.items()
        ]

    @property
    def overall(self) -> float:
        """The number that decides whether the row is better than another; NaN if there is none."""
        return nan

    @abstractmethod
    def line(self, columns: AnswerColumns) -> dict[str, Any]:
        """Return the row as one flat JSON object; judged and failed rows have the same columns.

        Args:
            columns: the columns of its rubric.
        """


def _listed_answer(prompt: Outcome, name: str, aspect: Aspect) -> ListedAnswer:
    """Return the answer of a prompt to an aspect of this name."""
    if not isinstance(prompt, Judgement):
        return ListedAnswer()
    index = list(aspect.values.values()).index(prompt.scores[name])
    expected = nan
    if aspect.numbers is not None:
        expected = prompt.expected.get(name, nan)
    confidence = nan
    probabilities = prompt.probabilities.get(name)
    if probabilities is not None:
        confidence = probabilities[index]
    return ListedAnswer(index, expected, confidence)


T = TypeVar("T", bound=RowOutcome)


@dataclass(slots=True)
class Join(Generic[T]):
    """Joins the outcomes of each row's prompts, which arrive one by one, in any order.

    The prompts of a run are numbered from 1, row by row.

    Attributes:
        joined: returns the outcome of a row from those of its prompts.
        prompts: the number of prompts of each row; None if each criterion of the row has one.
    """

    joined: Callable[[Sequence[Outcome]], T]
    prompts: int | None
    _waiting: dict[int, list[Outcome]] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> T | None:
        """Return the outcome of the row that this prompt completes; None if another prompt is missing."""
        first, prompts = self.row_of(outcome)
        if prompts == 1:
            return self.joined([outcome])
        parts = self._waiting.setdefault(first, [])
        parts.append(outcome)
        if len(parts) < prompts:
            return None
        del self._waiting[first]
        return self.joined(parts)

    def row_of(self, outcome: Outcome) -> tuple[int, int]:
        """Return the number of the first prompt of this prompt's row, and the number of the row's prompts."""
        number = outcome.row or 0
        if self.prompts is not None:
            before = (number - 1) % self.prompts
            return number - before, self.prompts
        criterion = outcome.criterion
        if criterion is None:
            return number, 1
        return number - (criterion.part - 1), criterion.parts

    def all(self, outcomes: Iterable[Outcome]) -> Iterator[T]:
        """Yield the outcome of each row as soon as those of all its prompts are there."""
        for outcome in outcomes:
            row = self.add(outcome)
            if row is not None:
                yield row
