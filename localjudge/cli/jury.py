"""The command `jury`, which compares judges and combines their scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from localjudge.cli.options import RunFolders
from localjudge.cli.progress import Progress
from localjudge.cli.statistics_options import AllTables, StatisticsOptions
from localjudge.report.study_options import LabelOptions
from localjudge.settings import Flag
from localjudge.system.durable import after_writing


def jury(
    runs: RunFolders,
    *,
    out: Annotated[
        Path | None,
        Flag("Write the jury's scores as a run: median and mean, or the most frequent label.", "DIR"),
    ] = None,
    people: LabelOptions,
    all_tables: AllTables = False,
    statistics: StatisticsOptions,
) -> None:
    """Compare judges, or runs of one judge: agreement, outlier, and their combined scores as a run."""
    from localjudge.report.jury_document import jury_document
    from localjudge.report.jury_tables import jury_findings
    from localjudge.runs.run_state import unchanged
    from localjudge.studies.jury import compare_judges
    from localjudge.studies.jury_run import write_jury

    people.require("jury")
    statistics.check(runs)
    progress = Progress()
    resamples, seed = statistics.draws
    labels_of = people.labels_of if people.labels else None
    with unchanged(runs), progress.step(statistics.computing):
        compared = compare_judges(runs, resamples=resamples, seed=seed, labels=labels_of)
    statistics.print(jury_document(compared), jury_findings(compared), all_tables=all_tables)
    if out is not None:
        with progress.step("writing the jury's run"):
            summary = write_jury(runs, out)
        with after_writing(out):
            progress.say(f"{summary.judged:,} judged, {summary.failed:,} failed · {out}")
