"""Labels by people (or by another judge): read from files, and matched to the rows of a run.

A label file has a record for each row, or for each row and annotator, in JSONL, CSV or Parquet. A record
identifies its row by `id` (and by `system` if several rows share the id), or by `instruction` and `candidate`.
The labels are in columns named like the aspects, at the top level or inside an object `scores`. Columns with
other names are mapped; such a name can be a path (`ratings.overall`, `scores.0`). A list of numbers has one
label for each annotator. The column `annotator` (or `rater`, `labeller`, `labeler`, `judge`) names the
annotator. An empty value, null or "N/A" means that there is no label.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from localjudge.analysis.measured_texts import judged_rows
from localjudge.analysis.scores import Floats, Integers, Scores
from localjudge.errors import UsageError
from localjudge.rows.columns import COLUMN_NAMES
from localjudge.rows.inputs import STDIN, find_inputs, read_records
from localjudge.runs.notices import exported

_ANNOTATOR = ("annotator", "rater", "labeller", "labeler", "judge")
_UNNAMED = "annotator"
_LARGEST = 1e9
"""Largest absolute label: squares of larger numbers lose precision, and finally overflow."""
_NONE = frozenset({"", "n/a", "na", "nan", "none", "null", "-"})


@dataclass(frozen=True, slots=True)
class Marks:
    """The m labels of one aspect: the row of the scores, the annotator and the number of each, all [m]."""

    row: Integers
    annotator: Integers
    value: Floats

    def means(self) -> tuple[Integers, Floats]:
        """Return the rows that have labels, and the mean label of each."""
        rows, place = np.unique(self.row, return_inverse=True)
        return rows, np.bincount(place, self.value) / np.bincount(place)


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels matched to scores. `digests` has the SHA-256 of each file, and `notes` remarks for the reader."""

    marks: Mapping[str, Marks]
    annotators: tuple[str, ...]
    digests: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def aspects(self) -> tuple[str, ...]:
        return tuple(self.marks)

    def means(self, aspect: str) -> tuple[Integers, Floats]:
        """Return the rows that have labels of this aspect, and the mean label of each."""
        return self.marks[aspect].means()


def parse_mapping(assignments: Iterable[str], aspects: Sequence[str]) -> dict[str, str]:
    """Parse `["overall=helpfulness"]` as `{"overall": "helpfulness"}`: a column's name, and its aspect.

    Raises:
        UsageError: the aspect is unknown, or the text is not an assignment.
    """
    mapping: dict[str, str] = {}
    for assignment in assignments:
        theirs, equals, ours = assignment.partition("=")
        if not equals or not theirs or ours not in aspects:
            raise UsageError(
                f"--map {assignment}: write THEIRS=OURS, where OURS is one of {', '.join(aspects)}"
            )
        mapping[theirs] = ours
    return mapping


def read_labels(
    files: Sequence[str],
    scores: Scores,
    mapping: Mapping[str, str] | None = None,
    inputs: Sequence[str] = (),
) -> Labels:
    """Return the labels of the rows that were judged.

    Args:
        files: label files, or globs of them.
        scores: the rows.
        mapping: the aspect that a column of another name holds.
        inputs: the files of the rows, for labels that are matched by instruction and candidate.

    Raises:
        UsageError: a file cannot be read, a label is not a number, or no label belongs to any row.
    """
    names = find_inputs(files)
    if special := [name for name in names if name == STDIN or not Path(name).is_file()]:
        raise UsageError(
            f"--labels {special[0]}: must be a file, because it is read twice; write it to one first"
        )
    reading = _Matching(scores, columns_of(scores.aspects, mapping), inputs)
    for name in names:
        for number, record in read_records(name):
            reading.add(record, f"{name}:{number}")
    return reading.labels(tuple(hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in names))


