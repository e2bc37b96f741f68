"""Commands that read run directories: `show`."""

from __future__ import annotations

from typing import Annotated

import typer

from localjudge.cli.options import RunFolder, print_table
from localjudge.errors import UsageError


def show(
    run: RunFolder,
    row_id: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="Show the judgement of this row.")
    ] = None,
) -> None:
    """Show a run: a table of its systems, or single judgements by their id."""
    from localjudge.manifest import read_manifest
    from localjudge.progress import judgement_text
    from localjudge.rubric import Rubric
    from localjudge.run import read_lines
    from localjudge.summary import Summary, printable

    aspects = Rubric.model_validate(read_manifest(run)["rubric"]).aspects
    if not row_id:
        summary = Summary(aspects)
        for line in read_lines(run):
            summary.add(line)
        print_table(summary.table())
        for reason, count in summary.reasons.most_common(10):
            typer.echo(printable(f"{count} failed: {reason}"))
        return
    wanted = set(row_id)
    found = set()
    for line in read_lines(run):
        if line["id"] in wanted:
            found.add(line["id"])
            typer.echo(judgement_text(line, aspects))
    if missing := wanted - found:
        raise UsageError(f"{run}: no row with the id {', '.join(sorted(missing))}")
