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
    """Show a run: its systems with their scores, or single judgements by their id."""
    from localjudge.progress import judgement_text
    from localjudge.rubric import Rubric
    from localjudge.run import read_lines, read_manifest
    from localjudge.summary import Summary, printable

    manifest = read_manifest(run)
    rubric = Rubric.model_validate(manifest["rubric"])
    if not row_id:
        summary = Summary(rubric.aspects)
        for line in read_lines(run):
            summary.add(line)
        print_table(summary.table())
        print_table(summary.chart(rubric.scale.values))
        for reason, count in summary.reasons.most_common(10):
            typer.echo(printable(f"{count} failed: {reason}"))
        return
    from localjudge.texts import Texts

    wanted = set(row_id)
    lines = [line for line in read_lines(run) if line["id"] in wanted]
    with Texts(manifest, lines) as texts:
        for line in lines:
            typer.echo(judgement_text(line, rubric.aspects, texts.get(line)))
        for problem in texts.problems:
            typer.echo(printable(f"the row's texts are missing: {problem}"), err=True)
    if missing := wanted - {line["id"] for line in lines}:
        raise UsageError(f"{run}: no row with the id {', '.join(sorted(missing))}")