def columns_of(aspects: Sequence[str], mapping: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """Return the label columns to read, each with its aspect: mapped columns, and columns with the names of the
    other aspects."""
    mapping = mapping or {}
    own = [(aspect, aspect) for aspect in aspects if aspect not in mapping.values()]
    return [*mapping.items(), *own]


def label_values(record: Mapping[str, Any], column: str, where: str) -> list[float | None]:
    """Return the labels in a record's column: one, or one per annotator; an empty list without this column.

    Raises:
        UsageError: a label is not a number.
    """
    found = _at(record, column)
    inner = record.get("scores")
    if found is None and isinstance(inner, Mapping):
        found = _at(inner, column)
    return (
        []
        if found is None
        else [_number(value, column, where) for value in (found if isinstance(found, list) else [found])]
    )


def _at(record: Mapping[str, Any], column: str) -> Any:
    """Return the value of a column, or a nested value: `scores.rubric`, `all_scores.0`."""
    if column in record:
        return record[column]
    found: Any = record
    for step in column.split("."):
        if isinstance(found, Mapping):
            found = found.get(step)
        elif isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    return found


def _number(value: Any, column: str, where: str) -> float | None:
    if value is None or (isinstance(value, str) and value.strip().lower() in _NONE):
        return None
    try:
        number = float("" if isinstance(value, bool) else value)
    except (TypeError, ValueError):
        raise UsageError(f"{where}: {column!r} holds {str(value)[:40]!r}, which is not a number") from None
    if number != number:
        return None
    if abs(number) > _LARGEST:
        raise UsageError(
            f"{where}: {column!r} holds {str(value)[:40]!r}; a label is a number of at most {_LARGEST:g}"
        )
    return number


class _Matching:
    """Matches records to rows."""

    def __init__(self, scores: Scores, columns: list[tuple[str, str]], inputs: Sequence[str]) -> None:
        self._scores, self._columns, self._inputs = scores, columns, inputs
        self._by_id: dict[str, list[int]] = defaultdict(list)
        for row, name in enumerate(scores.ids):
            self._by_id[name].append(row)
        self._by_text: dict[bytes, list[int]] | None = None
        self._annotators: dict[str, int] = {}
        self._marks: dict[str, tuple[array[int], array[int], array[float]]] = {}
        self._given: dict[tuple[int, str, str], int] = defaultdict(int)
        self._records = self._lost = 0
        self._seen: set[str] = set()
        self._notices: dict[str, None] = {}

    def add(self, record: Mapping[str, Any] | str, where: str) -> None:
        if isinstance(record, str):
            raise UsageError(f"{where}: {record}")
        self._records += 1
        self._notices |= dict.fromkeys(exported(record))
        if any(notice.startswith("dry run") for notice in self._notices):
            raise UsageError(
                f"{where}: scores of a dry run mean nothing and cannot be labels; give other labels"
            )
        self._seen.update(record)
        if isinstance(record.get("scores"), Mapping):
            self._seen.update(record["scores"])
        rows = self._rows(record, where)
        self._lost += not rows
        named = next((str(record[name]) for name in _ANNOTATOR if record.get(name) not in (None, "")), _UNNAMED)
        for column, aspect in self._columns:
            for value in label_values(record, column, where):
                for row in rows if value is not None else ():
                    self._mark(row, aspect, named, value or 0.0)

    def _mark(self, row: int, aspect: str, named: str, value: float) -> None:
        # A second label of a row by the same name (or without a name) counts as another annotator's label.
        self._given[row, aspect, named] += 1
        place = self._given[row, aspect, named]
        annotator = named if place == 1 and named != _UNNAMED else f"{named} {place}"
        rows, annotators, values = self._marks.setdefault(aspect, (array("i"), array("i"), array("d")))
        rows.append(row)
        annotators.append(self._annotators.setdefault(annotator, len(self._annotators)))
        values.append(value)

    def _rows(self, record: Mapping[str, Any], where: str) -> list[int]:
        """Return the rows of a record: several if several runs judged the row."""
        fields = {
            field: str(record[name])
            for field, names in COLUMN_NAMES.items()
            for name in names[::-1]
            if record.get(name) not in (None, "")
        }
        rows = self._by_id.get(fields.get("id", ""), [])
        if not rows and {"instruction", "candidate"} <= set(fields):
            rows = self._texts().get(_digest(fields["instruction"], fields["candidate"]), [])
        systems = [self._scores.systems[self._scores.system[row]] for row in rows]
        if len(set(systems)) <= 1:
            return rows
        if "system" not in fields:
            raise UsageError(
                f"{where}: several systems have a row with this id; add a column with the name of the system"
            )
        return [row for row, system in zip(rows, systems, strict=True) if system == fields["system"]]

    def _texts(self) -> Mapping[bytes, list[int]]:
        if self._by_text is None:
            self._by_text = defaultdict(list)
            for place, row in judged_rows(self._scores, self._inputs):
                self._by_text[_digest(row.instruction, row.candidate)].append(place)
        return self._by_text

    def labels(self, digests: tuple[str, ...]) -> Labels:
        if not self._marks:
            raise UsageError(self._nothing())
        notes = []
        if self._lost:
            notes.append(f"{self._lost} of {self._records} label records match no judged row")
        notes += [f"the labels are scores of a run with this notice: {notice}" for notice in self._notices]
        aspects = [aspect for aspect in self._scores.aspects if aspect in self._marks]
        return Labels(
            marks={
                aspect: Marks(
                    np.array(self._marks[aspect][0], dtype=np.int32),
                    np.array(self._marks[aspect][1], dtype=np.int32),
                    np.array(self._marks[aspect][2], dtype=np.float64),
                )
                for aspect in aspects
            },
            annotators=tuple(self._annotators),
            digests=digests,
            notes=tuple(notes),
        )

    def _nothing(self) -> str:
        if self._records and self._lost == self._records:
            return (
                f"--labels: none of its {self._records} records matches a row of {self._scores.where}; records "
                "are matched by id, or by instruction and candidate if the inputs can be read (--inputs)"
            )
        columns = ", ".join(sorted(self._seen)[:12])
        return (
            f"--labels: no label of {', '.join(self._scores.aspects)}; its columns are {columns}; "
            "map a column with --map THEIRS=OURS"
        )


def _digest(instruction: str, candidate: str) -> bytes:
    return hashlib.sha256(repr((instruction, candidate)).encode(errors="replace")).digest()[:16]
