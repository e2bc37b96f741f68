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
) -> None:
    """Show a run: its systems with their scores, or single judgements by their id."""
    from localjudge.cli.progress import judgement_text
    from localjudge.rubrics.rubric import Rubric
    from localjudge.runs.notices import headed, kinds
    from localjudge.runs.reader import read_lines, read_notices
    from localjudge.runs.run_manifest import read_manifest
    from localjudge.runs.summary import Summary

    manifest = read_manifest(run)
    rubric = Rubric.model_validate(manifest["rubric"])
    notices = read_notices(run)
    if not row_id:
        summary = Summary(rubric.aspects)
        for line in read_lines(run):
            summary.add(line)
        print_table(headed(notices, summary.table()))
        print_table(headed([kinds(notices)] if notices else (), summary.chart(rubric.scale.values)))
        for reason, count in summary.reasons.most_common(10):
            print(f"{count} failed: {reason}")
        return
    from localjudge.runs.row_texts import Texts

    wanted = set(row_id)
    lines = [line for line in read_lines(run) if line["id"] in wanted]
    if notices:
        print_table(headed(notices))
    with Texts(manifest, lines) as texts:
        for line in lines:
            print(judgement_text(line, rubric.aspects, texts.get(line)))
        for problem in texts.problems:
            print(f"the row's texts are missing: {problem}", file=sys.stderr)
    if missing := wanted - {line["id"] for line in lines}:
        raise UsageError(f"{run}: no row with the id {', '.join(sorted(missing))}")


def export(
    run: RunFolder,
    to: Annotated[
        str, typer.Option("--to", metavar="jsonl|csv|parquet|alpaca-eval|inspect", show_default=False)
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="For inspect, a folder.", show_default=False)
    ],
    with_texts: Annotated[
        bool, typer.Option("--with-texts", help="With each row's instruction, reference and candidate.")
    ] = False,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="SYSTEM", help="For alpaca-eval: the system to compare with.", show_default=False),
    ] = None,
) -> None:
    """Write a run for other tools: tables, AlpacaEval's annotations, Inspect's logs."""
    from localjudge.export.formats import export as write
    from localjudge.runs.reader import read_notices

    if to != "inspect":
        check_out_file(out)
    print(f"{write(run, to, out, with_texts, baseline)} rows · {out}", file=sys.stderr)
    for notice in read_notices(run):
        print(notice, file=sys.stderr)


def merge(
    shards: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="The shards' run directories.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The merged run's.", show_default=False)],
) -> None:
    """Put the shards of a run together, as if one machine had judged them all."""
    from localjudge.runs.merge import merge as put_together
    from localjudge.runs.notices import headed
    from localjudge.runs.reader import read_notices

    summary = put_together(shards, out)
    print_table(headed(read_notices(out), summary.table()))
    print(f"{summary.judged} judged, {summary.failed} failed · {out}", file=sys.stderr)
    if summary.failed:
        raise typer.Exit(FAILED_ROWS)
