"""A report of runs as one file for a browser: tables, charts, and all judgements or pairs.

runs → judgements, texts → charts, head → page
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from localjudge.analysis.matching.run_rows import run_names
from localjudge.analysis.matching.scores import read_scores
from localjudge.analysis.statistics.resampling import RESAMPLES
from localjudge.errors import UsageError
from localjudge.report.judgements import Judgements
from localjudge.report.listed_checklists import ListedChecklists
from localjudge.report.listed_pairs import ListedPairs
from localjudge.report.overview import by_series, head
from localjudge.report.page import write_page
from localjudge.report.report_tables import section
from localjudge.report.tables import slice_table
from localjudge.report.tables.change_tables import change_findings
from localjudge.rubrics.mode import CHECKLIST, PAIRWISE, POINTWISE
from localjudge.runs.reader import is_complete
from localjudge.runs.run_manifest import read_manifest
from localjudge.system.requirements import require
from localjudge.system.steps import Step, no_steps


def write_report(
    runs: Sequence[Path],
    out: Path,
    *,
    title: str | None = None,
    inputs: Sequence[str] = (),
    labels: Sequence[str] = (),
    mapping: Sequence[str] = (),
    audit: Path | None = None,
    calibration: Path | None = None,
    allow_no_gain: Sequence[str] = (),
    intervals: Path | None = None,
    by_column: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    step: Step = no_steps,
) -> list[str]:
    """Write a report of runs, and return the notices for its reader, one line each.

    Args:
        runs: the run directories, judged on the same aspects and scale; runs of pairs, by one judge.
        out: the file to write.
        title: the title of the report; None for the names of the runs.
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
        step: receives the steps.

    Raises:
        UsageError: a file or run directory cannot be used, or an option does not fit the runs.
    """
    require("a report", "report")
    mode = read_manifest(runs[0]).rubric.mode
    if mode is not POINTWISE:
        given = {
            "`calibration`": calibration,
            "`allow_no_gain`": allow_no_gain,
            "`intervals`": intervals,
            "`by_column`": by_column,
        }
        if surplus := [option for option, value in given.items() if value]:
            raise UsageError(
                f"{surplus[0]}: is for runs with one judgement for each response; this rubric {mode.judges}"
            )
    if mode is PAIRWISE:
        return _write_pairs(runs, out, title, inputs, labels, mapping, audit, resamples, seed, step)
    from localjudge.analysis.agreement import agree
    from localjudge.analysis.agreement.calibration import Calibration, read_intervals
    from localjudge.analysis.by_slice import agree_by_slice, rank_by_slice
    from localjudge.analysis.matching.checklist_points import read_points, read_points_by_tag
    from localjudge.analysis.matching.human_labels import parse_mapping, read_labels
    from localjudge.analysis.matching.measured_texts import measure
    from localjudge.analysis.matching.slices import read_slices
    from localjudge.analysis.ranking import rank

    curves = Calibration.load(calibration) if calibration else None
    with ExitStack() as stack:
        with step("reading the judgements"):
            listed = ListedChecklists if mode is CHECKLIST else Judgements
            judgements = stack.enter_context(listed(runs, inputs))
            judgements.intervals_of = read_intervals(intervals, runs) if intervals else None
        with step("comparing the systems"):
            rubric = judgements.rubric
            ours = parse_mapping(mapping, [*rubric.aspects, *(column.name for column in rubric.score_columns)])
            rankings, agreements, sliced = [], [], []
            for of_one_judge in _by_judge(runs):
                scores = read_points(of_one_judge) if mode is CHECKLIST else read_scores(of_one_judge)
                known = (
                    read_labels(labels, scores, ours, inputs, False) if labels and mode is POINTWISE else None
                )
                measures = measure(scores, inputs)
                named = by_series(
                    curves.apply_to(scores, allow_no_gain, known) if curves else scores, judgements
                )
                # The overall human mean requires labels of every aspect.
                whole = known if known and set(known.aspects) >= set(named.aspects) else None
                rankings.append(rank(named, measures, whole, resamples=resamples, seed=seed))
                parts = None
                if by_column:
                    parts = named, read_slices(of_one_judge, scores.manifests, by_column, inputs)
                elif mode is CHECKLIST and all(map(is_complete, of_one_judge)):
                    parts = read_points_by_tag(of_one_judge)
                if parts:
                    found = rank_by_slice(
                        by_series(parts[0], judgements), parts[1], None, None, resamples, seed
                    )
                    sliced.append((", ".join(run_names(of_one_judge)), found))
            for run, name in zip(runs, run_names(runs), strict=True) if labels else ():
                scores = read_scores([run], by_criterion=mode is CHECKLIST)
                known, measures = read_labels(labels, scores, ours, inputs, False), measure(scores, inputs)
                calibrated = curves.apply_to(scores, allow_no_gain, known) if curves else None
                agreements.append((name, agree(scores, known, measures, calibrated, resamples, seed)))
                if by_column:
                    slices = read_slices([run], scores.manifests, by_column, inputs)
                    sliced.append((name, agree_by_slice(scores, known, slices)))
            changes = _changes(runs, inputs, resamples, seed, by_column)
        with step("writing the page") as report:
            about = head(judgements, title, rankings, agreements, changes, sliced, audit)
            write_page(out, about["title"], about, judgements, report)
        return list(about["notices"])


def _changes(
    runs: Sequence[Path], inputs: Sequence[str], resamples: int, seed: int, by_column: str | None = None
) -> dict[str, Any] | None:
    """Return what `localjudge compare` finds in two complete runs, or why they cannot be compared.

    None unless there are two runs, and both are complete.
    """
    from localjudge.analysis.changes import compare_runs
    from localjudge.analysis.changes.compared_rows import ComparedRows
    from localjudge.analysis.changes.matched_runs import match_runs
    from localjudge.analysis.changes.sliced_changes import change_by_slice
    from localjudge.analysis.matching.checklist_points import read_points
    from localjudge.analysis.matching.slices import read_slices
    from localjudge.analysis.pairs import read_judged_pairs

    if len(runs) != 2 or not all(map(is_complete, runs)):
        return None
    try:
        if read_manifest(runs[0]).rubric.mode is PAIRWISE:
            rows = ComparedRows.from_pairs(read_judged_pairs(runs, inputs))
        elif read_manifest(runs[0]).rubric.mode is CHECKLIST:
            rows = ComparedRows.from_scores(read_points(runs, by_run=False))
        else:
            rows = ComparedRows.from_scores(read_scores(runs, by_run=False))
        matched = match_runs(rows)
        found = change_findings(compare_runs(matched, resamples=resamples, seed=seed))
    except UsageError as error:
        return {"leads": [f"The runs cannot be compared: {error}"], "tables": []}
    if by_column:
        slices = read_slices(runs, rows.source.manifests, by_column, inputs)
        by_slice = slice_table(change_by_slice(matched, slices, resamples, seed))
        found = replace(found, main=[*found.main, by_slice])
    return section(found)


def _write_pairs(
    runs: Sequence[Path],
    out: Path,
    title: str | None,
    inputs: Sequence[str],
    labels: Sequence[str],
    mapping: Sequence[str],
    audit: Path | None,
    resamples: int,
    seed: int,
    step: Step,
) -> list[str]:
    """Write a report of runs of pairs."""
    from localjudge.analysis.matching.human_labels import parse_mapping
    from localjudge.analysis.pairs import read_judged_pairs
    from localjudge.analysis.pairs.pair_agreement import agree_on_pairs
    from localjudge.analysis.pairs.pair_labels import read_pair_labels
    from localjudge.analysis.pairs.preference_ranking import rank_pairs
    from localjudge.analysis.pairs.preferences import read_preferences
    from localjudge.report.pair_overview import pairs_head

    with ExitStack() as stack:
        with step("reading the pairs"):
            pairs = stack.enter_context(ListedPairs(runs, inputs))
        with step("comparing the systems"):
            ranking = None
            if pairs.names_systems and all(map(is_complete, runs)):
                first = next(iter(pairs.rubric.aspects))
                ranking = rank_pairs(read_preferences(runs, inputs), first, resamples, seed)
            ours, agreements = parse_mapping(mapping, [*pairs.rubric.aspects]), []
            for run, name in zip(runs, run_names(runs), strict=True) if labels else ():
                judged = read_judged_pairs([run], inputs)
                known = read_pair_labels(labels, judged, ours, inputs, False)
                agreements.append((name, agree_on_pairs(judged, known, None, resamples, seed)))
            changes = _changes(runs, inputs, resamples, seed)
        with step("writing the page", "pairs") as report:
            about = pairs_head(pairs, title, ranking, agreements, changes, audit)
            write_page(out, about["title"], about, pairs, report)
        return list(about["notices"])


def _by_judge(runs: Sequence[Path]) -> list[list[Path]]:
    """Group the runs by judge, because means by different judges cannot be compared."""
    together: dict[tuple[object, ...], list[Path]] = {}
    for run in runs:
        together.setdefault(tuple(read_manifest(run).judge.values()), []).append(run)
    return list(together.values())
