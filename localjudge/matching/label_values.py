"""The values in a column of labels, read as numbers.

A scale has numbers. A boolean has true, false, yes, no, or a number from 0 to 1; so has the share of one label.
Choices have the label's text or the judge's code; ordered choices also have numbers from 1. Case and
surrounding spaces do not matter. An empty value, null or "N/A" means that there is no label; so does -1 in a
judgement of MT-Bench, whose program writes it if it cannot read the judge's answer.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import isnan
from typing import Any, Self

from localjudge.errors import UsageError
from localjudge.rows.field_values import FieldValues
from localjudge.rows.paths import ABSENT, look_up
from localjudge.rows.reading import Reading
from localjudge.rubrics.answer import Value
from localjudge.rubrics.aspect import Aspect

_LARGEST = 1e9
"""Largest absolute label: squares of larger numbers lose precision, and finally overflow."""
NO_LABEL = frozenset({"", "n/a", "na", "nan", "none", "null", "-"})
"""Texts of a value that is not a label."""
_OF_MT_BENCH = frozenset({"judge", "judgment", "turn"})
"""Columns of a judgement of MT-Bench."""
_YES_OR_NO = {"no": 0, "false": 0, "yes": 1, "true": 1, "i": 0, "c": 1}
"""Texts of a boolean; Inspect writes C for correct, I for incorrect."""
_CODES = re.compile(r":([^:=,]+=[^:=,]+(?:,[^:=,]+=[^:=,]+)*)$")
"""What each code of a column means, after the name of the column."""


def without_codes(column: str) -> tuple[str, dict[str, str]]:
    """Return the name of a column, and the meaning of each of its codes: `label:0=a,1=b`."""
    codes = _CODES.search(column)
    if codes is None:
        return column, {}
    name = column[: codes.start()]
    return name, dict(code.split("=") for code in codes[1].split(","))


def text_of(value: Any) -> str:
    """Return a value as text without surrounding spaces; a whole number without a fraction."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).strip()


def matching_codes(text: str, codes: Iterable[str]) -> list[str]:
    """Return the code that a text is exactly, or else all that differ from it in case alone."""
    codes = list(codes)
    if text in codes:
        return [text]
    return [code for code in codes if code.casefold() == text.casefold()]


@dataclass(frozen=True, slots=True)
class LabelColumn:
    """A column of labels, and how its values are read.

    Attributes:
        name: the name of the column, or the path of a nested value.
        target: the aspect, or the share of one of its labels.
        texts: the number of each text that is a label.
        number_range: the smallest and the largest number that is a label; None if no number is.
        labels: the labels, for a message.
    """

    name: str
    target: str
    texts: Mapping[str, float | None]
    number_range: tuple[float, float] | None
    labels: str

    @classmethod
    def from_aspect(cls, name: str, target: str, aspect: Aspect) -> LabelColumn:
        """Return the column of an aspect; labels without an order are numbered from 0."""
        if aspect.scale is not None:
            return cls(name, target, texts={}, number_range=(-_LARGEST, _LARGEST), labels="")
        if aspect.choices is None:
            return cls.from_share(name, target)
        numbers: Mapping[Value, int]
        if aspect.numbers is None:
            numbers = {label: number for number, label in enumerate(aspect.choices.values())}
        else:
            numbers = aspect.numbers
        texts: dict[str, float | None] = {}
        folded: dict[str, float | None] = {}
        labels_written_out = [(label, label) for label in aspect.choices.values()]
        for text, label in list(aspect.choices.items()) + labels_written_out:
            texts[text] = numbers[label]
            folded[text.casefold()] = numbers[label]
        labels = ", ".join(_with_code(label, code) for code, label in aspect.choices.items())
        number_range = None
        if aspect.ordered:
            number_range = (1.0, float(len(numbers)))
            labels += f", or a number from 1 to {len(numbers)}"
        return cls(name, target, texts=folded | texts, number_range=number_range, labels=labels)

    @classmethod
    def from_share(cls, name: str, target: str) -> LabelColumn:
        """Return the column of the share of a label, or of a boolean."""
        labels = "yes, no, true, false, or a number from 0 to 1"
        return cls(name, target, texts=_YES_OR_NO, number_range=(0.0, 1.0), labels=labels)

    def with_codes(self, codes: Mapping[str, str]) -> Self:
        """Return the column with these codes in place of the labels for which they stand.

        Raises:
            UsageError: a code stands for something else.
        """
        if not codes:
            return self
        where = f"`mapping` {self.target}"
        numbers = {code: self._number(label, where) for code, label in codes.items()}
        return replace(self, texts=numbers, number_range=None, labels=", ".join(codes))

    def read(self, record: Mapping[str, Any], where: str) -> list[float | None]:
        """Return the labels of a record: one, or one per annotator; an empty list without this column.

        Raises:
            UsageError: a value is not a label.
        """
        value = look_up(record, self.name)
        scores = record.get("scores")
        if _is_missing(value) and isinstance(scores, Mapping):
            value = look_up(scores, self.name)
        is_unreadable_answer = value == -1 and record.keys() >= _OF_MT_BENCH
        if _is_missing(value) or is_unreadable_answer:
            return []
        values = value if isinstance(value, list) else [value]
        return [self._number(label, where) for label in values]

    def _number(self, value: Any, where: str) -> float | None:
        """Return the number of a label; None for no label.

        Raises:
            UsageError: the value is not a label.
        """
        if value is None:
            return None
        text = text_of(value)
        numbers = {self.texts[code] for code in matching_codes(text, self.texts)}
        if len(numbers) == 1:
            return numbers.pop()
        if text.casefold() in NO_LABEL:
            return None
        if self.number_range is None:
            raise self._not_a_label(value, where)
        number = _float_or_none(value)
        if number is None:
            raise self._not_a_label(value, where, of_scale=", which is not a number")
        if isnan(number):
            return None
        lowest, highest = self.number_range
        if not lowest <= number <= highest:
            limit = f"; a label is a number of at most {_LARGEST:g}"
            raise self._not_a_label(value, where, of_scale=limit)
        return number

    def _not_a_label(self, value: Any, where: str, *, of_scale: str = "") -> UsageError:
        """Return the error for a value that is not a label.

        Args:
            value: the value.
            where: the file and line of the record.
            of_scale: the reason if the labels are numbers of a scale, which cannot be listed.
        """
        reason = of_scale
        if self.texts or not of_scale:
            reason = f", which is not a label of {self.target}; its labels are {self.labels}"
        return UsageError(f"{where}: {self.name!r} holds {str(value)[:40]!r}{reason}")


