"""The options that the commands share which compute statistics of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from localjudge.cli.console import print_json, print_table, printed_findings
from localjudge.cli.options import AsJson
from localjudge.errors import UsageError
from localjudge.settings import Flag
from localjudge.system.quantities import as_number

if TYPE_CHECKING:
    from localjudge.modes.mode import Mode
    from localjudge.report.tables import Findings

READING = "reading runs, labels and texts"
"""The name of the step that reads what the statistics are computed from."""

ScoresOf = Annotated[
    Literal["expected", "integer"] | None,
    Flag("Which scores to compare.  [default: expected, if the runs have them]", "expected|integer"),
]
Where = Annotated[
    str | None,
    Flag("Count only the rows with this value, such as topic=code or system=NAME.", "COLUMN=VALUE"),
]
AllowDryRun = Annotated[bool, Flag("Accept a dry run, whose scores mean nothing.")]
Minimum = Annotated[
    list[str] | None,
    Flag(
        "Fail (exit 3) unless the mean of this column is VALUE or more for each system, however few rows there "
        "are. A row without a score fails it, unless --max-failed is given.",
        "COLUMN=VALUE",
        name="--min",
    ),
]
MaxFailed = Annotated[
    float | None,
    Flag(
        "Fail (exit 3) unless, for each system, it is ruled out at 95 % confidence that SHARE or more of the "
        "rows have no score. In other conditions, these count as the lowest score.",
        "SHARE",
    ),
]
AllTables = Annotated[bool, Flag("Print every table.", name="--all")]


def common_mode(runs: Sequence[Path]) -> Mode[Any]:
    """Return what the rubrics of the runs judge.

    Raises:
        UsageError: the runs have several modes, aspects or scales.
    """
    from localjudge.matching.run_rows import common_rubric
    from localjudge.runs.run_manifest import read_manifest

    manifests = [read_manifest(run) for run in runs]
    return common_rubric(runs, manifests).mode


def column_numbers(flag: str, number_name: str, values: Iterable[str]) -> dict[str, float]:
    """Return the number of each column in COLUMN=NUMBER; a share of a label has another "=" in its name.

    Args:
        flag: the flag without its dashes.
        number_name: what the number is, in capitals.
        values: the values of the flag.

    Raises:
        UsageError: a value is not of this form, or a column has two numbers.
    """
    numbers: dict[str, float] = {}
    for value in values:
        column, _, text = value.rpartition("=")
        number = as_number(text)
        if not column or number is None:
            raise UsageError(f"--{flag} {value}: write COLUMN={number_name}, such as helpfulness=0.2")
        if column in numbers:
            raise UsageError(f"--{flag} {value}: {column} has {numbers[column]:g} already; give one")
        numbers[column] = number
    return numbers


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

    def print(self, document: Mapping[str, Any], findings: Findings, *, all_tables: bool) -> None:
        """Print a result: its document as JSON, or its findings as tables."""
        if self.as_json:
            print_json(document)
        else:
            print_table(printed_findings(findings, all_tables=all_tables))
