"""The values of labels of pairs, read as the numbers of `RESULTS`.

A record identifies its pair by the instruction and both responses, in either order, or by `id` and both systems
(`localjudge.matching.row_index`); by `id` alone, with the responses in the order of the run's input.
A label is in a column with the name of an aspect. For a rubric with one aspect, it can also be in one of
`LABEL_COLUMNS`; without any of these, the `chosen` response of a record with `chosen` and `rejected` is better.
Columns with other names are mapped. A list has one label for each annotator.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from localjudge.errors import UsageError
from localjudge.matching.label_values import NO_LABEL, GivenLabels, without_codes
from localjudge.modes.pair_preference import RESULTS
from localjudge.rows.pair_columns import PAIR, PAIR_COLUMN_NAMES, SYSTEMS
from localjudge.rows.record import ABSENT, RecordError, value_at
from localjudge.rows.record_reader import Fields

LABEL_COLUMNS = ("annotators", "label", "labels", "winner", "preference", "human_preference", "verdict")
"""Columns that can have the labels of a rubric with one aspect; the first that has any counts."""

_PLACES = tuple(
    frozenset(
        {
            *first,
            *(name.casefold() for field in (text, system) for name in PAIR_COLUMN_NAMES[field]),
        }
    )
    for first, text, system in zip((("a", "1", "first"), ("b", "2", "second")), PAIR, SYSTEMS, strict=True)
)
"""The words for the first and for the second response."""
_TIES = frozenset(
    [
        "tie",
        "tied",
        "draw",
        "equal",
        "same",
        "both",
        "neither",
        "tie (bothbad)",
        "both_bad",
        "bothbad",
        "c",
        "0",
    ]
)
_COMPARED = re.compile(r"\[*\s*([ab])\s*(>+|<+|=+|~=?)\s*([ab])\s*\]*", re.IGNORECASE)
_FROM_1_TO_2 = re.compile(r"1\.\d+")
"""A number between the first and the second response, as in AlpacaEval."""
_NAMES = {value: name for name, value in RESULTS.items()}
_MOST_VALUES = 12
_KNOWN = "a, b, tie, 1, 2, A>B, A=B, or the name of a system"


class PairLabels:
    """Reads the labels of pairs as the numbers of `RESULTS`, see `LabelReader`."""

    names: Collection[str] = ()

    def __init__(self, aspects: Iterable[str], mapping: Mapping[str, str]) -> None:
        self._aspects, self._mapping = [*aspects], mapping
        self._unmapped = [name for name in self._aspects if name not in mapping.values()]
        self._numbers: dict[str, set[str]] = defaultdict(set)
        self._read: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self._codes = {name: codes for name, codes in map(without_codes, mapping) if codes}
        for name, codes in self._codes.items():
            if unknown := {*codes.values()} - {*RESULTS, "none"}:
                raise UsageError(
                    f"`mapping` {name}: a code stands for a, b, tie or none, not {unknown.pop()!r}"
                )

    def given(self, record: Mapping[str, Any], fields: Fields, where: str) -> Iterator[GivenLabels]:
        for mapped, aspect in self._mapping.items():
            name, _ = without_codes(mapped)
            value = value_at(record, name)
            if value is not ABSENT and value is not None:
                yield GivenLabels(aspect, name, value if isinstance(value, list) else [value])
        is_only = len(self._aspects) == 1
        if is_only and self._unmapped and fields.shape.label is not None:
            try:
                results = fields.shape.result(record, fields.element)
            except RecordError as error:
                raise UsageError(f"{where}: {error}") from None
            yield GivenLabels(self._unmapped[0], "label", results)
            return
        for aspect in self._unmapped:
            for name in (aspect, *(LABEL_COLUMNS if is_only else ())):
                value = value_at(record, name)
                values = value if isinstance(value, list) else [value]
                # A line of `localjudge label` has an object there.
                if value is ABSENT or value is None or isinstance(value, Mapping):
                    continue
                if name == "annotators" and not all(map(_is_result, values)):
                    continue
                yield GivenLabels(aspect, name, values)
                break
            else:
                if is_only and fields.taken.get(PAIR[0]) == "chosen":
                    yield GivenLabels(aspect, "chosen", ["a"])

    def number(self, value: Any, column: str, systems: Sequence[str | None], where: str) -> float | None:
        text = _folded(value)
        if text in NO_LABEL:
            return None
        if (codes := self._codes.get(column)) is not None and text not in codes:
            raise UsageError(
                f"{where}: {column!r} holds {text!r}, which is none of its codes: {', '.join(codes)}"
            )
        if codes is not None:
            self._read[column][text, codes[text]] += 1
            return RESULTS.get(codes[text])
        if text in ("0", "1", "2"):
            self._numbers[column].add(text)
        if (result := _result_of(text)) is not None:
            self._read[column][text, _NAMES[result]] += 1
            return result
        named = [_folded(system) for system in systems]
        if text in named and named[0] != named[1]:
            return RESULTS["ab"[named.index(text)]]
        raise UsageError(
            f"{where}: {column!r} holds {str(value)[:40]!r}, which is not a label; labels are {_KNOWN}"
        )

    def how_read(self) -> Sequence[str]:
        for column, numbers in self._numbers.items():
            if "0" in numbers:
                say = f"`mapping` {self._aspects[0]}={column}:"
                raise UsageError(
                    f"`labels`: {column!r} has the numbers {', '.join(sorted(numbers))}, and 0 can be a tie "
                    f"or the first response; say what they are: {say}0=tie,1=a,2=b or {say}0=a,1=b,2=tie"
                )
        notes = []
        for column, counts in self._read.items():
            is_plain = all(text == result for text, result in counts)
            if len(counts) <= _MOST_VALUES and not is_plain:
                read = (f"{text} → {result} {count:,}" for (text, result), count in sorted(counts.items()))
                notes.append(f"the labels in {column!r} were read as {', '.join(read)}")
        return notes


def _folded(value: Any) -> str:
    """Return a value as text without case and surrounding spaces; a whole number without a fraction."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return (f"{value:g}" if isinstance(value, float) else str(value)).strip().casefold()


def _is_result(value: Any) -> bool:
    text = _folded(value)
    return text in NO_LABEL or _result_of(text) is not None


def _result_of(text: str) -> float | None:
    """Return the result that a text names by itself; None if it names none."""
    if text in _TIES:
        return RESULTS["tie"]
    for result, words in zip("ab", _PLACES, strict=True):
        if text in words:
            return RESULTS[result]
    if _FROM_1_TO_2.fullmatch(text):
        return RESULTS["tie"] if float(text) == 1.5 else RESULTS["a" if float(text) < 1.5 else "b"]
    compared = _COMPARED.fullmatch(text)
    if compared is None or compared[1] == compared[3]:
        return None
    if compared[2][0] in "=~":
        return RESULTS["tie"]
    return RESULTS[compared[1] if compared[2][0] == ">" else compared[3]]
