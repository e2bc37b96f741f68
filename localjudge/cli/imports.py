"""The command `import`: scores that were made elsewhere as a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from localjudge.cli.options import ColumnNames, Inputs, print_table
from localjudge.cli.statistics_options import LabelColumns
from localjudge.errors import UsageError
from localjudge.settings import Flag

if TYPE_CHECKING:
    from localjudge.rubrics.aspect import Aspect


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
    judge: Annotated[str, Flag("A name for the judge.", "NAME")] = "elsewhere",
    mapping: LabelColumns = None,
    columns: ColumnNames = None,
) -> None:
    """Import scores from elsewhere as a run, for the commands that read runs."""
    from localjudge.cli.printed_tables import printed
    from localjudge.cli.progress import Progress
    from localjudge.matching.labels import parse_mapping
    from localjudge.report.tables.run_tables import summary_tables
    from localjudge.rows.columns import parse_columns
    from localjudge.runs.reader import read_notices
    from localjudge.studies.imported_scores import import_scores

    progress = Progress()
    aspects = _aspects(aspect or [], scale, choices, rubric)
    with progress.step("importing"):
        summary = import_scores(
            inputs,
            out,
            aspects,
            judge=judge,
            mapping=parse_mapping(mapping or (), tuple(aspects)),
            columns=parse_columns(columns or ()),
        )
    notices = read_notices(out)
    print_table(printed(summary_tables(summary), notices))
    progress.notices(notices, in_table=True)
    progress.say(f"{summary.judged} judged, {summary.failed} failed · {out}")


def _aspects(
    names: list[str], scale: str | None, choices: str | None, rubric: str | None
) -> Mapping[str, Aspect]:
    """Return the aspects of an import with their values."""
    from pydantic import ValidationError

    from localjudge.rubrics.aspect import Aspect, Scale
    from localjudge.rubrics.rubric import Rubric

    given = {"--aspect": bool(names), "--scale": scale, "--choices": choices}
    if rubric is not None:
        if surplus := [option for option, value in given.items() if value]:
            raise UsageError(
                f"{surplus[0]}: --rubric {rubric} already names the aspects; give only one of the two"
            )
        read = Rubric.load(rubric)
        read.mode.require("aspects", f"--rubric {rubric}:", "; give one that judges one response")
        return read.aspects
    if not names:
        raise UsageError("--aspect is missing: name the aspects that were judged, or give their --rubric")
    try:
        if choices is not None:
            if scale is not None:
                raise UsageError(
                    f"--scale {scale}: labels have no scale; give only one of --scale and --choices"
                )
            values = Aspect(choices={label.strip(): label.strip() for label in choices.split(",")})
        else:
            lowest, dash, highest = (scale or "1-5").partition("-")
            if not (dash and lowest.isdecimal() and highest.isdecimal()):
                raise UsageError(f"--scale {scale}: write LOWEST-HIGHEST, such as 1-5")
            values = Aspect(scale=Scale(lowest=int(lowest), highest=int(highest)))
    except ValidationError as error:
        option, reason = "--choices" if choices else "--scale", error.errors()[0]["msg"]
        raise UsageError(f"{option} {choices or scale}: {reason.removeprefix('Value error, ')}") from None
    return dict.fromkeys(names, values)
