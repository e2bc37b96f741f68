"""The labels of pairs, read as the numbers of `RESULTS`.

A label is a word for the first or the second response or for a tie, a sign between the two (`A>B`), a number
from 1 to 2, a code that is mapped, or the name of the system whose response is better.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from localjudge.errors import UsageError
from localjudge.matching.label_values import (
    NO_LABEL,
    ColumnLabels,
    LabelReader,
    LabelVocabulary,
    matching_codes,
    text_of,
    without_codes,
)
from localjudge.modes.pair_preference import RESULTS
from localjudge.rows.columns import COLUMN_NAMES, PAIR, SYSTEMS
from localjudge.rows.field_values import FieldValues
from localjudge.rows.paths import ABSENT, look_up
from localjudge.rows.reading import Reading
from localjudge.rows.record import RecordError

LABEL_COLUMNS = ("annotators", "label", "labels", "winner", "preference", "human_preference", "verdict")
"""Columns that can have the labels of a rubric with one aspect; the first that has any counts."""
_AS_SYSTEMS = "@system"
"""What follows the name of a mapped column whose labels are names of systems."""
_KNOWN = "a, b, tie, 1, 2, A>B, A=B, or the name of a system"
_MOST_VALUES = 12
"""Largest number of different labels in a column whose meanings a remark lists."""


def _words(words: Iterable[str], fields: Iterable[str]) -> frozenset[str]:
    """Return words for a response, and the usual names of the columns with its text or its system."""
    names = set(words)
    for field in fields:
        names.update(name.casefold() for name in COLUMN_NAMES[field])
    return frozenset(names)


_FIRST = _words(["a", "1", "first"], [PAIR[0], SYSTEMS[0]])
_SECOND = _words(["b", "2", "second"], [PAIR[1], SYSTEMS[1]])
_TIES = frozenset({
    "tie", "tied", "draw", "equal", "same", "both", "neither", "tie (bothbad)", "both_bad", "bothbad", "c", "0",
})  # fmt: skip
_COMPARED = re.compile(r"\[*\s*([ab])\s*(>+|<+|=+|~=?)\s*([ab])\s*\]*", re.IGNORECASE)
_FROM_1_TO_2 = re.compile(r"1\.\d+")
"""A number between the first and the second response, as in AlpacaEval."""


class PairLabels(LabelReader):
    """Reads the labels of pairs as the numbers of `RESULTS`.

    A label is in a column with the name of an aspect. For a rubric with one aspect, it can also be in one of
    `LABEL_COLUMNS`; without any of these, the `chosen` response of a record with `chosen` and `rejected` is
    better. Columns with other names are mapped. A list has one label for each annotator.

    A word for a response or for a tie can also be the name of a system. Such a label is refused where the two
    readings differ, unless the mapping says which one is meant.

    Args:
        aspects: the aspects of the rubric.
        mapping: the aspect that a column of another name holds; `column@system` has names of systems,
            `column:A=a,B=b` has codes.
        systems: the names of the systems of all pairs.

    Raises:
        UsageError: a code of the mapping stands for no result.
    """

    def __init__(self, aspects: Iterable[str], mapping: Mapping[str, str], systems: Iterable[str] = ()) -> None:
        self._aspects = list(aspects)
        self._mapping = mapping
        self._unmapped = [name for name in self._aspects if name not in mapping.values()]
        self._systems = frozenset(_folded(system) for system in systems)
        # How often each column had a text that was read as a result.
        self._results_read: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self._codes: dict[str, dict[str, str]] = {}
        for column in mapping:
            name, codes = without_codes(column)
            if codes:
                self._codes[name] = codes
        for name, codes in self._codes.items():
            unknown = set(codes.values()) - set(RESULTS) - {"none"}
            if unknown:
                raise UsageError(
                    f"`mapping` {name}: a code stands for a, b, tie or none, not {unknown.pop()!r}"
                )

    def read(
        self, record: Mapping[str, Any], values: FieldValues, reading: Reading, where: str
    ) -> Iterator[ColumnLabels]:
        for column, aspect in self._mapping.items():
            yield from _labels_in_mapped_column(record, column, aspect=aspect)
        has_one_aspect = len(self._aspects) == 1
        if has_one_aspect and self._unmapped and reading.shape.label is not None:
            try:
                results = reading.shape.result(record, values.element)
            except RecordError as error:
                raise UsageError(f"{where}: {error}") from None
            yield ColumnLabels(self._unmapped[0], "label", values=results, vocabulary=LabelVocabulary.RESULTS)
            return
        for aspect in self._unmapped:
            labels = self._labels_in_usual_column(record, aspect)
            if labels is not None:
                yield labels
            elif has_one_aspect and PAIR[0] in reading.fields and reading.columns_of(PAIR[0]) == "chosen":
                yield ColumnLabels(aspect, "chosen", values=["a"], vocabulary=LabelVocabulary.RESULTS)

    def _labels_in_usual_column(self, record: Mapping[str, Any], aspect: str) -> ColumnLabels | None:
        """Return the labels of an aspect in the first column that has any; None if no column has."""
        names = [aspect]
        if len(self._aspects) == 1:
            names += LABEL_COLUMNS
        for name in names:
            value = look_up(record, name)
            # A line of `localjudge label` has an object in its column `label`.
            if value is ABSENT or value is None or isinstance(value, Mapping):
                continue
            labels = _as_list(value)
            if name == "annotators" and not all(_is_result(label) for label in labels):
                continue
            vocabulary = LabelVocabulary.WORDS
            if name == aspect and _is_written_here(record):
                vocabulary = LabelVocabulary.RESULTS
            return ColumnLabels(aspect, name, values=labels, vocabulary=vocabulary)
        return None

    def number(
        self, value: Any, labels: ColumnLabels, systems: Sequence[str | None], where: str
    ) -> float | None:
        text = _folded(value)
        if text in NO_LABEL:
            return None
        context = f"{where}: {labels.column!r} holds {str(value)[:40]!r}"
        if labels.vocabulary is LabelVocabulary.SYSTEMS:
            return RESULTS[self._result_by_systems(text, systems, context=context)]
        is_in_words = labels.vocabulary is LabelVocabulary.WORDS
        codes = self._codes.get(labels.column)
        if is_in_words and codes is not None:
            result = _meaning(value, codes)
            if result is None:
                raise UsageError(f"{context}, which is none of its codes: {', '.join(codes)}")
            self._results_read[labels.column][text, result] += 1
            return RESULTS.get(result)
        by_word = _result_of(text)
        by_system = _winning_system(text, systems)
        if is_in_words and by_word is not None and self._names_system(text):
            self._check_equal(by_word, by_system, labels=labels, context=context)
        if by_word is not None:
            self._results_read[labels.column][text, by_word] += 1
            return RESULTS[by_word]
        if by_system is not None:
            return RESULTS[by_system]
        raise UsageError(f"{context}, which is not a label; labels are {_KNOWN}")

    def _names_system(self, text: str) -> bool:
        """Return whether a label names a system of the run, or compares two."""
        compared = _COMPARED.fullmatch(text)
        if compared is None:
            return text in self._systems
        return compared[1] in self._systems or compared[3] in self._systems

    def _check_equal(self, by_word: str, by_system: str | None, *, labels: ColumnLabels, context: str) -> None:
        """Check that a label means the same as a word for a response or a tie and as the name of a system.

        Args:
            by_word: the result that it means as a word.
            by_system: the result that it means as the name of a system; None if it names neither system.
            labels: the labels of its column.
            context: the beginning of the message.

        Raises:
            UsageError: it does not.
        """
        if by_word == by_system:
            return
        meanings = {
            "a": "the first response",
            "b": "the second response",
            "tie": "a tie",
            None: "neither response",
        }
        column = f"{labels.target}={labels.column}"
        raise UsageError(
            f"{context}, which is a word for {meanings[by_word]} and names a system that wrote "
            f"{meanings[by_system]}; say which is meant: `mapping` {column}:A=a,B=b for places, or "
            f"`mapping` {column}{_AS_SYSTEMS} for systems"
        )

    def _result_by_systems(self, text: str, systems: Sequence[str | None], *, context: str) -> str:
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
        raise UsageError(f"{context}, which is neither {names}, the systems of its row, nor a word for a tie")

    def how_read(self) -> Sequence[str]:
        notes = []
        for column, counts in self._results_read.items():
            texts = {text for text, _ in counts}
            if "0" in texts and column not in self._codes:
                numbers = ", ".join(sorted(texts & {"0", "1", "2"}))
                mapping = f"`mapping` {self._aspects[0]}={column}:"
                raise UsageError(
                    f"`labels`: {column!r} has the numbers {numbers}, and 0 can be a tie or the first "
                    f"response; say what they are: {mapping}0=tie,1=a,2=b or {mapping}0=a,1=b,2=tie"
                )
            is_plain = all(text == result for text, result in counts)
            if len(counts) <= _MOST_VALUES and not is_plain:
                meanings = [f"{text} → {result} {count:,}" for (text, result), count in sorted(counts.items())]
                notes.append(f"the labels in {column!r} were read as {', '.join(meanings)}")
        return notes


def _labels_in_mapped_column(record: Mapping[str, Any], column: str, *, aspect: str) -> Iterator[ColumnLabels]:
    """Yield the labels in a mapped column, if the record has it.

    Args:
        record: the columns by name.
        column: the name of the column, and what follows it in the mapping.
        aspect: the aspect that it holds.
    """
    name, _ = without_codes(column)
    vocabulary = LabelVocabulary.WORDS
    if name.endswith(_AS_SYSTEMS):
        name = name.removesuffix(_AS_SYSTEMS)
        vocabulary = LabelVocabulary.SYSTEMS
    value = look_up(record, name)
    if value is not ABSENT and value is not None:
        yield ColumnLabels(aspect, name, values=_as_list(value), vocabulary=vocabulary)


def _as_list(value: Any) -> list[Any]:
    """Return the labels in a column: those of its list, or its only one."""
    return value if isinstance(value, list) else [value]


def _is_written_here(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a line of a run, of its export, or of `localjudge label`."""
    return "key" in record or isinstance(record.get("label"), Mapping)


