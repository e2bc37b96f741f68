"""Labels by people (or by another judge): read from files, and matched to the rows of a run.

A label file has a record for each row, or for each row and annotator, in JSONL, CSV or Parquet. A record
identifies its row by `id` (and by `system` if several rows share the id), or by `instruction` and `candidate`.
The labels are in columns named like the aspects, at the top level or inside an object `scores`. Columns with
other names are mapped; such a name can be a path (`ratings.overall`, `scores.0`). A list of numbers has one
label for each annotator. The column `annotator` (or `rater`, `labeller`, `labeler`, `judge`) names the
annotator. `localjudge.analysis.label_values` has the values.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localjudge.analysis.label_values import LabelColumn
from localjudge.analysis.measured_texts import judged_rows
from localjudge.analysis.scores import Floats, Integers, Scores
from localjudge.errors import UsageError
from localjudge.rows.columns import COLUMN_NAMES
from localjudge.rows.inputs import STDIN, find_inputs, read_records
from localjudge.rubrics.aspect import Aspect
from localjudge.runs.notices import exported

_ANNOTATOR = ("annotator", "rater", "labeller", "labeler", "judge")
_UNNAMED = "annotator"


@dataclass(frozen=True, slots=True)
class Marks:
    """The m labels of one aspect: the row of the scores, the annotator and the number of each, all [m]."""

    row: Integers
    annotator: Integers
    value: Floats

    def of_rows(self, chosen: NDArray[np.bool_]) -> Marks:
        """Return the labels of the chosen rows, a mask of the rows of the scores."""
        kept = chosen[self.row]
        return Marks(self.row[kept], self.annotator[kept], self.value[kept])

    def means(self) -> tuple[Integers, Floats]:
        """Return the rows that have labels, and the mean label of each."""
        rows, place = np.unique(self.row, return_inverse=True)
        return rows, np.bincount(place, self.value) / np.bincount(place)


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels matched to scores.

    `marks` has the labels of each score column, and `nominal` those of each aspect without an order, as numbers
    from 0; these also give the marks of the shares of its labels, 0 and 1. `digests` has the SHA-256 of each
    file, and `notes` remarks for the reader.
    """

    marks: Mapping[str, Marks]
    annotators: tuple[str, ...]
    digests: tuple[str, ...]
    notes: tuple[str, ...]
    nominal: Mapping[str, Marks] = field(default_factory=dict)

    @property
    def aspects(self) -> tuple[str, ...]:
        return tuple(self.marks)

    def means(self, aspect: str) -> tuple[Integers, Floats]:
        """Return the rows that have labels of this aspect, and the mean label of each."""
        return self.marks[aspect].means()


