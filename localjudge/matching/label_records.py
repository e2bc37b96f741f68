"""The records of label files, as the labels of each row, annotator and aspect, with the chance of the row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from localjudge.arrays import LabelArray
from localjudge.errors import RowError, UsageError
from localjudge.records.outcome_columns import MODEL
from localjudge.rows.paths import ABSENT, look_up
from localjudge.rows.record import Record
from localjudge.runs.notices import exported

ANNOTATOR = "annotator"
"""What `columns` calls the column with the name of the annotator."""
_ANNOTATOR = (ANNOTATOR, "rater", "labeller", "labeler", "judge")
_UNNAMED = "annotator"
_DRAWN: Mapping[str, Any] = {
    "row": str,
    "chance": int | float,
    "skipped": str | None,
    "saw_judge": bool,
}
"""The types of what is read of a line of `localjudge label`."""
_LEAST_CHANCE = 1e-9
_Key = tuple[str, int, str]
"""The aspect, the row and the annotator of a label."""


class LabelRecords:
    """The records of label files and their labels.

    Args:
        annotator: the column with the name of the annotator; None for one with a usual name.

    Attributes:
        count: number of records.
        columns: the names of their columns.
    """

    def __init__(self, annotator: str | None = None) -> None:
        self._annotator, self._has_annotator = annotator, False
        self._annotators = _ANNOTATOR if annotator is None else (annotator,)
        self.count = 0
        self.columns: set[str] = set()
        self._labels: dict[_Key, float] = {}
        self._contradicted: dict[_Key, str] = {}
        self._record_of: dict[_Key, int] = {}
        self._repeating: set[int] = set()
        self._notices: dict[str, None] = {}
        self._chance: dict[int, tuple[str, float]] = {}  # the file and the chance of each row
        self._given: tuple[str, float] | None = None
        self._saw_judge = 0  # lines of `localjudge label` with the judge's answer in sight
        self._skipped: dict[str, tuple[bool, float]] = {}  # whether a row has no label, and its weight

    def begin(self, record: Record, where: str) -> tuple[Mapping[str, Any], str]:
        """Count a record; return it and the name of its annotator.

        Raises:
            UsageError: it could not be read, has scores of a dry run, or is not as `localjudge label` wrote it.
        """
        if isinstance(record, RowError):
            raise UsageError(f"{where}: {record.reason}")
        self.count += 1
        self._given = None
        if isinstance(drawn := record.get("label"), Mapping) and "chance" in drawn:
            if not (
                all(isinstance(drawn.get(name), types) for name, types in _DRAWN.items())
                and _LEAST_CHANCE <= drawn["chance"] <= 1
            ):
                raise UsageError(
                    f"{where}: `label` is not as `localjudge label` writes it, with a row, a chance above 0 "
                    "and up to 1, skipped and saw_judge; give the file as it was written"
                )
            # Samples of different sizes without a preference are one random sample.
            chance = drawn["chance"] if drawn.get("prefer", True) else 1.0
            self._given = where.rpartition(":")[0], chance
            self._saw_judge += drawn["saw_judge"]
            is_skipped, _ = self._skipped.get(drawn["row"], (True, 0.0))
            self._skipped[drawn["row"]] = is_skipped and drawn.get("skipped") is not None, 1 / chance
        self._notices |= dict.fromkeys(exported(record))
        if any(notice.startswith("dry run") for notice in self._notices):
            raise UsageError(
                f"{where}: scores of a dry run mean nothing and cannot be labels; give other labels"
            )
        self.columns.update(record)
        if isinstance(record.get("scores"), Mapping):
            self.columns.update(record["scores"])
        # In the export of a run, the judge is the annotator.
        judge = (MODEL,) if "key" in record else ()
        for name in (*self._annotators, *judge):
            value = look_up(record, name)
            if value not in (ABSENT, None, ""):
                self._has_annotator = True
                return record, _one_name(value)
        return record, _UNNAMED

    def check_annotator(self) -> None:
        """Check that a record has the column that is named for the annotator.

        Raises:
            UsageError: none has.
        """
        if self._annotator is not None and not self._has_annotator:
            known = ", ".join(sorted(self.columns)[:12])
            raise UsageError(
                f"`labels`: no column {self._annotator!r} for the annotator; its columns are {known}"
            )

    def mark(self, row: int, aspect: str, named: str, place: int, value: float, where: str) -> None:
        """Add a label of a row.

        Args:
            row: the number of the row.
            aspect: the aspect.
            named: the name of the annotator, or of a list of annotators.
            place: the place of the label in that list, from 1.
            value: the label.
            where: the place of the record, for a message.

        Raises:
            UsageError: the row has another label, and neither names an annotator.
        """
        if self._given is not None:
            self._chance[row] = self._given
        annotator = named if place == 1 and named != _UNNAMED else f"{named} {place}"
        key = aspect, row, annotator
        if (before := self._labels.setdefault(key, value)) != value:
            if named == _UNNAMED:
                raise UsageError(
                    f"{where}: its row has another label of {aspect} already ({before:g}, here {value:g}), and "
                    "neither record names an annotator; add the column annotator, or, if these are different "
                    "rows with equal texts, id"
                )
            self._contradicted.setdefault(key, f"{where}, annotator {named}")
        elif self._record_of.setdefault(key, self.count) != self.count:
            self._repeating.add(self.count)

    @property
    def _counted(self) -> dict[_Key, float]:
        return {key: value for key, value in self._labels.items() if key not in self._contradicted}

    @property
    def annotators(self) -> tuple[str, ...]:
        """The annotators, in the order of their first labels."""
        return tuple(dict.fromkeys(annotator for _, _, annotator in self._counted))

    @property
    def chance(self) -> dict[int, float]:
        """The chance of each row to be labelled, up to a common factor; in each file, the mean weight is 1."""
        of_files: dict[str, list[float]] = defaultdict(list)
        for file, chance in self._chance.values():
            of_files[file].append(chance)
        of_weight_1 = {
            file: 1 / float(np.mean(1 / np.array(chances))) if len(set(chances)) > 1 else chances[0]
            for file, chances in of_files.items()
        }
        return {row: chance / of_weight_1[file] for row, (file, chance) in self._chance.items()}

    @property
    def marks(self) -> dict[str, LabelArray]:
        """The labels of each aspect."""
        number, chance = {name: place for place, name in enumerate(self.annotators)}, self.chance
        labels: dict[str, list[tuple[int, int, float, float]]] = defaultdict(list)
        for (aspect, row, annotator), value in self._counted.items():
            labels[aspect].append((row, number[annotator], value, 1 / chance.get(row, 1.0)))
        is_even = len(set(chance.values())) < 2
        return {
            aspect: LabelArray(
                np.array(rows, dtype=np.int32),
                np.array(annotators, dtype=np.int32),
                np.array(values, dtype=np.float64),
                None if is_even else np.array(weights),
            )
            for aspect, of_aspect in labels.items()
            for rows, annotators, values, weights in [zip(*of_aspect, strict=True)]
        }

    def notes(self, rows: int) -> tuple[str, ...]:
        """Return remarks for the reader; `rows` is the number of rows that were judged."""
        repeating, contradicted = len(self._repeating), self._contradicted
        repeated = [f"{repeating:,} of {self.count:,} label records repeat labels of one row and annotator"]
        origins = (f"the labels are scores of a run with this notice: {notice}" for notice in self._notices)
        differ = [
            f"{len(contradicted):,} labels are not used, because their annotator gave the same row another one "
            f"(first: {next(iter(contradicted.values()), '')})"
        ]
        return (*repeated * bool(repeating), *differ * bool(contradicted), *self._of_people(rows), *origins)

    def _of_people(self, rows: int) -> Iterator[str]:
        """Yield remarks on how the rows were drawn and labelled, which the lines of `localjudge label` say."""
        weights = np.array([weight for _, weight in self._skipped.values()])
        skipped = np.array([is_skipped for is_skipped, _ in self._skipped.values()], dtype=np.bool_)
        if skipped.any():
            share = weights[skipped].sum() / weights.sum()
            yield (
                f"{skipped.sum():,} of {len(skipped):,} rows were skipped and are left out; labelled, they "
                f"could move a mean or a share by up to {share:.0%} of its scale"
            )
        if len(set(self.chance.values())) > 1:
            yield (
                "the labelled rows were drawn with unequal chances, and each has the weight of 1 / its chance; "
                "counts are of the rows as they were drawn"
            )
        elif not self._chance and 0 < len({row for _, row, _ in self._labels}) < rows:
            yield "the labels do not say how their rows were drawn; they are taken as a random sample"
        if self._saw_judge:
            yield f"{self._saw_judge:,} labels were given with the judge's answer in sight"


def _one_name(value: Any) -> str:
    """Return the name of an annotator; MT-Bench has a list of the judge's model and the name of its prompt."""
    return str(value[0] if isinstance(value, list) and value else value)
