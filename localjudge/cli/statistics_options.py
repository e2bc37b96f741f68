"""The options that commands share which compute statistics of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from localjudge.cli.options import AsJson, as_document, input_extras, print_json, print_table
from localjudge.settings import Flag

if TYPE_CHECKING:
    from localjudge.matching.judged_rows import JudgedPairs
    from localjudge.matching.labels import Labels
    from localjudge.matching.scores import Scores, Slices
    from localjudge.modes.mode import Mode
    from localjudge.report.tables import Findings
    from localjudge.studies.by_slice import Sliced

RunFolders = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories.")]
LabelColumns = Annotated[
    list[str] | None,
    Flag(
        "The label column of an aspect, or of the share of a label: grade=correct=right reads the share "
        "grade=correct from the column right. Codes are stated after it: wit=label:good=5,bad=1.",
        "OURS=THEIRS",
        name="--map",
    ),
]
MovedInputs = Annotated[list[str] | None, Flag("The input files of the run, if they were moved.", "FILE")]
CalibrationFile = Annotated[
    Path | None, Flag("Apply the output of `calibrate`; stored scores do not change.", "FILE")
]
IntervalFile = Annotated[
    Path | None, Flag("Add the interval of each score: the output of `calibrate --interval`.", "FILE")
]
AllowNoGain = Annotated[list[str] | None, Flag("Calibrate this aspect although no gain is shown.", "ASPECT")]
ByColumn = Annotated[
    str | None,
    Flag(
        "Also print the statistics for each value of this column of the rows, such as topic; differences "
        "are adjusted for the number of values.",
        "COLUMN",
    ),
]
ScoresOf = Annotated[
    Literal["expected", "integer"] | None,
    Flag("Which scores to compare.  [default: expected, if the runs have them]", "expected|integer"),
]

AllTables = Annotated[bool, Flag("Print every table.", name="--all")]


LabelFiles = Annotated[
    list[str],
    Flag("Label files: records with id, or instruction and candidate, and a column for each aspect.", "FILE"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelOptions:
    """The files that statistics of runs read besides the runs. A command declares its own `labels`."""

    labels: Annotated[list[str] | None, Flag("Labels of rows.", "FILE")] = None
    mapping: LabelColumns = None
    inputs: MovedInputs = None

    @property
    def moved(self) -> Sequence[str]:
        """The inputs, if they were moved."""
        return self.inputs or ()

    def require(self, command: str) -> None:
        """Require the packages of a command that computes statistics, and the inputs, if they were moved."""
        from localjudge.rows.inputs import find_inputs
        from localjudge.system.requirements import require

        require(command, "trust", *input_extras([*(self.labels or ()), *self.moved]))
        find_inputs(self.moved)

    def labels_of(self, judged: Scores | JudgedPairs, equal_chances: bool = True) -> Labels:
        """Return the labels of the judged rows; the labels of pairs can be in the inputs."""
        from localjudge.matching.labels import label_targets, parse_mapping, read_labels

        ours = parse_mapping(self.mapping or (), label_targets(judged.manifests[0].rubric))
        return read_labels(self.labels or self.moved, judged, ours, self.moved, equal_chances)

    def slices(self, judged: Scores | JudgedPairs, column: str) -> Slices:
        """Return the slices of the judged rows by the values of a column."""
        from localjudge.matching.scores import read_slices

        return read_slices(judged.folders, judged.manifests, column, self.moved)


def common_mode(runs: Sequence[Path], **refused: Mapping[str, object]) -> Mode[Any]:
    """Return what the rubrics of the runs judge.

    Args:
        runs: the run directories.
        refused: the values of the options that runs with these statistics do not take (`Mode.statistics`).

    Raises:
        UsageError: the runs have several modes, aspects or scales, or an option is given that they do not take.
    """
    from localjudge.matching.run_rows import common_rubric
    from localjudge.runs.run_manifest import read_manifest

    mode = common_rubric(runs, [read_manifest(run) for run in runs]).mode
    mode.refuse_options(refused)
    return mode


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsOptions:
    """The options of every command that computes statistics of runs."""

    allow_dry_run: Annotated[bool, Flag("Accept a dry run, whose scores mean nothing.")] = False
    resamples: Annotated[int, Flag("The number of resamples for the intervals.", "N", least=100)] = 1000
    seed: Annotated[int, Flag("The seed of the resampling.", "S")] = 0
    as_json: AsJson = False

    @property
    def computing(self) -> str:
        """The name of the step that computes the statistics."""
        return f"computing with {self.resamples:,} resamples"

    def check(self, runs: Iterable[Path]) -> None:
        """Refuse dry runs, unless they are allowed."""
        from localjudge.runs.notices import refuse_dry_run
        from localjudge.runs.run_manifest import read_manifest

        for run in () if self.allow_dry_run else runs:
            refuse_dry_run(read_manifest(run), run)

    def print(
        self,
        document: Any,
        found: Findings,
        all_tables: bool = False,
        sliced: Sliced | None = None,
    ) -> None:
        """Print a result, a dataclass or its fields, as JSON or as tables, and that of each slice after it."""
        from localjudge.cli.printed_tables import printed_findings, printed_table
        from localjudge.report.tables import slice_table

        if self.as_json:
            document = document if isinstance(document, dict) else as_document(document)
            print_json(document if sliced is None else {**document, "slices": sliced})
            return
        print_table(printed_findings(found, all_tables))
        for each in () if sliced is None else ("", printed_table(slice_table(sliced)), sliced.note):
            print_table(each)
