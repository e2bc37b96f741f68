"""The command `report`: write runs as one file for a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from localjudge.cli.options import check_out_file, input_extras
from localjudge.cli.statistics_options import (
    AllowNoGain,
    ByColumn,
    CalibrationFile,
    IntervalFile,
    LabelColumns,
    MovedInputs,
    RunFolders,
)
from localjudge.system.quantities import file_size


def report(
    runs: RunFolders,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write.")] = Path(
        "report.html"
    ),
    title: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Its title.  [default: the runs' names]"),
    ] = None,
    inputs: MovedInputs = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--labels", metavar="FILE", help="Labels to compare the judge with."),
    ] = None,
    mapping: LabelColumns = None,
    calibration: CalibrationFile = None,
    allow_no_gain: AllowNoGain = None,
    intervals: IntervalFile = None,
    by_column: ByColumn = None,
    audit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The output of `audit --json`."),
    ] = None,
) -> None:
    """Write a report of runs: one file for any browser, which fetches nothing."""
    from localjudge.system.requirements import require

    require("report", "report", *input_extras([*(labels or ()), *(inputs or ())]))
    from localjudge.cli.progress import Progress
    from localjudge.report.run_report import write_report

    check_out_file(out)
    progress = Progress()
    notices = write_report(
        runs,
        out,
        title=title,
        inputs=inputs or (),
        labels=labels or (),
        mapping=mapping or (),
        audit=audit,
        calibration=calibration,
        allow_no_gain=allow_no_gain or (),
        intervals=intervals,
        by_column=by_column,
        step=progress.step,
    )
    progress.notices(notices)
    progress.say(f"{out} · {file_size(out.stat().st_size)}")
