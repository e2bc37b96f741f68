"""Commands that compare two runs, with a gate for continuous integration, and plan its size."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated

import typer

from localjudge.cli.console import (
    as_markdown,
    as_text,
    headed,
    print_json,
    print_table,
    printed_findings,
    printed_table,
)
from localjudge.cli.options import BELOW_THRESHOLD, AsJson, check_out_file, refuse_input_as_out
from localjudge.cli.progress import Progress
from localjudge.cli.statistics_options import (
    AllowDryRun,
    AllTables,
    MaxFailed,
    Minimum,
    ScoresOf,
    StatisticsOptions,
    Where,
    column_numbers,
    common_mode,
    refuse_dry_runs,
)
from localjudge.errors import UsageError
from localjudge.report.study_options import LabelOptions
from localjudge.settings import Flag
from localjudge.system.durable import write_text
from localjudge.system.requirements import require

if TYPE_CHECKING:
    from localjudge.report.tables import Findings
    from localjudge.studies.compare import Changes
    from localjudge.studies.compare.matched_runs import MatchedRuns
    from localjudge.studies.conditions import Condition, Kind, Threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """The conditions of a gate."""

    margin: Annotated[
        list[str] | None,
        Flag(
            "Fail (exit 3) unless, for each system, a drop of DROP or more in the mean of this column is ruled "
            "out at 95 % confidence.",
            "COLUMN=DROP",
        ),
    ] = None
    improve: Annotated[
        list[str] | None,
        Flag(
            "Fail (exit 3) unless, for each system, the mean of this column rose: a one-sided sign-flip test "
            "has a p of .025 or less.",
            "COLUMN",
        ),
    ] = None
    max_failed: MaxFailed = None
    max_fell: Annotated[
        list[str] | None,
        Flag(
            "Fail (exit 3) unless, for each system, it is ruled out that SHARE or more of the rows have no "
            "score, or fell in this column by half its scale or more: by 2 on one from 1 to 5, by 0.5 in the "
            "score of a checklist.",
            "COLUMN=SHARE",
        ),
    ] = None
    min_: Minimum = None
    max_mean_drop: Annotated[
        list[str] | None,
        Flag(
            "Fail (exit 3) if, for a system, the mean of this column fell by more than DROP, however few rows "
            "there are.",
            "COLUMN=DROP",
        ),
    ] = None

    def thresholds(self) -> list[Threshold]:
        """Return what is asked of every system.

        Raises:
            UsageError: a value is not of the form COLUMN=NUMBER, or a column has two numbers.
        """
        from localjudge.studies.conditions import Kind, Threshold

        thresholds = _thresholds(Kind.MARGIN, "DROP", options=self.margin)
        thresholds += _thresholds(Kind.MAX_FELL, "SHARE", options=self.max_fell)
        thresholds += _thresholds(Kind.MIN, "VALUE", options=self.min_)
        thresholds += _thresholds(Kind.MAX_MEAN_DROP, "DROP", options=self.max_mean_drop)
        thresholds += [Threshold(Kind.IMPROVE, column) for column in dict.fromkeys(self.improve or ())]
        if self.max_failed is not None:
            thresholds.append(Threshold(Kind.MAX_FAILED, limit=self.max_failed))
        return thresholds


def _thresholds(kind: Kind, number: str, options: Sequence[str] | None) -> list[Threshold]:
    """Return a threshold for each COLUMN=NUMBER; `number` says in capitals what the number is."""
    from localjudge.studies.conditions import Threshold

    limits = column_numbers(kind.replace("_", "-"), number, options or ())
    return [Threshold(kind, column, limit=limit) for column, limit in limits.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchOptions:
    """Which rows of two runs are compared, and how they are matched."""

    common: Annotated[
        bool,
        Flag("Leave out the rows of OLD that are missing or failed in NEW. Takes no condition: use --where."),
    ] = False
    by_order: Annotated[
        bool,
        Flag("Match the rows of a system on an instruction by their order, not by their ids."),
    ] = False
    system: Annotated[
        list[str] | None,
        Flag(
            "Compare only this system, and of pairs, its preference. Several: each must pass.  [default: all; "
            "of pairs, each that is not the baseline]",
            "NAME",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFiles:
    """The files with the result, for the pages of CI jobs."""

    markdown: Annotated[
        Path | None, Flag("Write the result as Markdown, for the page of a CI job.", "FILE")
    ] = None
    junit: Annotated[Path | None, Flag("Write the conditions as JUnit XML.", "FILE")] = None

    def check(self, inputs: Sequence[str | Path]) -> None:
        """Check that the files can be written, and replace no input."""
        for flag, file in (("--markdown", self.markdown), ("--junit", self.junit)):
            if file is not None:
                check_out_file(file, flag)
                refuse_input_as_out(file, inputs, flag=flag)

    def write_markdown(
        self, changes: Changes, conditions: Sequence[Condition], findings: Findings, *, all_tables: bool
    ) -> None:
        """Write the result as Markdown, if it is wanted: the gate as a table, and the rest as text.

        Args:
            changes: what changed.
            conditions: the conditions of the gate.
            findings: what the command prints.
            all_tables: whether it prints all tables.
        """
        from localjudge.report.gate_tables import gate_table

        if self.markdown is None:
            return
        title = f"## {' → '.join(changes.runs.names)}"
        if not conditions:
            parts = [f"{title}\n"]
        else:
            has_passed = all(condition.passes for condition in conditions)
            gate = as_markdown(gate_table(conditions, each_system=True))
            parts = [f"{title} · {'passed' if has_passed else 'FAILED'}\n", gate]
            findings = replace(findings, main=findings.main[1:])  # without the gate
        # Indented, text from outside can be no markup.
        text = as_text(printed_findings(findings, all_tables=all_tables))
        parts.append(indent(text, " " * 4))
        write_text(self.markdown, "\n".join(parts))

    def write_junit(self, changes: Changes, conditions: Sequence[Condition], *, where: str | None) -> None:
        """Write the conditions as JUnit XML, if it is wanted.

        Args:
            changes: what changed.
            conditions: the conditions of the gate.
            where: the value of --where.
        """
        from localjudge.report.change_lines import change_lines
        from localjudge.report.changed_row_lines import lines_without_scores
        from localjudge.report.gate_junit import as_junit

        if self.junit is None:
            return
        name = " ".join(("localjudge compare",) + changes.runs.names)
        if where:
            name += f" --where {where}"
        answer = list(change_lines(changes)) + list(lines_without_scores(changes))
        write_text(self.junit, as_junit(conditions, name, answer="\n".join(answer)))


def compare(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The run directory to compare with.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The run directory of the new system or judge.")],
    *,
    gate: GateOptions,
    matching: MatchOptions,
    files: ResultFiles,
    people: LabelOptions,
    scores: ScoresOf = None,
    where: Where = None,
    all_tables: AllTables = False,
    statistics: StatisticsOptions,
) -> None:
    """Compare two runs: what a new system, prompt or judge changed, and whether it may pass."""
    from localjudge.report.change_tables import change_findings
    from localjudge.report.changes_document import changes_document
    from localjudge.runs.run_manifest import inputs_of_runs
    from localjudge.runs.run_state import unchanged
    from localjudge.studies.compare import compare_runs
    from localjudge.studies.compare.compared_rows import ComparedRows
    from localjudge.studies.compare.gate import check_gate
    from localjudge.studies.compare.matched_runs import match_runs

    runs = [old, new]
    people.require("compare")
    statistics.check(runs)
    files.check(people.files + inputs_of_runs(runs))
    thresholds = gate.thresholds()
    _check_gate_options(thresholds, matching, files=files)
    _check_mode(runs, scores=scores, labels=people.labels)

    progress = Progress()
    resamples, seed = statistics.draws
    systems = matching.system or ()
    with unchanged(runs):
        with progress.step("reading both runs"):
            rows = ComparedRows.read(runs, scores, only=systems, where=where)
            labels = people.labels_of(rows.source) if people.labels else None
            matched = match_runs(rows, gate=bool(thresholds), by_order=matching.by_order)
            if labels is not None:
                _check_two_judges(matched)
            if thresholds:
                _check_chosen_systems(matched, systems)
            conditions = check_gate(matched, thresholds, flips=resamples, seed=seed)
        with progress.step(statistics.computing):
            changes = compare_runs(matched, labels, resamples=resamples, seed=seed, only_common=matching.common)
    findings = change_findings(changes, conditions)
    files.write_markdown(changes, conditions, findings=findings, all_tables=all_tables)
    files.write_junit(changes, conditions, where=where)
    statistics.print(changes_document(changes, conditions), findings, all_tables=all_tables)
    if not all(condition.passes for condition in conditions):
        raise typer.Exit(BELOW_THRESHOLD)


def _check_gate_options(thresholds: Sequence[Threshold], matching: MatchOptions, files: ResultFiles) -> None:
    """Check that options that need a gate have one, and that the others have none."""
    if files.junit and not thresholds:
        raise UsageError(
            "--junit: has no condition to report; give --margin, --improve, --max-fell, --max-failed, --min or "
            "--max-mean-drop"
        )
    if matching.common and thresholds:
        raise UsageError(
            "--common: leaves out the rows that NEW lost, and a gate counts them; --where COLUMN=VALUE chooses "
            "rows of OLD for a gate"
        )


def _check_mode(runs: Sequence[Path], *, scores: str | None, labels: Sequence[str] | None) -> None:
    """Check that the runs are of one mode, which takes the options that are given."""
    mode = common_mode(runs)
    if mode.pairs is not None:
        mode.refuse_options({"scores": scores})
    if mode.criteria is not None:
        mode.refuse_options({"scores": scores, "labels": labels})


def _check_two_judges(matched: MatchedRuns) -> None:
    """Check that runs which are compared by labels have two judges."""
    from localjudge.studies.compare.run_difference import Differs

    if matched.difference.differs is not Differs.JUDGE:
        raise UsageError(
            "--labels: compares two judges, and these runs have one; localjudge rank OLD NEW --labels "
            "estimates the means of people"
        )


def _check_chosen_systems(matched: MatchedRuns, systems: Collection[str]) -> None:
    """Check that every chosen system has a row with a score in OLD, which a gate needs."""
    systems_in_old = {matched.rows.systems[row] for row in matched.cells.first_rows[:, 0]}
    failed_systems = {row.system for row in matched.uncompared.failed}
    without_score = failed_systems.intersection(systems) - systems_in_old
    if without_score:
        raise UsageError(
            f"--system {min(without_score)}: has no row with a score in {matched.names[0]}, so no gate can hold"
        )


_DEVIATIONS = (0.25, 0.5, 1.0, 1.5)
"""Standard deviations of paired differences to choose from without a pilot."""


def sample_size(
    *,
    difference: Annotated[
        float | None, Flag("The smallest difference that must be found.", "D", least=0)
    ] = None,
    margin: Annotated[
        float | None, Flag("The margin of a gate that an unchanged system must pass.", "DROP", least=0)
    ] = None,
    pilot: Annotated[
        list[Path] | None,
        Flag("A run of two systems or more, or one that compares two responses; several of one judge.", "DIR"),
    ] = None,
    by: Annotated[str | None, Flag("The column to compare.", "COLUMN")] = None,
    power: Annotated[float, Flag("The probability to find it, or to pass.", "P", least=0.5, most=0.99)] = 0.8,
    systems: Annotated[int, Flag("The number of systems to compare.", "N", least=2)] = 2,
    allow_dry_run: AllowDryRun = False,
    as_json: AsJson = False,
) -> None:
    """Compute how many instructions a comparison needs, from a pilot run."""
    from localjudge.report.sample_size_document import sample_size_document
    from localjudge.statistics.non_inferiority import instructions_to_pass
    from localjudge.statistics.paired_test import instructions_needed

    require("sample-size", "trust")
    if (not difference and not margin) or (difference is not None and margin is not None):
        raise UsageError("--difference, --margin: give one of them, above 0")
    if margin and systems != 2:
        raise UsageError("--systems: is for --difference; each system has its own condition of a gate")

    if pilot:
        basis = _measured_basis(pilot, by, margin=margin, allow_dry_run=allow_dry_run)
    else:
        basis = _assumed_basis(margin=margin)
    low, high = basis.ends
    if margin and margin >= high - low:
        raise UsageError(f"--margin {margin:g}: must be smaller than the scale, {low} to {high}")
    tests = systems * (systems - 1) // 2

    def instructions(variance: float) -> int | None:
        if margin:
            return instructions_to_pass(margin, variance, width=high - low, wanted=power)
        assert difference is not None  # one of the two is given
        return instructions_needed(difference, variance, wanted=power, tests=tests)

    needed: dict[str, list[int | None]] = {}
    for name, variance in basis.variances.items():
        needed[name] = [instructions(variance), instructions(basis.inflation * variance)]
    if as_json:
        document = sample_size_document(basis.column, needed, notes=basis.notes, notices=basis.notices)
        print_json(document)
        return
    if basis.notices:
        print_table(headed(basis.notices))
    if margin:
        print(
            f"Instructions with which a system whose {basis.column} ({low} to {high}) does not change passes "
            f"compare --margin {basis.column}={margin:g} with a probability of {power:.0%}:"
        )
    else:
        print(
            f"Instructions to find a difference of {difference:g} in {basis.column} between {systems} systems "
            f"with a probability of {power:.0%}, each with responses of every system:"
        )
    _print_sizes(needed, has_pilot=bool(pilot))
    print("\n".join(basis.notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Basis:
    """What the size of a comparison is computed from: the variances of a pilot, or assumed ones.

    Attributes:
        column: the column to compare.
        ends: the lowest and the highest number of the column.
        variances: the variance of the difference of two systems on an instruction, by what it is.
        inflation: the upper end of the interval of the variance of a pilot, as a multiple of it.
        notes: remarks for the reader.
        notices: the notices of the pilot's runs.
    """

    column: str
    ends: tuple[int, int] = (1, 5)
    variances: Mapping[str, float]
    inflation: float = 1.0
    notes: Sequence[str]
    notices: Sequence[str] = ()


def _assumed_basis(*, margin: float | None) -> _Basis:
    """Return standard deviations to choose from."""
    return _Basis(
        column="COLUMN" if margin else "a column",
        variances={f"standard deviation {deviation:g} (assumed)": deviation**2 for deviation in _DEVIATIONS},
        notes=["--pilot measures the deviation"],
    )


def _measured_basis(
    folders: Sequence[Path], by: str | None, *, margin: float | None, allow_dry_run: bool
) -> _Basis:
    """Return the variance of a pilot."""
    from localjudge.report.sample_size_document import pilot_notes
    from localjudge.runs.run_state import unchanged
    from localjudge.studies.sample_size import Pilot

    with unchanged(folders):
        if not allow_dry_run:
            refuse_dry_runs(folders)
        pilot = Pilot.read(folders, by)
    if margin and pilot.ends is None:
        raise UsageError("--margin: takes a pilot of scores; that of pairs has no change of a preference")
    return _Basis(
        column=pilot.column,
        ends=pilot.ends or (1, 5),
        variances={"as in the pilot": pilot.variance},
        inflation=pilot.inflation,
        notes=pilot_notes(pilot),
        notices=pilot.notices,
    )


def _print_sizes(needed: Mapping[str, Iterable[int | None]], *, has_pilot: bool) -> None:
    """Print the numbers of instructions by what the variance is; the second ones only for a pilot."""
    from localjudge.report.tables import Cells, Table
    from localjudge.statistics.paired_test import needed_in_words

    columns = ["", "instructions"]
    if has_pilot:
        columns.append("at most, with\n95 % confidence")
    rows: list[Cells] = []
    for name, numbers in needed.items():
        cells = [name] + [needed_in_words(number) for number in numbers]
        rows.append(tuple(cells[: len(columns)]))
    print_table(printed_table(Table("", columns, rows=rows)))