def _with_code(label: str, code: str) -> str:
    """Return a label, followed by the judge's code of it if that is another text."""
    return label if code == label else f"{label} ({code})"


def _is_missing(value: Any) -> bool:
    return value is ABSENT or value is None


def _float_or_none(value: Any) -> float | None:
    """Return a value as a number; None if it is none. True and false are no numbers."""
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


class LabelVocabulary(Enum):
    """What the labels of a column of pairs can be."""

    WORDS = "words"
    """Words for the first and the second response and for a tie, codes, and names of systems."""
    SYSTEMS = "systems"
    """Names of systems, and words for a tie that name no system."""
    RESULTS = "results"
    """The keys of `RESULTS`, as a declared shape, an export or a line of `localjudge label` has them."""


@dataclass(frozen=True, slots=True)
class ColumnLabels:
    """The labels in one column of a record, as they stand there.

    Attributes:
        target: the aspect, or the share of one of its labels.
        column: the name of the column.
        values: the labels, one for each annotator.
        annotators: the names of the annotators of the first of them, if the column has names of its own.
        vocabulary: what the labels can be, if they are of pairs.
    """

    target: str
    column: str
    values: Sequence[Any]
    annotators: Sequence[str] = ()
    vocabulary: LabelVocabulary = LabelVocabulary.WORDS


class LabelReader(ABC):
    """Reads the labels of records, in one of the modes.

    Attributes:
        names: the columns that do not identify a row, because they hold labels.
    """

    names: Collection[str] = ()

    @abstractmethod
    def read(
        self, record: Mapping[str, Any], values: FieldValues, reading: Reading, where: str
    ) -> Iterator[ColumnLabels]:
        """Yield the labels of a record.

        Args:
            record: the columns by name.
            values: the values of the fields of one of its rows.
            reading: the reading of its file.
            where: its file and line, for a message.

        Raises:
            UsageError: a value is not a label.
        """

    def number(
        self, value: Any, labels: ColumnLabels, systems: Sequence[str | None], where: str
    ) -> float | None:
        """Return the number of a label, for the order of the responses in its record; None for no label.

        Args:
            value: the label.
            labels: the labels of its column.
            systems: the systems of its row, in the order of the record.
            where: the file and line of the record, for a message.

        Raises:
            UsageError: it is not a label.
        """
        number: float | None = value
        return number

    def how_read(self) -> Sequence[str]:
        """Return how the values of each column were read, for people, where it is not plain.

        Raises:
            UsageError: they can be read in two ways.
        """
        return ()


class ScoreLabels(LabelReader):
    """Reads the labels of responses from their columns."""

    def __init__(self, columns: Sequence[LabelColumn]) -> None:
        self._columns = columns
        self.names = frozenset(column.name for column in columns)

    def read(
        self, record: Mapping[str, Any], values: FieldValues, reading: Reading, where: str
    ) -> Iterator[ColumnLabels]:
        for column in self._columns:
            # Argilla's export has the annotator and the status of each label in lists of their own.
            users = record.get(f"{column.name}.users") or []
            statuses = record.get(f"{column.name}.status") or []
            labels = column.read(record, where)
            for index, status in enumerate(statuses[: len(labels)]):
                if status not in (None, "submitted"):
                    labels[index] = None
            yield ColumnLabels(
                column.target, column.name, values=labels, annotators=[str(user) for user in users]
            )
