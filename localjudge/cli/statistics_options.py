"""The options that the commands share which compute statistics of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from localjudge.cli.console import print_json, print_table, printed_findings
from localjudge.cli.options import AsJson
from localjudge.settings import Flag

if TYPE_CHECKING:
    from localjudge.modes.mode import Mode
    from localjudge.report.tables import Findings

ScoresOf = Annotated[
    Literal["expected", "integer"] | None,
    Flag("Which scores to compare.  [default: expected, if the runs have them]", "expected|integer"),
]
Where = Annotated[
    str | None,
    Flag("Count only the rows with this value, such as topic=code or system=NAME.", "COLUMN=VALUE"),
]
AllowDryRun = Annotated[bool, Flag("Accept a dry run, whose scores mean nothing.")]
AllTables = Annotated[bool, Flag("Print every table.", name="--all")]


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


def refuse_dry_runs(runs: Iterable[Path]) -> None:
    """Refuse runs whose scores mean nothing."""
    from localjudge.runs.notices import refuse_dry_run
    from localjudge.runs.run_manifest import read_manifest

    for run in runs:
        refuse_dry_run(read_manifest(run), run)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsOptions:
    """The options of every command that computes statistics of runs."""

    allow_dry_run: AllowDryRun = False
    resamples: Annotated[int, Flag("The number of resamples for the intervals.", "N", least=100)] = 1000
    seed: Annotated[int, Flag("The seed of the resampling.", "S")] = 0
    as_json: AsJson = False

    @property
    def draws(self) -> tuple[int, int]:
        """The number of resamples, and their seed."""
        return self.resamples, self.seed

    @property
    def computing(self) -> str:
        """The name of the step that computes the statistics."""
        return f"computing with {self.resamples:,} resamples"

    def check(self, runs: Iterable[Path]) -> None:
        """Refuse dry runs, unless they are allowed."""
        if not self.allow_dry_run:
            refuse_dry_runs(runs)

    def print(self, document: Any, found: Findings, all_tables: bool = False) -> None:
        """Print a result, a dataclass or its fields, as JSON or as tables."""
        if self.as_json:
            print_json(document)
        else:
            print_table(printed_findings(found, all_tables))
