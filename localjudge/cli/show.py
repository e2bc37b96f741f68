"""The command `show`: a run's systems, a list of its rows, or single judgements."""

from __future__ import annotations

import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated

from localjudge.cli.console import Console, headed, print_table, printed
from localjudge.cli.messages import Messages
from localjudge.cli.options import RunFolders
from localjudge.cli.progress import Progress, one_run
from localjudge.cli.shown_rows import RowList, ShownOutcome
from localjudge.errors import UsageError
from localjudge.report.study_options import IntervalFile
from localjudge.settings import Flag
from localjudge.system.quantities import counted

if TYPE_CHECKING:
    from localjudge.modes.row_outcome import RowOutcome


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
    from localjudge.report.summary_tables import summary_tables
    from localjudge.runs.reader import read_notices
    from localjudge.runs.reread_texts import RowTextStore
    from localjudge.runs.run_manifest import read_manifest
    from localjudge.runs.run_state import unchanged
    from localjudge.runs.summary import read_summary

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
            return
        manifest, notices = read_manifest(run), read_notices(run)
        if lists_rows:
            with Progress().step("reading the run"):
                found = RowList.read(
                    run,
                    manifest.rubric,
                    system=system,
                    failed=failed,
                    sort=sort,
                    descending=descending,
                    limit=limit,
                )
            if notices:
                print_table(headed(notices))
            width = get_terminal_size().columns if sys.stdout.isatty() else None
            with RowTextStore(manifest, [row.digest for row in found.rows]) as texts:
                for line in found.lines(texts, width):
                    print(line)
                for problem in texts.problems:
                    Messages().say(f"the texts of the rows are missing: {problem}")
            what = manifest.rubric.mode.item
            Messages().say(f"{len(found.rows):,} of {counted(found.matching, what)}")
            return
        with Progress().step("reading the run") as report:
            summary = read_summary(run, report)
        if not summary.rows:
            print_table(headed(notices, "no rows"))
            return
        print_table(printed(summary_tables(summary), notices))
        for reason, count in summary.reasons.most_common(10):
            print(f"{count:,} failed: {reason}")


def _show_judgements(run: Path, ids: list[str], intervals: Path | None) -> None:
    from localjudge.runs.reader import read_notices, read_row_outcomes
    from localjudge.runs.reread_texts import RowTextStore
    from localjudge.runs.run_manifest import read_manifest
    from localjudge.studies.calibration import read_intervals

    manifest = read_manifest(run)
    intervals_of = read_intervals(intervals, [run]) if intervals else None
    wanted = set(ids)
    with Progress().step("reading the run"):
        found = [each for each in read_row_outcomes(run) if each.id in wanted]
        places = wanted - {each.id for each in found}
        rows = read_row_outcomes(run) if places else ()
        by_place = [each for each in rows if places.intersection(_places(each))]
    for place in sorted(places):
        if those := [each.id for each in by_place if place in _places(each)]:
            Messages().say(f"--id {place}: is not an id; it is the line of {', '.join(those)}")
    found += by_place
    if notices := read_notices(run):
        print_table(headed(notices))
    console = Console(width=None if sys.stdout.isatty() else get_terminal_size((120, 24)).columns)
    with RowTextStore(manifest, [each.first.digest for each in found]) as texts:
        for each in found:
            text = texts.get(each.first.digest)
            ends = intervals_of(each.first) if intervals_of else {}
            outcome = ShownOutcome(each, manifest.rubric.aspects, text, ends, manifest.mass_is_lower_bound)
            console.print(outcome.title, soft_wrap=True)  # a path is copied in one piece
            console.print(outcome)
        for problem in texts.problems:
            Messages().say(f"the texts of the row are missing: {problem}")
    if missing := wanted - {name for each in found for name in (each.id, *_places(each))}:
        known = next((each.id for each in read_row_outcomes(run)), None)
        such = f"; its ids are such as {known}" if known else ""
        what = manifest.rubric.mode.item
        raise UsageError(f"{run}: no {what} with the id {', '.join(sorted(missing))}{such}")


def _places(found: RowOutcome) -> set[str]:
    """Return the places of a row, or of both rows of a pair, and their lines alone: answers.csv:4 and 4."""
    places = found.first.source.split(" and ")
    return {*places, *(place.rpartition(":")[2] for place in places)}
