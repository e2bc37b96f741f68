"""The values in a column of labels, read as numbers.

A scale has numbers. A boolean has true, false, yes, no, or a number from 0 to 1; so has the share of one label.
Choices have the label's text or the judge's code; ordered choices also have numbers from 1. Case and
surrounding spaces do not matter. An empty value, null or "N/A" means that there is no label; so does -1 in a
judgement of MT-Bench, whose program writes it if it cannot read the judge's answer.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Self

from localjudge.errors import UsageError
from localjudge.modes.pair_preference import RESULTS
from localjudge.rows.columns import COLUMN_NAMES, PAIR, SYSTEMS
from localjudge.rows.field_values import FieldValues
from localjudge.rows.paths import ABSENT, look_up
from localjudge.rows.reading import Reading
from localjudge.rows.record import RecordError
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
    return column[: codes.start()], dict(code.split("=") for code in codes[1].split(","))


@dataclass(frozen=True, slots=True)
class LabelColumn:
    """A column of labels, and how its values are read.

    Attributes:
        name: the name of the column, or the path of a nested value.
        target: the aspect, or the share of one of its labels.
        texts: the number of each text that is a label.
        numbers: the smallest and the largest number that is a label; None if no number is.
        known: the labels, for a message.
    """

    name: str
    target: str
    texts: Mapping[str, float | None]
    numbers: tuple[float, float] | None
    known: str

    @classmethod
    def from_aspect(cls, name: str, target: str, aspect: Aspect) -> LabelColumn:
        """Return the column of an aspect; labels without an order are numbered from 0."""
        if aspect.scale is not None:
            return cls(name, target, {}, (-_LARGEST, _LARGEST), "")
        if aspect.choices is None:
            return cls.from_share(name, target)
        numbers = aspect.numbers or {label: place for place, label in enumerate(aspect.choices.values())}
        pairs = [*aspect.choices.items(), *((label, label) for label in aspect.choices.values())]
        folded = {text.casefold(): numbers[label] for text, label in pairs}
        known = ", ".join(
            label if code == label else f"{label} ({code})" for code, label in aspect.choices.items()
        )
        ends = (1.0, float(len(numbers))) if aspect.ordered else None
        known += f", or a number from 1 to {len(numbers)}" if aspect.ordered else ""
        return cls(name, target, folded | {text: numbers[label] for text, label in pairs}, ends, known)

    @classmethod
    def from_share(cls, name: str, target: str) -> LabelColumn:
        """Return the column of the share of a label, or of a boolean."""
        return cls(name, target, _YES_OR_NO, (0.0, 1.0), "yes, no, true, false, or a number from 0 to 1")

    def with_codes(self, codes: Mapping[str, str]) -> Self:
        """Return the column with these codes in place of the labels for which they stand.

        Raises:
            UsageError: a code stands for something else.
        """
        if not codes:
            return self
        numbers = {code: self._number(label, f"`mapping` {self.target}") for code, label in codes.items()}
        return replace(self, texts=numbers, numbers=None, known=", ".join(codes))

    def read(self, record: Mapping[str, Any], where: str) -> list[float | None]:
        """Return the labels of a record: one, or one per annotator; an empty list without this column.

        Raises:
            UsageError: a value is not a label.
        """
        given = look_up(record, self.name)
        inner = record.get("scores")
        if given in (ABSENT, None) and isinstance(inner, Mapping):
            given = look_up(inner, self.name)
        if given in (ABSENT, None) or (given == -1 and record.keys() >= _OF_MT_BENCH):
            return []
        return [self._number(value, where) for value in (given if isinstance(given, list) else [given])]

    def _number(self, value: Any, where: str) -> float | None:
        if value is None:
            return None
        text = f"{value:g}" if isinstance(value, float) else str(value).strip()
        meanings = {self.texts[code] for code in matching_codes(text, self.texts)}
        if len(meanings) == 1:
            return meanings.pop()
        if text.casefold() in NO_LABEL:
            return None
        says = f"{where}: {self.name!r} holds {str(value)[:40]!r}"
        labels = f", which is not a label of {self.target}; its labels are {self.known}"
        if self.numbers is None:
            raise UsageError(says + labels)
        lowest, highest = self.numbers
        try:
            number = float("" if isinstance(value, bool) else value)
        except (TypeError, ValueError, OverflowError):
            raise UsageError(says + (labels if self.texts else ", which is not a number")) from None
        if number != number:
            return None
        if not lowest <= number <= highest:
            raise UsageError(
                says + (labels if self.texts else f"; a label is a number of at most {_LARGEST:g}")
            )
        return number


class LabelVocabulary(Enum):
    """What the labels of a column of pairs can be."""

    WORDS = "words"
    """Words for the places and for a tie, codes, and names of systems."""
    SYSTEMS = "systems"
    """Names of systems, and words for a tie that name no system."""
    RESULTS = "results"
    """The keys of `RESULTS`, as a declared shape, an export or a line of `localjudge label` has them."""


@dataclass(frozen=True, slots=True)
class GivenLabels:
    """The labels of one column of a record, as they stand there.

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
    def given(
        self, record: Mapping[str, Any], values: FieldValues, reading: Reading, where: str
    ) -> Iterator[GivenLabels]:
        """Yield the labels of a record.

        Args:
            record: the columns by name.
            values: the values of the fields of one of its rows.
            reading: the reading of its file.
            where: its place, for a message.

        Raises:
            UsageError: a value is not a label.
        """

    def number(
        self, value: Any, labels: GivenLabels, systems: Sequence[str | None], where: str
    ) -> float | None:
        """Return the number of a label, for the order of the responses in its record; None for no label.

        Args:
            value: the label.
            labels: the labels of its column.
            systems: the systems of its row, in the order of the record.
            where: the place of the record, for a message.

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

    def given(
        self, record: Mapping[str, Any], values: FieldValues, reading: Reading, where: str
    ) -> Iterator[GivenLabels]:
        for column in self._columns:
            # Argilla's export has the annotator and the status of each label in lists of their own.
            users, status = (record.get(f"{column.name}.{name}") or [] for name in ("users", "status"))
            labels = [
                value if place >= len(status) or status[place] in (None, "submitted") else None
                for place, value in enumerate(column.read(record, where))
            ]
            yield GivenLabels(column.target, column.name, labels, [*map(str, users)])


LABEL_COLUMNS = ("annotators", "label", "labels", "winner", "preference", "human_preference", "verdict")
"""Columns that can have the labels of a rubric with one aspect; the first that has any counts."""

_PLACES = tuple(
    {*first, *(name.casefold() for field in (text, system) for name in COLUMN_NAMES[field])}
    for first, text, system in zip((("a", "1", "first"), ("b", "2", "second")), PAIR, SYSTEMS, strict=True)
)
"""The words for the first and for the second response."""
_TIES = frozenset({
    "tie", "tied", "draw", "equal", "same", "both", "neither", "tie (bothbad)", "both_bad", "bothbad", "c", "0",
})  # fmt: skip
_COMPARED = re.compile(r"\[*\s*([ab])\s*(>+|<+|=+|~=?)\s*([ab])\s*\]*", re.IGNORECASE)
_FROM_1_TO_2 = re.compile(r"1\.\d+")
"""A number between the first and the second response, as in AlpacaEval."""
_MOST_VALUES = 12
_KNOWN = "a, b, tie, 1, 2, A>B, A=B, or the name of a system"
_AS_SYSTEMS = "@system"
"""What follows the name of a mapped column whose labels are names of systems."""


class PairLabels(LabelReader):
    """Reads the labels of pairs as the numbers of `RESULTS`.

    A label is in a column with the name of an aspect. For a rubric with one aspect, it can also be in one of
    `LABEL_COLUMNS`; without any of these, the `chosen` response of a record with `chosen` and `rejected` is
    better. Columns with other names are mapped. A list has one label for each annotator.

    A word for a place or for a tie can also be the name of a system. Such a label is refused where the two
    readings differ, unless the mapping says which one is meant.

    Args:
        aspects: the aspects of the rubric.
        mapping: the aspect that a column of another name holds; `column@system` has names of systems,
            `column:A=a,B=b` has codes.
        systems: the names of the systems of all pairs.
    """

    def __init__(self, aspects: Iterable[str], mapping: Mapping[str, str], systems: Iterable[str] = ()) -> None:
        self._aspects, self._mapping = [*aspects], mapping
        self._systems = frozenset(_folded(system) for system in systems)
        self._unmapped = [name for name in self._aspects if name not in mapping.values()]
        self._read: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self._codes = {name: codes for name, codes in map(without_codes, mapping) if codes}
        for name, codes in self._codes.items():
            if unknown := {*codes.values()} - {*RESULTS, "none"}:
                raise UsageError(
                    f"`mapping` {name}: a code stands for a, b, tie or none, not {unknown.pop()!r}"
                )

    def given(
        self, record: Mapping[str, Any], values: FieldValues, reading: Reading, where: str
    ) -> Iterator[GivenLabels]:
        for mapped, aspect in self._mapping.items():
            name, _ = without_codes(mapped)
            vocabulary = LabelVocabulary.WORDS
            if name.endswith(_AS_SYSTEMS):
                name = name.removesuffix(_AS_SYSTEMS)
                vocabulary = LabelVocabulary.SYSTEMS
            value = look_up(record, name)
            if value is not ABSENT and value is not None:
                labels = value if isinstance(value, list) else [value]
                yield GivenLabels(aspect, name, labels, vocabulary=vocabulary)
        is_only = len(self._aspects) == 1
        if is_only and self._unmapped and reading.shape.label is not None:
            try:
                results = reading.shape.result(record, values.element)
            except RecordError as error:
                raise UsageError(f"{where}: {error}") from None
            yield GivenLabels(self._unmapped[0], "label", results, vocabulary=LabelVocabulary.RESULTS)
            return
        for aspect in self._unmapped:
            for name in (aspect, *(LABEL_COLUMNS if is_only else ())):
                value = look_up(record, name)
                labels = value if isinstance(value, list) else [value]
                # A line of `localjudge label` has an object there.
                if value is ABSENT or value is None or isinstance(value, Mapping):
                    continue
                if name == "annotators" and not all(map(_is_result, labels)):
                    continue
                vocabulary = LabelVocabulary.WORDS
                if name == aspect and _is_written_here(record):
                    vocabulary = LabelVocabulary.RESULTS
                yield GivenLabels(aspect, name, labels, vocabulary=vocabulary)
                break
            else:
                if is_only and PAIR[0] in reading.fields and reading.columns_of(PAIR[0]) == "chosen":
                    yield GivenLabels(aspect, "chosen", ["a"], vocabulary=LabelVocabulary.RESULTS)

    def number(
        self, value: Any, labels: GivenLabels, systems: Sequence[str | None], where: str
    ) -> float | None:
        text = _folded(value)
        if text in NO_LABEL:
            return None
        says = f"{where}: {labels.column!r} holds {str(value)[:40]!r}"
        if labels.vocabulary is LabelVocabulary.SYSTEMS:
            return RESULTS[self._result_by_systems(text, systems, says)]
        codes = self._codes.get(labels.column)
        if labels.vocabulary is LabelVocabulary.WORDS and codes is not None:
            result = _meaning(value, codes)
            if result is None:
                raise UsageError(f"{says}, which is none of its codes: {', '.join(codes)}")
            self._read[labels.column][text, result] += 1
            return RESULTS.get(result)
        by_place = _result_of(text)
        by_system = _winning_system(text, systems)
        if labels.vocabulary is LabelVocabulary.WORDS and by_place is not None and self._names_system(text):
            self._check_equal(by_place, by_system, labels, says)
        if by_place is not None:
            self._read[labels.column][text, by_place] += 1
            return RESULTS[by_place]
        if by_system is not None:
            return RESULTS[by_system]
        raise UsageError(f"{says}, which is not a label; labels are {_KNOWN}")

    def _names_system(self, text: str) -> bool:
        """Return whether a label names a system of the run, or compares two."""
        compared = _COMPARED.fullmatch(text)
        if compared is None:
            return text in self._systems
        return compared[1] in self._systems or compared[3] in self._systems

    def _check_equal(self, by_place: str, by_system: str | None, labels: GivenLabels, says: str) -> None:
        """Check that a label means the same as a word for a place or a tie and as the name of a system.

        Raises:
            UsageError: it does not.
        """
        if by_place == by_system:
            return
        meanings = {
            "a": "the first response",
            "b": "the second response",
            "tie": "a tie",
            None: "neither response",
        }
        column = f"{labels.target}={labels.column}"
        raise UsageError(
            f"{says}, which is a word for {meanings[by_place]} and names a system that wrote "
            f"{meanings[by_system]}; say which is meant: `mapping` {column}:A=a,B=b for places, or "
            f"`mapping` {column}{_AS_SYSTEMS} for systems"
        )

    def _result_by_systems(self, text: str, systems: Sequence[str | None], says: str) -> str:
        """Return the result of a label that names the system whose response is better, or that is a tie.

        Raises:
            UsageError: it is neither.
        """
        result = _winning_system(text, systems)
        if result is not None:
            return result
        if text in _TIES and text not in self._systems:
            return "tie"
        names = " nor ".join(repr(system) for system in systems)
        raise UsageError(f"{says}, which is neither {names}, the systems of its row, nor a word for a tie")

    def how_read(self) -> Sequence[str]:
        notes = []
        for column, counts in self._read.items():
            numbers = sorted({text for text, _ in counts} & {"0", "1", "2"})
            if "0" in numbers and column not in self._codes:
                say = f"`mapping` {self._aspects[0]}={column}:"
                raise UsageError(
                    f"`labels`: {column!r} has the numbers {', '.join(numbers)}, and 0 can be a tie or the "
                    f"first response; say what they are: {say}0=tie,1=a,2=b or {say}0=a,1=b,2=tie"
                )
            is_plain = all(text == result for text, result in counts)
            if len(counts) <= _MOST_VALUES and not is_plain:
                read = (f"{text} → {result} {count:,}" for (text, result), count in sorted(counts.items()))
                notes.append(f"the labels in {column!r} were read as {', '.join(read)}")
        return notes


def _is_written_here(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a line of a run, of its export, or of `localjudge label`."""
    return "key" in record or isinstance(record.get("label"), Mapping)


