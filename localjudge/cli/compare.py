"""Commands that compare two runs, with a gate for continuous integration, and plan its size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import indent
from typing import Annotated

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


def compare(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The run directory to compare with.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The run directory of the new system or judge.")],
    *,
    margin: Annotated[
        list[str] | None,
        Flag(
            "Fail (exit 3) unless, for each system, a drop of DROP or more in the mean of this column is ruled "
            "out at 95 % confidence.",
            "COLUMN=DROP",
        ),
    ] = None,
    improve: Annotated[
        list[str] | None,
        Flag(
            "Fail (exit 3) unless, for each system, the mean of this column rose: a one-sided sign-flip test "
            "has a p of .025 or less.",
            "COLUMN",
        ),
    ] = None,
    max_failed: MaxFailed = None,
    max_fell: Annotated[
        list[str] | None,
        Flag(
            "Fail (exit 3) unless, for each system, it is ruled out that SHARE or more of the rows have no "
            "score, or fell in this column by half its scale or more: by 2 on one from 1 to 5, by 0.5 in the "
            "score of a checklist.",
            "COLUMN=SHARE",
        ),
    ] = None,
    min_: Minimum = None,
    max_mean_drop: Annotated[
        list[str] | None,
        Flag(
            "Fail (exit 3) if, for a system, the mean of this column fell by more than DROP, however few rows "
            "there are.",
            "COLUMN=DROP",
        ),
    ] = None,
    common: Annotated[
        bool,
        Flag("Leave out the rows of OLD that are missing or failed in NEW. Takes no condition: use --where."),
    ] = False,
    by_order: Annotated[
        bool,
        Flag("Match the rows of a system on an instruction by their order, not by their ids."),
    ] = False,
    system: Annotated[
        list[str] | None,
        Flag(
            "Compare only this system, and of pairs, its preference. Several: each must pass.  [default: all; "
            "of pairs, each that is not the baseline]",
            "NAME",
        ),
    ] = None,
    markdown: Annotated[
        Path | None, Flag("Write the result as Markdown, for the page of a CI job.", "FILE")
    ] = None,
    junit: Annotated[Path | None, Flag("Write the conditions as JUnit XML.", "FILE")] = None,
    people: LabelOptions,
    scores: ScoresOf = None,
    where: Where = None,
    all_tables: AllTables = False,
    statistics: StatisticsOptions,
) -> None:
    """Compare two runs: what a new system, prompt or judge changed, and whether it may pass."""
    from localjudge.report.change_lines import change_lines, lines_without_scores
    from localjudge.report.change_tables import change_findings
    from localjudge.report.changes_document import changes_document
    from localjudge.report.gate_tables import as_junit, gate_table
    from localjudge.runs.run_manifest import inputs_of_runs
    from localjudge.runs.run_state import unchanged
    from localjudge.studies.compare import compare_runs
    from localjudge.studies.compare.compared_rows import ComparedRows
    from localjudge.studies.compare.gate import check_gate
    from localjudge.studies.compare.matched_runs import match_runs
    from localjudge.studies.conditions import Kind, Threshold

    people.require("compare")
    statistics.check([old, new])
    for flag, file in (("--markdown", markdown), ("--junit", junit)):
        if file is not None:
            check_out_file(file, flag)
            refuse_input_as_out(file, people.files + inputs_of_runs([old, new]), flag)
    thresholds: list[Threshold] = []
    for kind, what, given in (
        (Kind.MARGIN, "DROP", margin),
        (Kind.MAX_FELL, "SHARE", max_fell),
        (Kind.MIN, "VALUE", min_),
        (Kind.MAX_MEAN_DROP, "DROP", max_mean_drop),
    ):
        limits = column_numbers(kind.replace("_", "-"), what, given or ())
        thresholds += [Threshold(kind, column, limit) for column, limit in limits.items()]
    thresholds += [Threshold(Kind.IMPROVE, column) for column in dict.fromkeys(improve or ())]
    thresholds += [] if max_failed is None else [Threshold(Kind.MAX_FAILED, limit=max_failed)]
    gate = bool(thresholds)
    systems, runs = system or (), [old, new]
    if junit and not gate:
        raise UsageError(
            "--junit: has no condition to report; give --margin, --improve, --max-fell, --max-failed, --min or "
            "--max-mean-drop"
        )
    if common and gate:
        raise UsageError(
            "--common: leaves out the rows that NEW lost, and a gate counts them; --where COLUMN=VALUE chooses "
            "rows of OLD for a gate"
        )
    mode = common_mode(runs)
    if mode.pairs is not None:
        mode.refuse_options({"scores": scores})
    if mode.criteria is not None:
        mode.refuse_options({"scores": scores, "labels": people.labels})

    progress = Progress()
    with unchanged(runs):
        with progress.step("reading both runs"):
            rows = ComparedRows.read(runs, scores, systems, where)
            known = people.labels_of(rows.source) if people.labels else None
            matched = match_runs(rows, gate, by_order)
            if people.labels and matched.differs != "judge":
                raise UsageError(
                    "--labels: compares two judges, and these runs have one; localjudge rank OLD NEW --labels "
                    "estimates the means of people"
                )
            known_in_old = {rows.systems[row] for row in matched.places[:, 0]}
            if gate and (
                unscored := {row.system for row in matched.failed}.intersection(systems) - known_in_old
            ):
                raise UsageError(
                    f"--system {min(unscored)}: has no row with a score in {matched.names[0]}, so no gate can "
                    "hold"
                )
            conditions = check_gate(matched, thresholds, *statistics.draws)
        with progress.step(statistics.computing):
            changes = compare_runs(matched, known, *statistics.draws, only_common=common)
    found, passes = change_findings(changes, conditions), all(each.passes for each in conditions)
    if markdown:
        # Indented, text from outside can be no markup.
        tables = [gate_table(conditions)] if conditions else []
        rest = replace(found, main=found.main[1:]) if tables else found
        text = indent(as_text(printed_findings(rest, all_tables)), " " * 4)
        result = " · FAILED" * (not passes) or " · passed" * bool(conditions)
        parts = [f"## {' → '.join(changes.names)}{result}\n", *map(as_markdown, tables), text]
        write_text(markdown, "\n".join(parts))
    if junit:
        name = " ".join(["localjudge compare", *changes.names, f"--where {where}" * bool(where)]).strip()
        answer = "\n".join([*change_lines(changes), *lines_without_scores(changes)])
        write_text(junit, as_junit(conditions, name, answer))
    statistics.print(changes_document(changes, conditions), found, all_tables)
    if not passes:
        raise typer.Exit(BELOW_THRESHOLD)


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
    from localjudge.report.sample_size_document import pilot_notes, sample_size_document
    from localjudge.report.tables import Cells, Table
    from localjudge.runs.run_state import unchanged
    from localjudge.statistics.non_inferiority import instructions_to_pass
    from localjudge.statistics.paired_test import instructions_needed, needed_in_words
    from localjudge.studies.sample_size import Pilot

    require("sample-size", "trust")
    size = difference or margin
    if not size or None not in (difference, margin):
        raise UsageError("--difference, --margin: give one of them, above 0")
    if margin and systems != 2:
        raise UsageError("--systems: is for --difference; each system has its own condition of a gate")

    basis = {f"standard deviation {each:g} (assumed)": each**2 for each in _DEVIATIONS}
    inflation, notes, column = 1.0, ["--pilot measures the deviation"], "COLUMN" if margin else "a column"
    ends: tuple[int, int] = (1, 5)
    notices: tuple[str, ...] = ()
    if pilot:
        with unchanged(pilot):
            refuse_dry_runs(() if allow_dry_run else pilot)
            found = Pilot.read(pilot, by)
        if margin and found.ends is None:
            raise UsageError("--margin: takes a pilot of scores; that of pairs has no change of a preference")
        inflation, column, notes, ends = found.inflation, found.column, pilot_notes(found), found.ends or ends
        basis, notices = {"as in the pilot": found.variance}, found.notices
    if margin and margin >= ends[1] - ends[0]:
        raise UsageError(f"--margin {margin:g}: must be smaller than the scale, {ends[0]} to {ends[1]}")
    tests = systems * (systems - 1) // 2

    def instructions(variance: float) -> int | None:
        if margin:
            return instructions_to_pass(margin, variance, ends[1] - ends[0], power)
        return instructions_needed(size, variance, power, tests)

    needed = {
        name: [instructions(variance), instructions(inflation * variance)] for name, variance in basis.items()
    }
    if as_json:
        print_json(sample_size_document(column, needed, notes=notes, notices=notices))
        return
    if notices:
        print_table(headed(notices))
    print(
        f"Instructions with which a system whose {column} ({ends[0]} to {ends[1]}) does not change passes "
        f"compare --margin {column}={size:g} with a probability of {power:.0%}:"
        if margin
        else f"Instructions to find a difference of {size:g} in {column} between {systems} systems with a "
        f"probability of {power:.0%}, each with responses of every system:"
    )
    rows: list[Cells] = [
        (name, *map(needed_in_words, counts[: 1 + bool(pilot)])) for name, counts in needed.items()
    ]
    columns = ("", "instructions", *["at most, with\n95 % confidence"] * bool(pilot))
    print_table(printed_table(Table("", columns, rows)))
    print("\n".join(notes))
