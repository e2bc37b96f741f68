"""The command `show`: a run's systems, a list of its rows, or single judgements."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, NoReturn

from localjudge.cli.console import Console, headed, print_table, printed
from localjudge.cli.messages import Messages
from localjudge.cli.options import RunFolders
from localjudge.cli.progress import Progress, one_run
from localjudge.cli.row_list import RowList
from localjudge.cli.shown_rows import ShownOutcome
from localjudge.errors import UsageError
from localjudge.report.study_options import IntervalFile
from localjudge.settings import Flag
from localjudge.system.quantities import counted

if TYPE_CHECKING:
    from localjudge.modes.row_outcome import RowOutcome
    from localjudge.runs.run_manifest import RunManifest


def show(
    runs: RunFolders,
    row_id: Annotated[
        list[str] | None,
        Flag("Show the judgement of this row or pair: its id, or its line in the input.", "ID", name="--id"),
    ] = None,
    system: Annotated[
        str | None, Flag("List the rows of this system, or the pairs with it, one line each.", "NAME")
    ] = None,
    failed: Annotated[bool, Flag("List the failures with their reasons.")] = False,
    sort: Annotated[
        str | None,
        Flag(
            "List the judged rows by this score, lowest first; by the expected score if the run has it. "
            "Pairs are sorted by the probability that the first response is better.",
            "ASPECT",
        ),
    ] = None,
    descending: Annotated[bool, Flag("With --sort: highest first.")] = False,
    limit: Annotated[int | None, Flag("List only the first N rows.", "N", least=1)] = None,
    intervals: IntervalFile = None,
) -> None:
    """Show a run: its systems with their scores, a list of its rows, or single judgements by id.

    Each of --system, --failed, --sort and --limit selects the list: id, system, scores and the beginning of the
    texts, or the reason for a failure. The list of a run of pairs has both systems, and for each aspect the
    verdict (a is the first, ? is undecided), the probability that a is better (a tie counts half), and whether
    both orders agree.
    """
    from localjudge.runs.reader import read_notices
    from localjudge.runs.run_manifest import read_manifest
    from localjudge.runs.run_state import unchanged

    lists_rows = system is not None or failed or sort is not None or limit is not None
    if row_id and lists_rows:
        raise UsageError("--id shows single judgements; give it without --system, --failed, --sort and --limit")
    if descending and sort is None:
        raise UsageError("--descending: give the aspect with --sort ASPECT")
    if intervals and not row_id:
        raise UsageError("--intervals: give --id, or export the run with its intervals")
    with one_run(runs) as run, unchanged([run]):
        if row_id:
            _show_judgements(run, row_id, intervals)
        elif lists_rows:
            manifest = read_manifest(run)
            notices = read_notices(run)
            with Progress().step("reading the run"):
                row_list = RowList.read(
                    run,
                    manifest.rubric,
                    system=system,
                    failed=failed,
                    sort=sort,
                    descending=descending,
                    limit=limit,
                )
            _print_list(row_list, manifest, notices)
        else:
            _print_summary(run)


def _print_list(row_list: RowList, manifest: RunManifest, notices: Sequence[str]) -> None:
    """Print a list of rows below the notices of their run."""
    from localjudge.runs.reread_texts import RowTextStore

    if notices:
        print_table(headed(notices))
    width = get_terminal_size().columns if sys.stdout.isatty() else None
    with RowTextStore(manifest, [row.digest for row in row_list.rows]) as texts:
        for line in row_list.lines(texts, width):
            print(line)
        for problem in texts.problems:
            Messages().say(f"the texts of the rows are missing: {problem}")
    matching = counted(row_list.matching, manifest.rubric.mode.item)
    Messages().say(f"{len(row_list.rows):,} of {matching}")


def _print_summary(run: Path) -> None:
    """Print the systems of a run with their scores, and the most frequent reasons for failures."""
    from localjudge.report.summary_tables import summary_tables
    from localjudge.runs.reader import read_notices
    from localjudge.runs.summary import read_summary

    notices = read_notices(run)
    with Progress().step("reading the run") as report:
        summary = read_summary(run, report)
    if not summary.rows:
        print_table(headed(notices, "no rows"))
        return
    print_table(printed(summary_tables(summary), notices))
    for reason, count in summary.reasons.most_common(10):
        print(f"{count:,} failed: {reason}")


def _show_judgements(run: Path, ids: Sequence[str], intervals_file: Path | None) -> None:
    """Print the judgements of rows by their ids, or by their lines in the input.

    Raises:
        UsageError: no row has one of the ids.
    """
    from localjudge.runs.reader import read_notices, read_row_outcomes
    from localjudge.runs.reread_texts import RowTextStore
    from localjudge.runs.run_manifest import read_manifest
    from localjudge.studies.calibration import read_intervals

    manifest = read_manifest(run)
    intervals_of = None
    if intervals_file is not None:
        intervals_of = read_intervals(intervals_file, [run])
    wanted = set(ids)
    with Progress().step("reading the run"):
        rows_by_id = [row for row in read_row_outcomes(run) if row.id in wanted]
        other_names = wanted.difference(row.id for row in rows_by_id)
        rows_by_line = _rows_at_lines(run, other_names)
    for name in sorted(other_names):
        ids_at_line = [row.id for row in rows_by_line if name in _input_lines(row)]
        if ids_at_line:
            Messages().say(f"--id {name}: is not an id; it is the line of {', '.join(ids_at_line)}")
    rows = rows_by_id + rows_by_line
    notices = read_notices(run)
    if notices:
        print_table(headed(notices))
    width = None if sys.stdout.isatty() else get_terminal_size((120, 24)).columns
    console = Console(width=width)
    with RowTextStore(manifest, [row.first.digest for row in rows]) as texts:
        for row in rows:
            outcome = ShownOutcome(
                row,
                aspects=manifest.rubric.aspects,
                text=texts.get(row.first.digest),
                intervals={} if intervals_of is None else intervals_of(row.first),
                mass_is_lower_bound=manifest.mass_is_lower_bound,
            )
            console.print(outcome.title, soft_wrap=True)  # a path is copied in one piece
            console.print(outcome)
        for problem in texts.problems:
            Messages().say(f"the texts of the row are missing: {problem}")
    found_names: set[str] = set()
    for row in rows:
        found_names.add(row.id)
        found_names.update(_input_lines(row))
    missing = wanted - found_names
    if missing:
        _refuse_missing(missing, run, item=manifest.rubric.mode.item)


def _rows_at_lines(run: Path, names: Collection[str]) -> list[RowOutcome]:
    """Return the rows whose lines in the input have these names."""
    from localjudge.runs.reader import read_row_outcomes

    if not names:
        return []
    return [row for row in read_row_outcomes(run) if not _input_lines(row).isdisjoint(names)]


def _input_lines(row: RowOutcome) -> set[str]:
    """Return the names of the line of a row, or of both lines of a pair, with their files and without."""
    names: set[str] = set()
    for source in row.first.source.split(" and "):
        line = source.rpartition(":")[2]
        names.update((source, line))  # such as answers.csv:4 and 4
    return names


def _refuse_missing(missing: Collection[str], run: Path, *, item: str) -> NoReturn:
    """Say which ids a run does not have, and an example of those that it has.

    Raises:
        UsageError: always.
    """
    from localjudge.runs.reader import read_row_outcomes

    message = f"{run}: no {item} with the id {', '.join(sorted(missing))}"
    first_row = next(read_row_outcomes(run), None)
    if first_row is not None:
        message += f"; its ids are such as {first_row.id}"
    raise UsageError(message)