def _text_of(value: Any) -> str:
    """Return a value as text without surrounding spaces; a whole number without a fraction."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return (f"{value:g}" if isinstance(value, float) else str(value)).strip()


def _folded(value: Any) -> str:
    """Return a value as text without case and surrounding spaces."""
    return _text_of(value).casefold()


def _meaning(value: Any, codes: Mapping[str, str]) -> str | None:
    """Return what the code of a value stands for; None if it is none."""
    meanings = {codes[code] for code in matching_codes(_text_of(value), codes)}
    return meanings.pop() if len(meanings) == 1 else None


def matching_codes(text: str, codes: Iterable[str]) -> list[str]:
    """Return the code that a text is exactly, or else all that differ from it in case alone."""
    codes = list(codes)
    if text in codes:
        return [text]
    return [code for code in codes if code.casefold() == text.casefold()]


def _is_result(value: Any) -> bool:
    text = _folded(value)
    return text in NO_LABEL or _result_of(text) is not None


def _result_of(text: str) -> str | None:
    """Return the result that a text names by itself; None if it names none."""
    if text in _TIES:
        return "tie"
    for result, words in zip("ab", _PLACES, strict=True):
        if text in words:
            return result
    if _FROM_1_TO_2.fullmatch(text):
        return "tie" if float(text) == 1.5 else "a" if float(text) < 1.5 else "b"
    compared = _COMPARED.fullmatch(text)
    if compared is None or compared[1] == compared[3]:
        return None
    return _better_of(compared)


def _better_of(compared: re.Match[str]) -> str:
    """Return the better one of the two that a label such as `a>b` compares, or `tie`."""
    sign = compared[2][0]
    if sign in "=~":
        return "tie"
    return compared[1] if sign == ">" else compared[3]


def _winning_system(text: str, systems: Sequence[str | None]) -> str | None:
    """Return which response a label names by its system; None if it names neither, or could name both."""
    named = [_folded(system) for system in systems]
    if named[0] == named[1]:
        return None
    better = text
    compared = _COMPARED.fullmatch(text)
    if compared is not None and {compared[1], compared[3]} == {*named}:
        better = _better_of(compared)
        if better == "tie":
            return "tie"
    if better not in named:
        return None
    return "a" if better == named[0] else "b"