def _folded(value: Any) -> str:
    """Return a value as text without case and surrounding spaces."""
    return text_of(value).casefold()


def _meaning(value: Any, codes: Mapping[str, str]) -> str | None:
    """Return what the code of a value stands for; None if it is none."""
    meanings = {codes[code] for code in matching_codes(text_of(value), codes)}
    if len(meanings) != 1:
        return None
    return meanings.pop()


def _is_result(value: Any) -> bool:
    text = _folded(value)
    return text in NO_LABEL or _result_of(text) is not None


def _result_of(text: str) -> str | None:
    """Return the result that a text names by itself; None if it names none."""
    if text in _TIES:
        return "tie"
    if text in _FIRST:
        return "a"
    if text in _SECOND:
        return "b"
    if _FROM_1_TO_2.fullmatch(text):
        return _result_from_1_to_2(float(text))
    compared = _COMPARED.fullmatch(text)
    if compared is None or compared[1] == compared[3]:
        return None
    return _better_of(compared)


def _result_from_1_to_2(number: float) -> str:
    """Return the result of a number between 1, the first response is better, and 2, the second is."""
    if number == 1.5:
        return "tie"
    return "a" if number < 1.5 else "b"


def _better_of(compared: re.Match[str]) -> str:
    """Return the better one of the two that a label such as `a>b` compares, or `tie`."""
    sign = compared[2][0]
    if sign in "=~":
        return "tie"
    return compared[1] if sign == ">" else compared[3]


def _winning_system(text: str, systems: Sequence[str | None]) -> str | None:
    """Return which response a label names by its system; None if it names neither, or could name both."""
    first, second = (_folded(system) for system in systems)
    if first == second:
        return None
    better = text
    compared = _COMPARED.fullmatch(text)
    if compared is not None and {compared[1], compared[3]} == {first, second}:
        better = _better_of(compared)
        if better == "tie":
            return "tie"
    if better == first:
        return "a"
    if better == second:
        return "b"
    return None
