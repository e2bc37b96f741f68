"""A report of runs as one file for a browser: tables, charts, and all rows.

runs → rows, texts → charts, head → page
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from localjudge.errors import UsageError
from localjudge.matching.judged_rows import read_judged_pairs, read_scores
from localjudge.matching.labels import label_targets, parse_mapping, read_labels
from localjudge.matching.run_rows import run_names
from localjudge.matching.scores import read_slices
from localjudge.report.listed_rows import ListedRows
from localjudge.report.overview import by_series, head, score_notices, score_sections
from localjudge.report.page import write_page
from localjudge.report.pair_overview import pair_sections
from localjudge.report.report_tables import agreement_section, section
from localjudge.report.tables import slice_table
from localjudge.report.tables.change_tables import change_findings
from localjudge.runs.reader import is_complete
from localjudge.runs.run_manifest import read_manifest
from localjudge.statistics.resampling import RESAMPLES
from localjudge.studies.agree import agree, agree_on_pairs
from localjudge.studies.by_slice import agree_by_slice, rank_by_slice
from localjudge.studies.calibrate import Calibration, read_intervals
from localjudge.studies.compare import change_by_slice, compare_runs
from localjudge.studies.compare.compared_rows import ComparedRows
from localjudge.studies.compare.matched_runs import match_runs
from localjudge.studies.rank import rank
from localjudge.studies.rank.preference_ranking import rank_pairs
from localjudge.system.requirements import require
from localjudge.system.steps import Step, no_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """What a report has besides the rows of its runs.

    Attributes:
        title: its title; None for the names of the runs.
        inputs: the input files, if they were moved after the runs.
        labels: label files to compare the judge with.
        mapping: the aspects of label columns with other names, as OURS=THEIRS.
        audit: the output of `localjudge audit --json`.
        calibration: the output file of `localjudge calibrate`; the means are then of calibrated scores.
        allow_no_gain: aspects to calibrate although no gain is shown.
        intervals: the output file of `localjudge calibrate --interval`; each score then has its interval.
        by_column: a column of the rows; the statistics of each of its values are written, too.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
    """

    title: str | None = None
    inputs: Sequence[str] = ()
    labels: Sequence[str] = ()
    mapping: Sequence[str] = ()
    audit: Path | None = None
    calibration: Path | None = None
    allow_no_gain: Sequence[str] = ()
    intervals: Path | None = None
    by_column: str | None = None
    resamples: int = RESAMPLES
    seed: int = 0

    @property
    def draws(self) -> tuple[int, int]:
        """The number of resamples, and their seed."""
        return self.resamples, self.seed


_EVERYTHING = ReportOptions()


def write_report(
    runs: Sequence[Path], out: Path, options: ReportOptions = _EVERYTHING, step: Step = no_steps
) -> list[str]:
    """Write a report of runs, and return the notices for its reader, one line each.

    Args:
        runs: the run directories, judged on the same aspects and scale; runs of pairs, by one judge.
        out: the file to write.
        options: what the report has besides the rows.
        step: receives the steps.

    Raises:
        UsageError: a file or run directory cannot be used, or an option does not fit the runs.
    """
    require("a report", "report")
    mode = read_manifest(runs[0]).rubric.mode
    for name in ("calibration", "allow_no_gain", "intervals", "by_column"):
        if getattr(options, name):
            one = f"`{name}`: is for runs with one judgement for each response; this rubric"
            mode.require("aspects", one, "")
    with step(f"reading the {mode.listed[1]}"):
        listed = ListedRows(runs, options.inputs)
    with listed:
        with step("comparing the systems"):
            sections_of = _pair_sections if len(mode.responses) > 1 else _score_sections
            sections, notices = sections_of(listed, options)
            sections["changes"] = _changes(runs, options)
            about = head(listed, options.title, notices, sections, options.audit)
        with step("writing the page", mode.listed[1]) as report:
            write_page(out, about["title"], about, listed, report)
    return list(about["notices"])


def _score_sections(listed: ListedRows, options: ReportOptions) -> tuple[dict[str, Any], list[str]]:
    """Return the sections of the statistics of scores, of responses or of criteria, and their notices."""
    runs, rubric, labels = listed.folders, listed.rubric, options.labels
    curves = Calibration.load(options.calibration) if options.calibration else None
    listed.intervals_of = read_intervals(options.intervals, runs) if options.intervals else None
    ours = parse_mapping(options.mapping, label_targets(rubric))
    rankings, agreements, sliced = [], [], []
    for of_one_judge in _by_judge(runs):
        scores = read_scores(of_one_judge, criteria="joined")
        known = None
        if labels and "criteria" not in rubric.mode.gives:
            known = read_labels(labels, scores, ours, options.inputs, False)
        named = by_series(curves.apply_to(scores, options.allow_no_gain, known) if curves else scores, listed)
        # The overall human mean requires labels of every aspect.
        whole = known if known and set(known.aspects) >= set(named.aspects) else None
        rankings.append(rank(named, whole, resamples=options.resamples, seed=options.seed))
        parts = None
        if options.by_column:
            parts = named, read_slices(of_one_judge, scores.manifests, options.by_column, options.inputs)
        elif all(map(is_complete, of_one_judge)):
            parts = scores.by_tag
        if parts:
            found = rank_by_slice(by_series(parts[0], listed), parts[1], None, None, *options.draws)
            sliced.append((", ".join(run_names(of_one_judge)), found))
    for run, name in zip(runs, run_names(runs), strict=True) if labels else ():
        scores = read_scores([run], criteria="split")
        known = read_labels(labels, scores, ours, options.inputs, False)
        calibrated = curves.apply_to(scores, options.allow_no_gain, known) if curves else None
        agreements.append((name, agree(scores, known, calibrated, *options.draws)))
        if options.by_column:
            slices = read_slices([run], scores.manifests, options.by_column, options.inputs)
            sliced.append((name, agree_by_slice(scores, known, slices)))
    sections = score_sections(listed, rankings, sliced)
    sections["agreement"] = agreement_section(agreements)
    return sections, [*score_notices(listed, rankings)]


def _pair_sections(listed: ListedRows, options: ReportOptions) -> tuple[dict[str, Any], list[str]]:
    """Return the sections of the statistics of preferences, and their notices."""
    runs, inputs, labels = listed.folders, options.inputs, options.labels
    ranking = None
    if listed.compares_systems and all(map(is_complete, runs)):
        first = next(iter(listed.rubric.aspects))
        ranking = rank_pairs(read_judged_pairs(runs), first, *options.draws)
    ours, agreements = parse_mapping(options.mapping, label_targets(listed.rubric)), []
    for run, name in zip(runs, run_names(runs), strict=True) if labels else ():
        judged = read_judged_pairs([run])
        known = read_labels(labels, judged, ours, inputs, False)
        agreements.append((name, agree_on_pairs(judged, known, None, *options.draws)))
    sections = pair_sections(listed, ranking)
    sections["agreement"] = agreement_section(agreements)
    return sections, []


def _changes(runs: Sequence[Path], options: ReportOptions) -> dict[str, Any] | None:
    """Return what `localjudge compare` finds in two complete runs, or why they cannot be compared.

    None unless there are two runs, and both are complete.
    """
    if len(runs) != 2 or not all(map(is_complete, runs)):
        return None
    try:
        matched = match_runs(ComparedRows.read(runs))
        found = change_findings(compare_runs(matched, resamples=options.resamples, seed=options.seed))
    except UsageError as error:
        return {"leads": [f"The runs cannot be compared: {error}"], "tables": []}
    if options.by_column:
        slices = read_slices(runs, matched.rows.source.manifests, options.by_column, options.inputs)
        by_slice = slice_table(change_by_slice(matched, slices, *options.draws))
        found = replace(found, main=[*found.main, by_slice])
    return section(found)


def _by_judge(runs: Sequence[Path]) -> list[list[Path]]:
    """Group the runs by judge, because means by different judges cannot be compared."""
    together: dict[tuple[object, ...], list[Path]] = {}
    for run in runs:
        together.setdefault(tuple(read_manifest(run).judge.values()), []).append(run)
    return list(together.values())
