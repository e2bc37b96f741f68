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
VALUE, EXPECTED, LOWEST = "value", "expected", "lowest"
"""The kinds of numbers in a column: the number, its mean under the judge's probabilities, and the lowest number
that the row could have, if rows differ in it."""
TAG = "tag: "
"""The beginning of the name of a column that is of the criteria with a tag."""
MOST_TAGS = 15
"""Largest number of tags in a table: the most frequent."""


@dataclass(frozen=True, slots=True)
class Side:
    """What a row says of one system.

    Attributes:
        system: the system; None if it is not known.
        values: the number in each column.
        expected: its mean under the judge's probabilities, for some of these columns.
    """

    system: str | None
    values: Numbers
    expected: Numbers


@dataclass(frozen=True, slots=True)
class ListedAnswer:
    """An answer to one aspect, as the list of a report has it; NaN is unknown.

    Attributes:
        place: its place among the values that the list shows; -1 if it failed.
        expected: the number under the judge's probabilities.
        confidence: the probability of the value.
        agree: 1 if both orders of a pair say the same, 0 if they do not.
    """

    place: int = -1
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
        return tuple(each for each in self.prompts if isinstance(each, Judgement))

    @property
    def error(self) -> str | None:
        """Why a prompt could not be judged; None if all were."""
        errors = [each.error for each in self.prompts if each.error is not None]
        return "; ".join(dict.fromkeys(errors)) or None

    @property
    def reasons(self) -> Sequence[str]:
        """The reasons of the failure, without places, as a summary counts them."""
        return list(dict.fromkeys(each.reason for each in self.prompts if isinstance(each, Failure)))

    @property
    def systems(self) -> tuple[str | None, ...]:
        """The system that wrote each response, in the input's order."""
        return (self.first.system,)

    @property
    def response_digests(self) -> tuple[str | None, ...]:
        """The digest of the instruction with each response, in the input's order."""
        return (self.first.response_digest,)

    @property
    def response_names(self) -> tuple[str, ...]:
        """The names of the responses, for people."""
        return ("candidate",)

    @property
    @abstractmethod
    def verdicts(self) -> Mapping[str, Value | None]:
        """What the answer in each aspect is; empty if the row failed or has no such answer."""

    @property
    def verdict_texts(self) -> Mapping[str, str]:
        """The verdicts as people read them, with the judge's texts on one response."""
        return {name: "undecided" if value is None else shown(value) for name, value in self.verdicts.items()}

    def decision(self, aspect: str, within: int) -> tuple[float, float]:
        """Return the number of the verdict in an aspect, and its probability; NaN without a verdict.

        Args:
            aspect: the aspect.
            within: values whose numbers differ by at most this count as the same.
        """
        return nan, nan

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
        """The mean of each number under the judge's probabilities, where it is another than the number."""
        return {name: number for kind, name, number in self.numbers() if kind == EXPECTED}

    @property
    def sides(self) -> Sequence[Side]:
        """What the row says of each system, for means of systems."""
        found: dict[str, dict[str, float]] = {VALUE: {}, EXPECTED: {}, LOWEST: {}}
        for kind, name, number in self.numbers():
            found[kind][name] = number
        return [Side(self.first.system, found[VALUE], found[EXPECTED])]

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
        found: list[ListedAnswer] = []
        for prompt in self.prompts:
            for name, aspect in self.aspects.items():
                if not isinstance(prompt, Judgement):
                    found.append(ListedAnswer())
                    continue
                place = [*aspect.values.values()].index(prompt.scores[name])
                shares = prompt.probabilities.get(name)
                expected = nan if aspect.numbers is None else prompt.expected.get(name, nan)
                found.append(ListedAnswer(place, expected, nan if shares is None else shares[place]))
        return found

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
        return self.joined(self._waiting.pop(first)) if len(parts) == prompts else None

    def row_of(self, outcome: Outcome) -> tuple[int, int]:
        """Return the number of the first prompt of this prompt's row, and the number of the row's prompts."""
        number, asked, prompts = outcome.row or 0, outcome.criterion, self.prompts or 1
        if self.prompts is None and asked is not None:
            return number - asked.part + 1, asked.parts
        return number - (number - 1) % prompts, prompts

    def all(self, outcomes: Iterable[Outcome]) -> Iterator[T]:
        """Yield the outcome of each row as soon as those of all its prompts are there."""
        for outcome in outcomes:
            if (row := self.add(outcome)) is not None:
                yield row
