"""The records of label files, as the labels of each row, annotator and aspect, with the chance of the row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from localjudge.arrays import LabelArray
from localjudge.errors import RowError, UsageError
from localjudge.records.outcome_columns import MODEL
from localjudge.rows.paths import ABSENT, look_up
from localjudge.rows.record import Record
from localjudge.runs.notices import exported

ANNOTATOR = "annotator"
"""What `columns` calls the column with the name of the annotator."""
_USUAL_COLUMNS = (ANNOTATOR, "rater", "labeller", "labeler", "judge")
_UNNAMED = "annotator"
"""The name of the annotator of a record without one."""
_DRAWN_ROW: Mapping[str, Any] = {
    "row": str,
    "chance": int | float,
    "skipped": str | None,
    "saw_judge": bool,
}
"""The types of what is read of a line of `localjudge label`."""
_LEAST_CHANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Annotator:
    """The annotator of a label.

    Attributes:
        name: the name in the record, of one annotator or of a list of them.
        number: the number of the annotator in that list, from 1.
    """

    name: str
    number: int

    @property
    def is_named(self) -> bool:
        """Whether the record names the annotator."""
        return self.name != _UNNAMED

    def __str__(self) -> str:
        if self.number == 1 and self.is_named:
            return self.name
        return f"{self.name} {self.number}"


class _LabelKey(NamedTuple):
    """What a label is of."""

    aspect: str
    row: int
    annotator: str


@dataclass(slots=True)
class _Label:
    """A label.

    Attributes:
        value: its value.
        record: the number of the first record that has it, from 1.
        is_contradicted: whether its annotator gave the row another one as well.
    """

    value: float
    record: int
    is_contradicted: bool = False


@dataclass(frozen=True, slots=True)
class _Draw:
    """How a row was drawn for `localjudge label`: the file of labels, and the row's chance to be drawn."""

    file: str
    chance: float


@dataclass(frozen=True, slots=True)
class _DrawnRow:
    """A row that was drawn for `localjudge label`.

    Attributes:
        is_skipped: whether no annotator labelled it.
        weight: 1 / its chance to be drawn.
    """

    is_skipped: bool
    weight: float


