"""Commands that read run directories: `show`, `export` and `merge`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from localjudge.cli.options import FAILED_ROWS, RunFolder, check_out_file, print_table
from localjudge.errors import UsageError


def show(
    run: RunFolder,
    row_id: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="Show the judgement of this row.")
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="List the rows of this system, one line each."),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="List the failures with their reasons.")] = False,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="ASPECT",
            help="List the judged rows by this score, lowest first; by the expected score if the run has it.",
        ),
    ] = None,
    descending: Annotated[bool, typer.Option("--descending", help="With --sort: highest first.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="List only the first N rows."),
    ] = None,
) -> None:
    """Show a run: its systems with their scores, a list of its rows, or single judgements by id.

    Each of --system, --failed, --sort and --limit selects the list: id, system and scores, or the reason for a
    failure.
    """
    from localjudge.runs.notices import headed, kinds
    from localjudge.runs.reader import read_notices, read_outcomes
    from localjudge.runs.run_manifest import read_manifest
    from localjudge.runs.summary import Summary

    lists_rows = system is not None or failed or sort is not None or limit is not None
    if row_id and lists_rows:
        raise UsageError("--id shows single judgements; give it without --system, --failed, --sort and --limit")
    if descending and sort is None:
        raise UsageError("--descending: give the aspect with --sort ASPECT")
    if row_id:
        _show_judgements(run, row_id)
        return
    rubric, notices = read_manifest(run).rubric, read_notices(run)
    if lists_rows:
        from localjudge.cli.shown_rows import RowList, RowSelection

        found = RowList.read(run, rubric, RowSelection(system, failed, sort, descending, limit))
        if notices:
            print_table(headed(notices))
        for text in found.texts():
            print(text)
        print(f"{len(found.rows)} of {found.matching} rows", file=sys.stderr)
        return
    summary = Summary(rubric.score_columns)
    for outcome in read_outcomes(run):
        summary.add(outcome)
    print_table(headed(notices, summary.table()))
    print_table(headed([kinds(notices)] if notices else (), summary.chart()))
    for reason, count in summary.reasons.most_common(10):
        print(f"{count} failed: {reason}")


def _show_judgements(run: Path, ids: list[str]) -> None:
    from localjudge.cli.progress import judgement_text
    from localjudge.runs.notices import headed
    from localjudge.runs.reader import read_notices, read_outcomes
    from localjudge.runs.reread_texts import Texts
    from localjudge.runs.run_manifest import read_manifest

    manifest = read_manifest(run)
    wanted = set(ids)
    outcomes = [outcome for outcome in read_outcomes(run) if outcome.id in wanted]
    if notices := read_notices(run):
        print_table(headed(notices))
    with Texts(manifest, outcomes) as texts:
        for outcome in outcomes:
            print(judgement_text(outcome, manifest.rubric.aspects, texts.get(outcome)))
        for problem in texts.problems:
            print(f"the texts of the row are missing: {problem}", file=sys.stderr)
    if missing := wanted - {outcome.id for outcome in outcomes}:
        known = next((outcome.id for outcome in read_outcomes(run)), None)
        such = f"; its ids are such as {known}" if known else ""
        raise UsageError(f"{run}: no row with the id {', '.join(sorted(missing))}{such}")


def export(
    run: RunFolder,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="jsonl|csv|parquet|alpaca-eval|inspect",
            help="The format of the file.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FILE", help="The file to write; a folder for inspect."),
    ],
    with_texts: Annotated[
        bool, typer.Option("--with-texts", help="Include each row's instruction, reference and candidate.")
    ] = False,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="SYSTEM", help="For alpaca-eval: the system to compare with."),
    ] = None,
) -> None:
    """Write a run for other tools: tables, AlpacaEval's annotations, Inspect's logs."""
    from localjudge.export.run_export import export as write
    from localjudge.runs.reader import read_notices

    if to != "inspect":
        check_out_file(out)
    print(f"{write(run, to, out, with_texts, baseline)} rows · {out}", file=sys.stderr)
    for notice in read_notices(run):
        print(notice, file=sys.stderr)


def merge(
    shards: Annotated[list[Path], typer.Argument(metavar="DIR...", help="The shards' run directories.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The run directory to write.")],
) -> None:
    """Merge the shards of a run into the run that one machine would have written."""
    from localjudge.runs.merge import merge as put_together
    from localjudge.runs.notices import headed
    from localjudge.runs.reader import read_notices

    summary = put_together(shards, out)
    print_table(headed(read_notices(out), summary.table()))
    print(f"{summary.judged} judged, {summary.failed} failed · {out}", file=sys.stderr)
    if summary.failed:
        raise typer.Exit(FAILED_ROWS)
