"""The options that commands share which compute statistics of runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from localjudge.cli.options import AsJson, print_json, print_table

if TYPE_CHECKING:
    from localjudge.analysis.by_slice import Sliced

RunFolders = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories.")]
LabelFiles = Annotated[
    list[str],
    typer.Option(
        "--labels",
        metavar="FILE",
        help="Label files: records with id, or instruction and candidate, and a column for each aspect.",
    ),
]
SomeLabelFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--labels",
        metavar="FILE",
        help="Labels of a random sample of the rows, to estimate means of the human score.",
    ),
]
LabelColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="THEIRS=OURS",
        help="The aspect that a label column holds, or the share of a label: correct=grade=correct.",
    ),
]
MovedInputs = Annotated[
    list[str] | None,
    typer.Option("--inputs", metavar="FILE", help="The input files of the run, if they were moved."),
]
CalibrationFile = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        metavar="FILE",
        help="Apply the output of `calibrate`; stored scores do not change.",
    ),
]
IntervalFile = Annotated[
    Path | None,
    typer.Option(
        "--intervals",
        metavar="FILE",
        help="Add the interval of each score: the output of `calibrate --interval`.",
    ),
]
AllowNoGain = Annotated[
    list[str] | None,
    typer.Option("--allow-no-gain", metavar="ASPECT", help="Calibrate this aspect although no gain is shown."),
]
ByColumn = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Also by the values of this column of the rows, such as topic; differences are adjusted for all.",
    ),
]
ScoresOf = Annotated[
    Literal["expected", "integer"] | None,
    typer.Option(
        "--scores",
        metavar="expected|integer",
        help="Which scores to compare.  [default: expected, if the runs have them]",
    ),
]

AllTables = Annotated[bool, typer.Option("--all", help="Print every table.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsOptions:
    """The options of every command that computes statistics of runs."""

    allow_dry_run: Annotated[
        bool, typer.Option("--allow-dry-run", help="Accept a dry run, whose scores mean nothing.")
    ] = False
    resamples: Annotated[
        int, typer.Option(min=100, metavar="N", help="The number of resamples for the intervals.")
    ] = 1000
    seed: Annotated[int, typer.Option(metavar="S", help="The seed of the resampling.")] = 0
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

    def print(self, document: dict[str, Any], table: object, sliced: Sliced | None = None) -> None:
        """Print the result as JSON or as a table, and that of each slice after it."""
        if self.as_json:
            print_json(document if sliced is None else {**document, "slices": sliced.as_dict()})
            return
        print_table(table)
        if sliced is not None:
            from localjudge.cli.tables.slice_table import slice_table

            print_table(slice_table(sliced))
