"""A report of runs as one file for a browser: findings, and all rows.

runs → rows, texts → findings → page
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from localjudge.modes.mode import Mode
from localjudge.report.listed_rows import ListedRows
from localjudge.report.overview import page_head
from localjudge.report.page import write_page
from localjudge.report.report_studies import ReportStudies
from localjudge.report.study_options import ReportOptions
from localjudge.runs.run_manifest import read_manifest
from localjudge.runs.run_state import unchanged
from localjudge.statistics.resampling import RESAMPLES
from localjudge.studies.calibration import read_intervals
from localjudge.system.requirements import require
from localjudge.system.steps import Step, no_steps

_EVERYTHING = ReportOptions()


def write_report(
    runs: Sequence[Path],
    out: Path,
    options: ReportOptions = _EVERYTHING,
    step: Step = no_steps,
    resamples: int = RESAMPLES,
) -> list[str]:
    """Write a report of runs, and return the notices for its reader, one line each.

    Args:
        runs: the run directories, judged on the same aspects and scale; runs of pairs, by one judge.
        out: the file to write.
        options: what the report has besides the rows.
        step: receives the steps.
        resamples: number of resamples for the intervals.

    Raises:
        UsageError: a file or run directory cannot be used, or an option does not fit the runs.
    """
    require("a report", "trust")
    mode = read_manifest(runs[0]).rubric.mode
    _refuse_options(options, mode)
    with ExitStack() as stack:
        with unchanged(runs):
            with step(f"reading the {mode.list_words.many}"):
                listed = stack.enter_context(ListedRows(runs, options.moved))
            with step("comparing the systems"):
                intervals_of = None
                if options.intervals is not None:
                    intervals_of = read_intervals(options.intervals, listed.folders)
                findings = ReportStudies(listed, options, resamples=resamples).findings()
                head = page_head(listed, options.title, sections=findings.sections, notices=findings.notices)
        with step("writing the page", mode.list_words.many) as report:
            write_page(out, head, listed=listed, intervals_of=intervals_of, report=report)
    return list(head["notices"])


def _refuse_options(options: ReportOptions, mode: Mode[Any]) -> None:
    """Refuse options that are not for runs of this mode."""
    for name, file in (("calibration", options.calibration), ("intervals", options.intervals)):
        if file is not None:
            mode.require_aspects(f"`{name}`: is for runs with one judgement for each response; this rubric")
