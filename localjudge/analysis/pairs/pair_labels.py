"""People's labels of pairs, read from files and matched to the pairs of a run.

A label file has a record for each pair, or for each pair and annotator. A record identifies its pair by the
instruction and both responses, in either order, or by `id` and both systems
(`localjudge.analysis.matching.rows`); by `id` alone, with the responses in the order of the run's input.
A label is in a column with the name of an aspect. For a rubric with one aspect, it can also be in one of
`LABEL_COLUMNS`; without any of these, the `chosen` response of a record with `chosen` and `rejected` is better.
Columns with other names are mapped. A list has one label for each annotator.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from localjudge.analysis.matching.human_labels import (
    Labels,
    nothing_found,
    refuse_unequal_chances,
    without_codes,
)
from localjudge.analysis.matching.identity import identities_of
from localjudge.analysis.matching.label_records import LabelRecords
from localjudge.analysis.matching.label_values import NO_LABEL
from localjudge.analysis.matching.rows import JudgedRows
from localjudge.analysis.pairs import RESULTS, JudgedPairs
from localjudge.errors import UsageError
from localjudge.records.outcome_columns import PAIR_DIGESTS
from localjudge.rows.inputs import can_be_read_twice, find_inputs, read_records
from localjudge.rows.pair_columns import PAIR, PAIR_COLUMN_NAMES, SYSTEMS
from localjudge.rows.paths import ABSENT, value_at
from localjudge.rows.record import Record, RecordError
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


def read_pair_labels(
    files: Sequence[str],
    pairs: JudgedPairs,
    mapping: Mapping[str, str] | None = None,
    inputs: Sequence[str] = (),
    equal_chances: bool = True,
) -> Labels:
    """Return the labels of the pairs that were judged, as the numbers of `RESULTS`.

    Args:
        files: label files, or globs of them; without any, the inputs of the run, or if these cannot be read
            again, the columns of its rows.
        pairs: the pairs.
        mapping: the aspect that a column of another name holds.
        inputs: the files of the pairs, if they were moved after the run.
        equal_chances: refuse labels of pairs that were drawn with unequal chances.

    Raises:
        UsageError: a file cannot be read, a value is not a label, no label belongs to any pair, or the chances
            are unequal and must not be.
    """
    own = pairs.manifest.last_start.inputs
    names = find_inputs(files or own if all(map(can_be_read_twice, own)) else files)
    if special := [name for name in names if not can_be_read_twice(name)]:
        raise UsageError(f"`labels` {special[0]}: must be a file, because it is read twice; write it to one")
    reading = _PairMatching(pairs, mapping or {}, inputs)
    for name in names:
        for number, record in read_records(name):
            reading.add(record, f"{name}:{number}")
    for identity, columns in zip(pairs.identities, pairs.columns, strict=True) if not names else ():
        known = zip((*PAIR_DIGESTS, *SYSTEMS), (*identity.digests, *identity.systems), strict=True)
        reading.add({**columns, **dict(known), "id": identity.id}, f"{pairs.folder}: {identity.id}")
    return reading.labels(equal_chances)


class _PairMatching:
    """Matches records to pairs."""

    def __init__(self, pairs: JudgedPairs, mapping: Mapping[str, str], inputs: Sequence[str]) -> None:
        self._pairs, self._mapping = pairs, mapping
        rubric = pairs.manifest.rubric
        self._names, self._fields = pairs.manifest.last_start.columns, rubric.fields
        self._aspects = [name for name in rubric.aspects if name not in mapping.values()]
        self._rows = JudgedRows(pairs.identities, self._fields, lambda: pairs.rows_again(inputs), "pair")
        self._records = LabelRecords()
        self._numbers: dict[str, set[str]] = defaultdict(set)
        self._read: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self._codes = {name: codes for name, codes in map(without_codes, mapping) if codes}
        for name, codes in self._codes.items():
            if unknown := {*codes.values()} - {*RESULTS, "none"}:
                raise UsageError(
                    f"`mapping` {name}: a code stands for a, b, tie or none, not {unknown.pop()!r}"
                )

    def add(self, given: Record, where: str) -> None:
        record, named = self._records.begin(given, where)
        for identity, fields in identities_of(record, where, self._names, self._fields):
            found = self._rows.find(identity)
            places: Counter[str] = Counter()
            for aspect, name, values in self._found({**record, **fields.others}, fields, where):
                for value in values:
                    places[aspect] += 1
                    for row in found.rows:
                        result = self._result(value, name, row, found.is_reversed, where)
                        if result is not None:
                            result = 1 - result if found.is_reversed else result
                            self._records.mark(row, aspect, named, places[aspect], result, where)

    def _found(
        self, record: Mapping[str, Any], fields: Fields, where: str
    ) -> Iterator[tuple[str, str, list[Any]]]:
        """Yield each aspect with labels in a record, the name of the column, and the labels."""
        for mapped, aspect in self._mapping.items():
            name, _ = without_codes(mapped)
            value = value_at(record, name)
            if value is not ABSENT and value is not None:
                yield aspect, name, value if isinstance(value, list) else [value]
        is_only = len(self._pairs.aspects) == 1
        if is_only and self._aspects and fields.shape is not None and fields.shape.label is not None:
            try:
                yield self._aspects[0], "label", fields.shape.result(record, fields.element or {})
            except RecordError as error:
                raise UsageError(f"{where}: {error}") from None
            return
        for aspect in self._aspects:
            for name in (aspect, *(LABEL_COLUMNS if is_only else ())):
                value = value_at(record, name)
                values = value if isinstance(value, list) else [value]
                # A line of `localjudge label` has an object there.
                if value is ABSENT or value is None or isinstance(value, Mapping):
                    continue
                if name == "annotators" and not all(map(_is_result, values)):
                    continue
                yield aspect, name, values
                break
            else:
                if is_only and fields.taken.get(PAIR[0]) == "chosen":
                    yield aspect, "chosen", ["a"]

    def _result(self, value: Any, column: str, place: int, is_reversed: bool, where: str) -> float | None:
        """Return the result that a value names, for the record's order; None if it is empty.

        Raises:
            UsageError: it names none.
        """
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
        systems = [_folded(name) for name in self._pairs.systems[place][:: -1 if is_reversed else 1]]
        if (result := _result_of(text)) is not None:
            self._read[column][text, _NAMES[result]] += 1
            return result
        if text in systems and systems[0] != systems[1]:
            return RESULTS["ab"[systems.index(text)]]
        raise UsageError(
            f"{where}: {column!r} holds {str(value)[:40]!r}, which is not a label; labels are {_KNOWN}"
        )

    def labels(self, equal_chances: bool) -> Labels:
        if equal_chances:
            refuse_unequal_chances(self._records.chance, "this command")
        for column, numbers in self._numbers.items():
            if "0" in numbers:
                say = f"`mapping` {next(iter(self._pairs.aspects))}={column}:"
                raise UsageError(
                    f"`labels`: {column!r} has the numbers {', '.join(sorted(numbers))}, and 0 can be a tie "
                    f"or the first response; say what they are: {say}0=tie,1=a,2=b or {say}0=a,1=b,2=tie"
                )
        marks = self._records.marks
        if not marks:
            raise UsageError(
                nothing_found(self._records, self._rows, str(self._pairs.folder), [*self._pairs.aspects])
            )
        return Labels(
            marks={aspect: marks[aspect] for aspect in self._pairs.aspects if aspect in marks},
            annotators=self._records.annotators,
            independent=self._records.independent,
            digests=(),
            notes=(
                *self._rows.notes("label records"),
                *self._records.notes(len(self._pairs.identities)),
                *self._how_read(),
            ),
        )

    def _how_read(self) -> Iterator[str]:
        """Yield how the labels of each column were read."""
        for column, counts in self._read.items():
            is_plain = all(text == result for text, result in counts)
            if len(counts) <= _MOST_VALUES and not is_plain:
                read = (f"{text} → {result} {count:,}" for (text, result), count in sorted(counts.items()))
                yield f"the labels in {column!r} were read as {', '.join(read)}"


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