def parse_mapping(assignments: Iterable[str], targets: Sequence[str]) -> dict[str, str]:
    """Parse `["overall=helpfulness"]` as `{"overall": "helpfulness"}`: a column's name, and what it holds.

    Args:
        assignments: the texts.
        targets: the aspects, and the shares of labels such as `grade=correct`.

    Raises:
        UsageError: the target is unknown, or the text is not an assignment.
    """
    mapping: dict[str, str] = {}
    for assignment in assignments:
        theirs, equals, ours = assignment.partition("=")
        if not equals or not theirs or ours not in targets:
            raise UsageError(
                f"--map {assignment}: write THEIRS=OURS, where OURS is one of {', '.join(targets)}"
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
        mapping: the aspect, or the share of a label, that a column of another name holds.
        inputs: the files of the rows, for labels that are matched by instruction and candidate.

    Raises:
        UsageError: a file cannot be read, a value is no label, or no label belongs to any row.
    """
    names = find_inputs(files)
    if special := [name for name in names if name == STDIN or not Path(name).is_file()]:
        raise UsageError(
            f"--labels {special[0]}: must be a file, because it is read twice; write it to one first"
        )
    reading = _Matching(scores, columns_of(scores.rubric.aspects, mapping), inputs)
    for name in names:
        for number, record in read_records(name):
            reading.add(record, f"{name}:{number}")
    return reading.labels(tuple(hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in names))


def columns_of(aspects: Mapping[str, Aspect], mapping: Mapping[str, str] | None = None) -> list[LabelColumn]:
    """Return the label columns to read: mapped columns, and columns with the names of the other aspects.

    Args:
        aspects: the aspects.
        mapping: the aspect, or the share of a label, that a column of another name holds.
    """
    mapping = mapping or {}
    mapped = [
        LabelColumn.of(name, target, aspects[target])
        if target in aspects
        else LabelColumn.of_share(name, target)
        for name, target in mapping.items()
    ]
    taken = {target.partition("=")[0] for target in mapping.values()}
    return [*mapped, *(LabelColumn.of(name, name, each) for name, each in aspects.items() if name not in taken)]


class LabelRecords:
    """The records of label files and their labels, as plain arrays.

    Attributes:
        count: number of records.
        lost: number of records that match nothing that was judged.
        columns: the names of their columns.
    """

    def __init__(self) -> None:
        self.count = self.lost = 0
        self.columns: set[str] = set()
        self._annotators: dict[str, int] = {}
        self._marks: dict[str, tuple[array[int], array[int], array[float]]] = {}
        self._given: dict[tuple[int, str, str], int] = defaultdict(int)
        self._notices: dict[str, None] = {}

    def begin(self, record: Mapping[str, Any] | str, where: str) -> tuple[Mapping[str, Any], str]:
        """Count a record; return it and the name of its annotator.

        Raises:
            UsageError: it could not be read, or has scores of a dry run.
        """
        if isinstance(record, str):
            raise UsageError(f"{where}: {record}")
        self.count += 1
        self._notices |= dict.fromkeys(exported(record))
        if any(notice.startswith("dry run") for notice in self._notices):
            raise UsageError(
                f"{where}: scores of a dry run mean nothing and cannot be labels; give other labels"
            )
        self.columns.update(record)
        if isinstance(record.get("scores"), Mapping):
            self.columns.update(record["scores"])
        named = (str(record[name]) for name in _ANNOTATOR if record.get(name) not in (None, ""))
        return record, next(named, _UNNAMED)

    def mark(self, row: int, aspect: str, named: str, value: float) -> None:
        """Add a label of a row by an annotator."""
        # A second label of a row by the same name (or without a name) counts as another annotator's label.
        self._given[row, aspect, named] += 1
        place = self._given[row, aspect, named]
        annotator = named if place == 1 and named != _UNNAMED else f"{named} {place}"
        rows, annotators, values = self._marks.setdefault(aspect, (array("i"), array("i"), array("d")))
        rows.append(row)
        annotators.append(self._annotators.setdefault(annotator, len(self._annotators)))
        values.append(value)

    @property
    def marks(self) -> dict[str, Marks]:
        """The labels of each aspect."""
        return {
            aspect: Marks(
                np.array(rows, dtype=np.int32),
                np.array(annotators, dtype=np.int32),
                np.array(values, dtype=np.float64),
            )
            for aspect, (rows, annotators, values) in self._marks.items()
        }

    @property
    def annotators(self) -> tuple[str, ...]:
        return tuple(self._annotators)

    def notes(self, judged: str) -> tuple[str, ...]:
        """Return remarks for the reader; `judged` is the noun for what was judged, such as "row"."""
        lost = f"{self.lost} of {self.count} label records match no judged {judged}"
        origins = (f"the labels are scores of a run with this notice: {notice}" for notice in self._notices)
        return (*[lost] * bool(self.lost), *origins)


class _Matching:
    """Matches records to rows."""

    def __init__(self, scores: Scores, columns: list[LabelColumn], inputs: Sequence[str]) -> None:
        self._scores, self._columns, self._inputs = scores, columns, inputs
        self._by_id: dict[str, list[int]] = defaultdict(list)
        for row, name in enumerate(scores.ids):
            self._by_id[name].append(row)
        self._by_text: dict[bytes, list[int]] | None = None
        self._records = LabelRecords()

    def add(self, given: Mapping[str, Any] | str, where: str) -> None:
        record, named = self._records.begin(given, where)
        rows = self._rows(record, where)
        self._records.lost += not rows
        for column in self._columns:
            for value in column.read(record, where):
                for row in rows if value is not None else ():
                    self._records.mark(row, column.target, named, value or 0.0)

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
        given = self._records.marks
        if not given:
            raise UsageError(self._nothing())
        nominal = {aspect: given[aspect] for aspect in self._scores.nominal if aspect in given}
        for aspect, marks in nominal.items():
            for place, label in enumerate(self._scores.nominal[aspect]):
                given[f"{aspect}={label}"] = replace(marks, value=(marks.value == place).astype(np.float64))
        return Labels(
            marks={column: given[column] for column in self._scores.aspects if column in given},
            nominal=nominal,
            annotators=self._records.annotators,
            digests=digests,
            notes=self._records.notes("row"),
        )

    def _nothing(self) -> str:
        records = self._records
        if records.count and records.lost == records.count:
            return (
                f"--labels: none of its {records.count} records matches a row of {self._scores.where}; records "
                "are matched by id, or by instruction and candidate if the inputs can be read (--inputs)"
            )
        columns = ", ".join(sorted(records.columns)[:12])
        return (
            f"--labels: no label of {', '.join(self._scores.rubric.aspects)}; its columns are {columns}; "
            "map a column with --map THEIRS=OURS"
        )


def _digest(instruction: str, candidate: str) -> bytes:
    return hashlib.sha256(repr((instruction, candidate)).encode(errors="replace")).digest()[:16]
