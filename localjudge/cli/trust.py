"""Commands that measure how reliable a judge is: `agree`, `rank`, `jury` and `calibrate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localjudge.cli.options import RunFolder, check_out_file, input_extras
from localjudge.cli.statistics_options import (
    AllowNoGain,
    AllTables,
    ByColumn,
    CalibrationFile,
    LabelColumns,
    LabelFiles,
    MovedInputs,
    RunFolders,
    ScoresOf,
    SomeLabelFiles,
    StatisticsOptions,
)
from localjudge.errors import UsageError

if TYPE_CHECKING:
    from localjudge.analysis.matching.human_labels import Labels
    from localjudge.analysis.matching.scores import Scores
    from localjudge.rubrics.mode import Mode

_READING = "reading runs, labels and texts"


def agree(
    run: RunFolder,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--labels",
            metavar="FILE",
            help="Label files: records with id, or with their texts, and a column for each aspect.  [default "
            "for pairs: the run's inputs]",
        ),
    ] = None,
    *,
    mapping: LabelColumns = None,
    inputs: MovedInputs = None,
    by_column: ByColumn = None,
    calibration: CalibrationFile = None,
    allow_no_gain: AllowNoGain = None,
    all_tables: AllTables = False,
    statistics: StatisticsOptions,
) -> None:
    """Compare a run with labels: agreement, also within instructions, single annotators, and baselines."""
    from localjudge.system.requirements import require

    require("agree", "trust", *input_extras([*(labels or ()), *(inputs or ())]))
    statistics.check([run])
    if compare_responses([run]):
        given = {"--calibration": calibration, "--allow-no-gain": allow_no_gain}
        if surplus := [option for option, value in given.items() if value]:
            raise UsageError(f"{surplus[0]}: is for runs that judge one response; this one compares two")
        _agree_on_pairs(run, labels or (), mapping or (), inputs or (), by_column, all_tables, statistics)
        return
    if not labels:
        raise UsageError("--labels is missing: name the files with the labels of the rows")
    by_criterion = checks_criteria([run])
    if by_criterion and by_column:
        raise UsageError(f"--by-column {by_column}: is for runs of one score a row; this one checks criteria")
    from localjudge.analysis.agreement import agree as compare
    from localjudge.analysis.by_slice import agree_by_slice
    from localjudge.analysis.matching.human_labels import parse_mapping, read_labels
    from localjudge.analysis.matching.measured_texts import measure
    from localjudge.analysis.matching.scores import read_scores
    from localjudge.analysis.matching.slices import read_slices
    from localjudge.cli.progress import Progress
    from localjudge.cli.tables.agreement_tables import agreement_tables

    progress = Progress()
    with progress.step(_READING) as report:
        scores = read_scores([run], report=report, by_criterion=by_criterion)
        ours = parse_mapping(mapping or (), scores.targets)
        known = read_labels(labels, scores, ours, inputs or (), equal_chances=False)
        applied = _calibrated(scores, calibration, allow_no_gain, known)
        measures = measure(scores, inputs or ())
    with progress.step(statistics.computing):
        found = compare(scores, known, measures, applied, statistics.resamples, statistics.seed)
        sliced = None
        if by_column:
            slices = read_slices(scores.folders, scores.manifests, by_column, inputs or ())
            sliced = agree_by_slice(scores, known, slices)
    statistics.print(found.as_dict(), agreement_tables(found, all_tables), sliced)


def _agree_on_pairs(
    run: Path,
    labels: Sequence[str],
    mapping: Sequence[str],
    inputs: Sequence[str],
    by: str | None,
    all_tables: bool,
    statistics: StatisticsOptions,
) -> None:
    from localjudge.analysis.matching.human_labels import parse_mapping
    from localjudge.analysis.pairs import read_judged_pairs
    from localjudge.analysis.pairs.pair_agreement import agree_on_pairs
    from localjudge.analysis.pairs.pair_labels import read_pair_labels
    from localjudge.cli.progress import Progress
    from localjudge.cli.tables.agreement_tables import pair_agreement_tables

    progress = Progress()
    with progress.step(_READING):
        pairs = read_judged_pairs([run], inputs)
        ours = parse_mapping(mapping, [*pairs.aspects])
        known = read_pair_labels(labels or inputs, pairs, ours, inputs, equal_chances=False)
    with progress.step(statistics.computing):
        found = agree_on_pairs(pairs, known, by, statistics.resamples, statistics.seed)
    statistics.print(found.as_dict(), pair_agreement_tables(found, all_tables))


def rank(
    runs: RunFolders,
    *,
    labels: SomeLabelFiles = None,
    mapping: LabelColumns = None,
    inputs: MovedInputs = None,
    scores: ScoresOf = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The aspect, or the share of a label such as grade=correct, that decides the order. With "
            "criteria: a tag; the score is then that of the criteria with this tag.",
        ),
    ] = None,
    by_column: ByColumn = None,
    calibration: CalibrationFile = None,
    allow_no_gain: AllowNoGain = None,
    all_tables: AllTables = False,
    statistics: StatisticsOptions,
) -> None:
    """Compare systems: means or strengths, pairs without significant difference, and the effect of length."""
    from localjudge.system.requirements import require

    require("rank", "trust", *input_extras([*(labels or ()), *(inputs or ())]))
    statistics.check(runs)
    if compare_responses(runs):
        given: dict[str, object] = {"--labels": labels, "--map": mapping, "--scores": scores}
        given |= {"--calibration": calibration, "--by-column": by_column}
        if surplus := [option for option, value in given.items() if value]:
            raise UsageError(f"{surplus[0]}: is for runs that judge one response; these compare two")
        _rank_pairs(runs, inputs or (), by, all_tables, statistics)
        return
    if checks := checks_criteria(runs):
        given = {"--labels": labels, "--map": mapping, "--calibration": calibration, "--by-column": by_column}
        if surplus := [option for option, value in given.items() if value]:
            raise UsageError(f"{surplus[0]}: is for runs of one score a row; these check criteria")
        _refuse_incomplete(runs, "rows")
    from localjudge.analysis.by_slice import rank_by_slice
    from localjudge.analysis.matching.checklist_points import read_points
    from localjudge.analysis.matching.human_labels import parse_mapping, read_labels
    from localjudge.analysis.matching.measured_texts import measure
    from localjudge.analysis.matching.scores import read_scores
    from localjudge.analysis.matching.slices import read_slices
    from localjudge.analysis.ranking import rank as compare
    from localjudge.cli.progress import Progress
    from localjudge.cli.tables.ranking_tables import ranking_tables

    if calibration and scores == "integer":
        raise UsageError(
            "--scores integer: calibrated scores are not integers; give only one of --scores and --calibration"
        )
    progress, known = Progress(), None
    with progress.step(_READING) as report:
        judged = read_points(runs, by, report) if checks else read_scores(runs, report=report)
        by = None if checks else by  # the tag is the only column
        if labels:
            ours = parse_mapping(mapping or (), judged.targets)
            known = read_labels(labels, judged, ours, inputs or (), equal_chances=False)
        measures = measure(judged, inputs or ())
        judged = _calibrated(judged, calibration, allow_no_gain, known) or judged
    with progress.step(statistics.computing):
        found = compare(judged, measures, known, scores, by, statistics.resamples, statistics.seed)
        sliced = None
        if by_column:
            slices = read_slices(judged.folders, judged.manifests, by_column, inputs or ())
            sliced = rank_by_slice(judged, slices, scores, by, statistics.resamples, statistics.seed)
    statistics.print(found.as_dict(), ranking_tables(found, all_tables), sliced)


def compare_responses(runs: Sequence[Path]) -> bool:
    """Return whether the runs compare two responses.

    Raises:
        UsageError: some do, and some judge one response.
    """
    from localjudge.rubrics.mode import PAIRWISE

    return _mode_of(runs) is PAIRWISE


def checks_criteria(runs: Sequence[Path]) -> bool:
    """Return whether the runs check criteria of the rows.

    Raises:
        UsageError: some do, and some do not.
    """
    from localjudge.rubrics.mode import CHECKLIST

    return _mode_of(runs) is CHECKLIST


def _mode_of(runs: Sequence[Path]) -> Mode[Any]:
    from localjudge.runs.run_manifest import read_manifest

    modes = {read_manifest(run).rubric.mode: run for run in reversed(runs)}
    if len(modes) > 1:
        (first, run), (second, other) = modes.items()
        raise UsageError(f"{run}: {first.judges}, and {other} {second.judges}; give runs of one kind")
    return next(iter(modes))


def _refuse_incomplete(runs: Sequence[Path], what: str) -> None:
    from localjudge.runs.reader import is_complete

    if incomplete := [run for run in runs if not is_complete(run)]:
        raise UsageError(
            f"{incomplete[0]}: not complete, and the {what} that finish first are not a random sample; the "
            "same score command continues it"
        )


def _rank_pairs(
    runs: Sequence[Path],
    inputs: Sequence[str],
    by: str | None,
    all_tables: bool,
    statistics: StatisticsOptions,
) -> None:
    from localjudge.analysis.pairs.preference_ranking import rank_pairs
    from localjudge.analysis.pairs.preferences import read_preferences
    from localjudge.cli.progress import Progress
    from localjudge.cli.tables.ranking_tables import preference_tables

    progress = Progress()
    _refuse_incomplete(runs, "pairs")
    with progress.step(_READING):
        preferences = read_preferences(runs, inputs)
    with progress.step(statistics.computing):
        found = rank_pairs(preferences, by, statistics.resamples, statistics.seed)
    statistics.print(found.as_dict(), preference_tables(found, all_tables))


def jury(
    runs: RunFolders,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write the jury's scores as a run: median and mean, or the most frequent label.",
        ),
    ] = None,
    splits: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="The number of rows with the largest differences to list with --all."
        ),
    ] = 10,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--labels", metavar="FILE", help="Labels of rows, to count the independent votes of the jury."
        ),
    ] = None,
    mapping: LabelColumns = None,
    inputs: MovedInputs = None,
    all_tables: AllTables = False,
    statistics: StatisticsOptions,
) -> None:
    """Compare judges, or samples of one judge: agreement, outlier, and their combined scores as a run."""
    from localjudge.system.requirements import require

    require("jury", "trust", *input_extras([*(labels or ()), *(inputs or ())]))
    from localjudge.analysis.juries import compare_judges
    from localjudge.analysis.juries.jury_run import write_jury
    from localjudge.analysis.matching.human_labels import parse_mapping, read_labels
    from localjudge.cli.progress import Progress
    from localjudge.cli.tables.jury_tables import jury_tables

    statistics.check(runs)
    progress = Progress()

    def known(scores: Scores) -> Labels:
        return read_labels(labels or (), scores, parse_mapping(mapping or (), scores.targets), inputs or ())

    with progress.step(statistics.computing):
        found = compare_judges(
            runs, splits, statistics.resamples, statistics.seed, labels=known if labels else None
        )
    statistics.print(found.as_dict(), jury_tables(found, all_tables))
    if out is not None:
        with progress.step("writing the jury's run"):
            summary = write_jury(runs, out)
        progress.say(f"{summary.judged} judged, {summary.failed} failed · {out}")


def calibrate(
    run: RunFolder,
    labels: LabelFiles,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The calibration file to write.")],
    *,
    interval: Annotated[
        float | None,
        typer.Option(
            min=0.5,
            max=0.99,
            metavar="LEVEL",
            help="Also fit intervals that hold the label of a single response in this share of cases, such as "
            "0.9; show, export and report print them with --intervals.",
        ),
    ] = None,
    mapping: LabelColumns = None,
    inputs: MovedInputs = None,
    statistics: StatisticsOptions,
) -> None:
    """Fit a monotone map from the judge's scores to labels; measure its gain on unseen instructions."""
    from localjudge.system.requirements import require

    require("calibrate", "trust", *input_extras([*labels, *(inputs or ())]))
    check_out_file(out)
    from localjudge.analysis.agreement.calibration import fit
    from localjudge.analysis.matching.human_labels import parse_mapping, read_labels
    from localjudge.analysis.matching.scores import read_scores
    from localjudge.cli.progress import Progress
    from localjudge.cli.tables.agreement_tables import calibration_table

    statistics.check([run])
    progress = Progress()
    with progress.step(_READING) as report:
        scores = read_scores([run], report=report)
        ours = parse_mapping(mapping or (), scores.targets)
        known = read_labels(labels, scores, ours, inputs or (), equal_chances=False)
    with progress.step(statistics.computing):
        found = fit(scores, known, statistics.resamples, statistics.seed, interval)
    found.save(out)
    document = {**found.as_dict(), "notes": known.notes}
    statistics.print(document, calibration_table(found, known.notes))


def _calibrated(
    scores: Scores, file: Path | None, without_gain: list[str] | None, labels: Labels | None
) -> Scores | None:
    if file is None:
        return None
    from localjudge.analysis.agreement.calibration import Calibration

    return Calibration.load(file).apply_to(scores, without_gain or (), labels)
