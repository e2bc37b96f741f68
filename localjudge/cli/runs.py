"""The commands that turn runs into something else, or that into a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localjudge.cli.console import print_table, printed
from localjudge.cli.options import (
    FAILED_ROWS,
    ColumnNames,
    Inputs,
    RunFolders,
    check_out_file,
    refuse_input_as_out,
)
from localjudge.cli.progress import Progress, one_run
from localjudge.errors import UsageError
from localjudge.report.study_options import IntervalFile, LabelColumns, ReportOptions
from localjudge.settings import Flag
from localjudge.system.durable import after_writing
from localjudge.system.quantities import counted, file_size

if TYPE_CHECKING:
    from pydantic import ValidationError

    from localjudge.rubrics.aspect import Aspect
    from localjudge.rubrics.rubric import Rubric
    from localjudge.runs.summary import Summary


def report(
    runs: RunFolders,
    out: Annotated[Path, Flag("The file to write.", "FILE")] = Path("report.html"),
    *,
    options: ReportOptions,
) -> None:
    """Write a report of runs: one file for any browser, which fetches nothing."""
    from localjudge.report.run_report import write_report
    from localjudge.runs.run_manifest import inputs_of_runs

    options.require("report")
    check_out_file(out)
    refuse_input_as_out(out, options.files + inputs_of_runs(runs))
    progress = Progress()
    notices = write_report(runs, out, options=options, step=progress.step)
    progress.notices(notices)
    progress.say(f"{out} · {file_size(out.stat().st_size)}")


def export(
    runs: RunFolders,
    out: Annotated[Path, Flag("The file to write.", "FILE")],
    to: Annotated[
        str | None, Flag("The format of the file.  [default: by the suffix of --out]", "jsonl|csv|parquet")
    ] = None,
    with_texts: Annotated[bool, Flag("Include the instruction, the reference and each candidate.")] = False,
    intervals: IntervalFile = None,
) -> None:
    """Write a run, or its pairs, as a table for other tools: JSON lines, CSV or Parquet."""
    from localjudge.report.run_export import export as write_export
    from localjudge.report.table_files import FORMATS
    from localjudge.runs.reader import read_notices
    from localjudge.runs.run_manifest import read_manifest

    if to is None:
        to = out.suffix.removeprefix(".")
        if to not in FORMATS:
            raise UsageError(
                f"--out {out}: its suffix names no table; end it with .{', .'.join(FORMATS)}, or give --to"
            )
    check_out_file(out)
    if intervals is not None:
        refuse_input_as_out(out, [intervals])
    progress = Progress()
    with one_run(runs) as run:
        item = read_manifest(run).rubric.mode.item
        with progress.step("exporting", f"{item}s") as report:
            rows = write_export(run, to, out=out, with_texts=with_texts, report=report, intervals=intervals)
        progress.say(f"{counted(rows, item)} · {out}")
        progress.notices(read_notices(run))


def merge(
    shards: Annotated[list[Path], typer.Argument(metavar="DIR...", help="The shards' run directories.")],
    out: Annotated[Path, Flag("The run directory to write.", "DIR")],
) -> None:
    """Merge the shards of a run into one run, in the order of the input.

    The judgements are those of one machine: byte for byte with --engine-arg batch_size=1 or --deterministic.
    Elsewhere shards fill other batches, and where two tokens are almost equally probable, a score may differ.
    The rows that shards have judged again to measure their noise are those of the run.
    """
    from localjudge.runs.merge import merge as merge_shards
    from localjudge.runs.reader import lacks_noise

    progress = Progress()
    with progress.step("merging") as report:
        summary = merge_shards(shards, out, report=report)
    _print_summary(progress, summary, run=out)
    without = [str(shard) for shard in shards if lacks_noise(shard)]
    if summary.noise is not None and without:
        progress.warn(f"the noise is that of the other shards: it was not measured in {', '.join(without)}")
    if summary.failed:
        raise typer.Exit(FAILED_ROWS)


def _print_summary(progress: Progress, summary: Summary, *, run: Path) -> None:
    """Print the numbers of a run that was written."""
    from localjudge.report.summary_tables import summary_tables
    from localjudge.runs.reader import read_notices

    notices = read_notices(run)
    print_table(printed(summary_tables(summary), notices))
    progress.notices(notices, in_table=True)
    progress.say(f"{summary.counted} · {run}")


def import_scores(
    inputs: Inputs,
    out: Annotated[Path, Flag("The run directory.", "DIR")],
    aspect: Annotated[list[str] | None, Flag("An aspect that was judged.", "NAME")] = None,
    scale: Annotated[
        str | None, Flag("The lowest and the highest score.  [default: 1-5]", "LOWEST-HIGHEST")
    ] = None,
    choices: Annotated[str | None, Flag("The labels, instead of a scale.", "A,B,...")] = None,
    rubric: Annotated[
        str | None, Flag("The rubric whose aspects were judged, instead of --aspect.", "NAME|FILE")
    ] = None,
    judge: Annotated[
        str | None, Flag("A name for the judge.  [default: elsewhere, or the judge of an export]", "NAME")
    ] = None,
    mapping: LabelColumns = None,
    columns: ColumnNames = None,
) -> None:
    """Import scores from elsewhere as a run, for the commands that read runs.

    An export of a run, given with --rubric, becomes a run with the same probabilities, and the same pairs in
    both orders.
    """
    from localjudge.matching.labels import parse_mapping
    from localjudge.rows.columns import parse_columns
    from localjudge.rubrics.rubric import Rubric
    from localjudge.studies.imported_scores import import_scores as import_run

    progress = Progress()
    if rubric is not None:
        _refuse_aspects(rubric, {"--aspect": bool(aspect), "--scale": scale, "--choices": choices})
        loaded_rubric = Rubric.load(rubric)
        aspects: Mapping[str, Aspect] | Rubric = loaded_rubric
        names = tuple(loaded_rubric.aspects)
    elif not aspect:
        raise UsageError("--aspect is missing: name the aspects that were judged, or give their --rubric")
    else:
        aspects = dict.fromkeys(aspect, _values(scale, choices))
        names = tuple(aspect)
    with progress.step("importing"):
        summary = import_run(
            inputs,
            out,
            aspects,
            judge=judge,
            mapping=parse_mapping(mapping or (), names),
            columns=parse_columns(columns or ()),
        )
    with after_writing(out):
        _print_summary(progress, summary, run=out)


def _refuse_aspects(rubric: str, options: Mapping[str, str | bool | None]) -> None:
    """Refuse options that say what the rubric says, too.

    Raises:
        UsageError: one is given.
    """
    for flag, value in options.items():
        if value:
            raise UsageError(f"{flag}: --rubric {rubric} already names the aspects; give only one of the two")


def _values(scale: str | None, choices: str | None) -> Aspect:
    """Return the values of the aspects: labels, or a scale, which is 1-5 by default.

    Raises:
        UsageError: both are given, or one cannot be read.
    """
    if choices is None:
        return _aspect_of_scale(scale or "1-5")
    if scale is not None:
        raise UsageError(f"--scale {scale}: labels have no scale; give only one of --scale and --choices")
    return _aspect_of_labels(choices)


def _aspect_of_scale(scale: str) -> Aspect:
    """Return an aspect with the integers of a scale, such as 1-5.

    Raises:
        UsageError: this is no scale.
    """
    from pydantic import ValidationError

    from localjudge.rubrics.aspect import Aspect, Scale

    ends = re.fullmatch(r"(\d+)-(\d+)", scale)
    if ends is None:
        raise UsageError(f"--scale {scale}: write LOWEST-HIGHEST, such as 1-5")
    try:
        return Aspect(scale=Scale(lowest=int(ends[1]), highest=int(ends[2])))
    except ValidationError as error:
        raise UsageError(f"--scale {scale}: {_reason(error)}") from None


def _aspect_of_labels(choices: str) -> Aspect:
    """Return an aspect with labels, which are separated by commas.

    Raises:
        UsageError: they cannot be the values of an aspect.
    """
    from pydantic import ValidationError

    from localjudge.rubrics.aspect import Aspect

    labels = [label.strip() for label in choices.split(",")]
    try:
        return Aspect(choices={label: label for label in labels})
    except ValidationError as error:
        raise UsageError(f"--choices {choices}: {_reason(error)}") from None


def _reason(error: ValidationError) -> str:
    """Return why pydantic refuses a value."""
    message: str = error.errors()[0]["msg"]
    return message.removeprefix("Value error, ")