class LabelRecords:
    """The records of label files and their labels.

    Args:
        annotator: the column with the name of the annotator; None for one with a usual name.

    Attributes:
        count: number of records.
        columns: the names of their columns.
    """

    def __init__(self, annotator: str | None = None) -> None:
        self.count = 0
        self.columns: set[str] = set()
        self._annotator = annotator
        self._annotator_columns = _USUAL_COLUMNS if annotator is None else (annotator,)
        self._has_annotator = False
        self._labels: dict[_LabelKey, _Label] = {}
        self._first_contradiction = ""
        self._repeating: set[int] = set()  # the records that repeat a label
        self._notices: dict[str, None] = {}
        self._draw: _Draw | None = None  # of the record that was begun
        self._draw_of_row: dict[int, _Draw] = {}
        self._drawn_rows: dict[str, _DrawnRow] = {}
        self._saw_judge = 0  # lines of `localjudge label` with the judge's answer in sight

    def begin(self, record: Record, where: str) -> tuple[Mapping[str, Any], str]:
        """Count a record; return it and the name of its annotator.

        Raises:
            UsageError: it could not be read, has scores of a dry run, or is not as `localjudge label` wrote it.
        """
        if isinstance(record, RowError):
            raise UsageError(f"{where}: {record.reason}")
        self.count += 1
        self._draw = None
        drawn = record.get("label")
        if isinstance(drawn, Mapping) and "chance" in drawn:
            self._begin_drawn(drawn, where)
        self._notices |= dict.fromkeys(exported(record))
        if any(notice.startswith("dry run") for notice in self._notices):
            raise UsageError(
                f"{where}: scores of a dry run mean nothing and cannot be labels; give other labels"
            )
        self.columns.update(record)
        if isinstance(record.get("scores"), Mapping):
            self.columns.update(record["scores"])
        return record, self._annotator_of(record)

    def _begin_drawn(self, drawn: Mapping[str, Any], where: str) -> None:
        """Keep how the row of a line of `localjudge label` was drawn, and whether it was labelled.

        Args:
            drawn: the object in its column `label`.
            where: its file and line.

        Raises:
            UsageError: it is not as `localjudge label` wrote it.
        """
        has_types = all(isinstance(drawn.get(name), types) for name, types in _DRAWN_ROW.items())
        if not has_types or not _LEAST_CHANCE <= drawn["chance"] <= 1:
            raise UsageError(
                f"{where}: `label` is not as `localjudge label` writes it, with a row, a chance above 0 "
                "and up to 1, skipped and saw_judge; give the file as it was written"
            )
        # Samples of different sizes without a preference are one random sample.
        chance = drawn["chance"] if drawn.get("prefer", True) else 1.0
        file, _, _ = where.rpartition(":")
        self._draw = _Draw(file, chance)
        self._saw_judge += drawn["saw_judge"]
        is_skipped = drawn.get("skipped") is not None
        earlier = self._drawn_rows.get(drawn["row"])
        if earlier is not None and not earlier.is_skipped:
            is_skipped = False
        self._drawn_rows[drawn["row"]] = _DrawnRow(is_skipped, weight=1 / chance)

    def _annotator_of(self, record: Mapping[str, Any]) -> str:
        """Return the name of the annotator of a record. In the export of a run, the judge is the annotator."""
        columns = list(self._annotator_columns)
        if "key" in record:
            columns.append(MODEL)
        for column in columns:
            value = look_up(record, column)
            if value not in (ABSENT, None, ""):
                self._has_annotator = True
                return _one_name(value)
        return _UNNAMED

    def check_annotator(self) -> None:
        """Check that a record has the column that is named for the annotator.

        Raises:
            UsageError: none has.
        """
        if self._annotator is not None and not self._has_annotator:
            columns = ", ".join(sorted(self.columns)[:12])
            raise UsageError(
                f"`labels`: no column {self._annotator!r} for the annotator; its columns are {columns}"
            )

    def mark(self, row: int, aspect: str, *, annotator: Annotator, value: float, where: str) -> None:
        """Add a label of a row.

        Args:
            row: the number of the row.
            aspect: the aspect.
            annotator: its annotator.
            value: the label.
            where: the file and line of the record, for a message.

        Raises:
            UsageError: the row has another label, and neither names an annotator.
        """
        if self._draw is not None:
            self._draw_of_row[row] = self._draw
        key = _LabelKey(aspect, row, annotator=str(annotator))
        label = self._labels.get(key)
        if label is None:
            self._labels[key] = _Label(value, record=self.count)
        elif label.value == value:
            if label.record != self.count:
                self._repeating.add(self.count)
        elif annotator.is_named:
            label.is_contradicted = True
            if not self._first_contradiction:
                self._first_contradiction = f"{where}, annotator {annotator.name}"
        else:
            raise UsageError(
                f"{where}: its row has another label of {aspect} already ({label.value:g}, here {value:g}), "
                "and neither record names an annotator; add the column annotator, or, if these are different "
                "rows with equal texts, id"
            )

    @property
    def _counted(self) -> list[_LabelKey]:
        """What the labels that count are of."""
        return [key for key, label in self._labels.items() if not label.is_contradicted]

    @property
    def annotators(self) -> tuple[str, ...]:
        """The annotators, in the order of their first labels."""
        return tuple(dict.fromkeys(key.annotator for key in self._counted))

    @property
    def chance(self) -> dict[int, float]:
        """The chance of each row to be labelled, up to a common factor; in each file, the mean weight is 1."""
        chances_of_files: dict[str, list[float]] = defaultdict(list)
        for draw in self._draw_of_row.values():
            chances_of_files[draw.file].append(draw.chance)
        of_weight_1: dict[str, float] = {}  # the chance in each file whose weight is the mean weight
        for file, chances in chances_of_files.items():
            if len(set(chances)) == 1:
                of_weight_1[file] = chances[0]
            else:
                of_weight_1[file] = 1 / float(np.mean(1 / np.array(chances)))
        return {row: draw.chance / of_weight_1[draw.file] for row, draw in self._draw_of_row.items()}

    @property
    def marks(self) -> dict[str, LabelArray]:
        """The labels of each aspect."""
        chance = self.chance
        has_equal_chances = len(set(chance.values())) < 2
        index_of = {annotator: index for index, annotator in enumerate(self.annotators)}
        keys_of_aspects: dict[str, list[_LabelKey]] = defaultdict(list)
        for key in self._counted:
            keys_of_aspects[key.aspect].append(key)
        marks: dict[str, LabelArray] = {}
        for aspect, keys in keys_of_aspects.items():
            rows = [key.row for key in keys]
            annotators = [index_of[key.annotator] for key in keys]
            values = [self._labels[key].value for key in keys]
            weight = None
            if not has_equal_chances:
                weight = np.array([1 / chance.get(row, 1.0) for row in rows])
            marks[aspect] = LabelArray(
                row=np.array(rows, dtype=np.int32),
                annotator=np.array(annotators, dtype=np.int32),
                value=np.array(values, dtype=np.float64),
                weight=weight,
            )
        return marks

    def notes(self, rows: int) -> tuple[str, ...]:
        """Return remarks for the reader; `rows` is the number of rows that were judged."""
        notes = []
        if self._repeating:
            notes.append(
                f"{len(self._repeating):,} of {self.count:,} label records repeat labels of one row and "
                "annotator"
            )
        contradicted = sum(label.is_contradicted for label in self._labels.values())
        if contradicted:
            notes.append(
                f"{contradicted:,} labels are not used, because their annotator gave the same row another one "
                f"(first: {self._first_contradiction})"
            )
        notes += self._notes_on_sample(rows)
        notes += [f"the labels are scores of a run with this notice: {notice}" for notice in self._notices]
        return tuple(notes)

    def _notes_on_sample(self, rows: int) -> Iterator[str]:
        """Yield remarks on how the rows were drawn and labelled, which the lines of `localjudge label` say."""
        drawn = self._drawn_rows.values()
        skipped = [row for row in drawn if row.is_skipped]
        if skipped:
            weights = np.array([row.weight for row in drawn])
            weights_of_skipped = np.array([row.weight for row in skipped])
            share = weights_of_skipped.sum() / weights.sum()
            yield (
                f"{len(skipped):,} of {len(drawn):,} rows were skipped and are left out; labelled, they "
                f"could move a mean or a share by up to {share:.0%} of its scale"
            )
        labelled = {key.row for key in self._labels}
        if len(set(self.chance.values())) > 1:
            yield (
                "the labelled rows were drawn with unequal chances, and each has the weight of 1 / its chance; "
                "counts are of the rows as they were drawn"
            )
        elif not self._draw_of_row and 0 < len(labelled) < rows:
            yield "the labels do not say how their rows were drawn; they are taken as a random sample"
        if self._saw_judge:
            yield f"{self._saw_judge:,} labels were given with the judge's answer in sight"


def _one_name(value: Any) -> str:
    """Return the name of an annotator; MT-Bench has a list of the judge's model and the name of its prompt."""
    if isinstance(value, list) and value:
        return str(value[0])
    return str(value)
