"""The options of what computes statistics of runs and reads more than the runs, each declared once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from localjudge.errors import UsageError
from localjudge.settings import Flag
from localjudge.system.requirements import require

if TYPE_CHECKING:
    from localjudge.matching.judged_rows import JudgedPairs
    from localjudge.matching.labels import Labels
    from localjudge.matching.scores import Scores

LabelColumns = Annotated[
    list[str] | None,
    Flag(
        "The label column of an aspect, or of the share of a label: grade=correct=right reads the share "
        "grade=correct from the column right. Codes are stated after it: wit=label:good=5,bad=1. "
        "better=winner@system: labels of pairs that name the better system.",
        "OURS=THEIRS",
        name="--map",
    ),
]
LabelFields = Annotated[
    list[str] | None,
    Flag(
        "The label file's column for a field, or for the annotator, if it has a name of its own.",
        "FIELD=COLUMN",
        name="--column",
    ),
]
MovedInputs = Annotated[list[str] | None, Flag("The input files of the run, if they were moved.", "FILE")]
CalibrationFile = Annotated[
    Path | None, Flag("Apply the output of `calibrate`; stored scores do not change.", "FILE")
]
IntervalFile = Annotated[
    Path | None, Flag("Add the interval of each score: the output of `calibrate --interval`.", "FILE")
]


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """The files that statistics of runs read besides the runs."""

    labels: Annotated[
        list[str] | None,
        Flag("Label files: records with id, or with their texts, and a column for each aspect.", "FILE"),
    ] = None
    mapping: LabelColumns = None
    columns: LabelFields = None
    inputs: MovedInputs = None

    @property
    def files(self) -> list[str]:
        """The names of all these files."""
        return list(self.labels or ()) + list(self.moved)

    def require_labels(self) -> None:
        """Require files of labels."""
        if not self.labels:
            raise UsageError("--labels is missing: name the files with the labels of the rows")

    @property
    def moved(self) -> Sequence[str]:
        """The inputs, if they were moved."""
        return self.inputs or ()

    def require(self, what: str) -> None:
        """Require the packages of what computes statistics, and the inputs, if they were moved."""
        from localjudge.rows.formats import input_extras
        from localjudge.rows.inputs import find_inputs

        require(what, "trust", *input_extras(self.files))
        find_inputs(self.moved)

    def labels_of(self, judged: Scores | JudgedPairs, *, equal_chances: bool = True) -> Labels:
        """Return the labels of the judged rows; the labels of pairs can be in the inputs.

        Args:
            judged: the rows.
            equal_chances: refuse labels of rows that were drawn with unequal chances.
        """
        from localjudge.matching.label_records import ANNOTATOR
        from localjudge.matching.labels import label_targets, parse_mapping, read_labels
        from localjudge.rows.columns import parse_columns

        rubric = judged.manifests[0].rubric
        fields = rubric.fields + (ANNOTATOR,)
        return read_labels(
            self.labels or self.moved,
            judged,
            mapping=parse_mapping(self.mapping or (), label_targets(rubric)),
            inputs=self.moved,
            equal_chances=equal_chances,
            columns=parse_columns(self.columns or (), fields),
        )


@dataclass(frozen=True, kw_only=True)
class ReportOptions(LabelOptions):
    """What a report has besides the rows of its runs."""

    title: Annotated[str | None, Flag("Its title.  [default: the runs' names]", "TEXT")] = None
    calibration: CalibrationFile = None
    intervals: IntervalFile = None

    @property
    def files(self) -> list[str]:
        """The names of all these files."""
        calibrations = [str(file) for file in (self.calibration, self.intervals) if file is not None]
        return super().files + calibrations
