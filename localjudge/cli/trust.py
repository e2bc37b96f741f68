"""Commands that measure how reliable a judge is: `agree`, `rank`, `jury` and `calibrate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localjudge.cli.options import BELOW_THRESHOLD, RunFolders, check_out_file, refuse_input_as_out
from localjudge.cli.progress import Progress
from localjudge.cli.statistics_options import (
    AllTables,
    MaxFailed,
    Minimum,
    ScoresOf,
    StatisticsOptions,
    Where,
    column_numbers,
    common_mode,
)
from localjudge.errors import UsageError
from localjudge.report.study_options import CalibrationFile, LabelOptions
from localjudge.settings import Flag
from localjudge.system.durable import after_writing

if TYPE_CHECKING:
    from localjudge.studies.calibration import Calibration

_READING = "reading runs, labels and texts"


def agree(
    runs: RunFolders,
    *,
    people: LabelOptions,
    where: Where = None,
    all_tables: AllTables = False,
    statistics: StatisticsOptions,
) -> None:
    """Compare a run with labels: agreement, also within instructions, and baselines.

    Several runs, such as shards, are taken together; they must have one judge.
    """
    from localjudge.matching.judged_rows import JudgedPairs, read_judged
    from localjudge.matching.row_selection import RowSelection
    from localjudge.matching.scores import check_parts
    from localjudge.report.agreement_document import agreement_document, pair_agreement_document
    from localjudge.report.agreement_tables import agreement_findings, pair_agreement_findings
    from localjudge.runs.run_state import unchanged
    from localjudge.studies.agree import agree as agree_with_labels
    from localjudge.studies.pair_agreement import agree_on_pairs

    people.require("agree")
    statistics.check(runs)
    mode = common_mode(runs)
    if mode.pairs is None:  # labels of pairs can be in the inputs
        people.require_labels()

    progress, draws = Progress(), statistics.draws
    with unchanged(runs):
        with progress.step(_READING) as report:
            judged = read_judged(runs, report=report, criteria="split", where=RowSelection(where))
            check_parts(judged)
            known = people.labels_of(judged, equal_chances=False)
        with progress.step(statistics.computing):
            if isinstance(judged, JudgedPairs):
                on_pairs = agree_on_pairs(judged, known, *draws)
                document = pair_agreement_document(on_pairs)
                findings = pair_agreement_findings(on_pairs)
            else:
                agreement = agree_with_labels(judged, known, *draws)
                document = agreement_document(agreement)
                findings = agreement_findings(agreement)
    statistics.print(document, findings, all_tables)


def rank(
    runs: RunFolders,
    *,
    people: LabelOptions,
    scores: ScoresOf = None,
    by: Annotated[
        str | None,
        Flag(
            "The aspect, or the share of a label such as grade=correct, that decides the order. With "
            "criteria: a tag; the score is then that of the criteria with this tag.",
            "COLUMN",
        ),
    ] = None,
    where: Where = None,
    calibration: CalibrationFile = None,
    min_: Minimum = None,
    max_failed: MaxFailed = None,
    all_tables: AllTables = False,
    statistics: StatisticsOptions,
) -> None:
    """Compare systems: means or strengths, pairs without significant difference, and the effect of length."""
    from localjudge.matching.judged_rows import JudgedPairs, read_judged
    from localjudge.matching.row_selection import RowSelection
    from localjudge.report.ranking_document import preference_ranking_document, ranking_document
    from localjudge.report.ranking_tables import preference_findings, ranking_findings
    from localjudge.runs.run_state import unchanged
    from localjudge.studies.calibration import Calibration
    from localjudge.studies.conditions import Kind, Threshold
    from localjudge.studies.rank import rank as rank_systems
    from localjudge.studies.rank.preference_ranking import rank_pairs
    from localjudge.studies.rank.rows_of_systems import check_means

    people.require("rank")
    least = column_numbers("min", "VALUE", min_ or ())
    thresholds = [Threshold(Kind.MIN, column, limit) for column, limit in least.items()]
    thresholds += [] if max_failed is None else [Threshold(Kind.MAX_FAILED, limit=max_failed)]
    statistics.check(runs)
    options: dict[str, object] = {"labels": people.labels, "mapping": people.mapping}
    options |= {"calibration": calibration}
    mode = common_mode(runs)
    if mode.pairs is not None:
        mode.refuse_options(options | {"scores": scores})
    if mode.criteria is not None:
        mode.refuse_options(options)

    if calibration and scores == "integer":
        raise UsageError(
            "--scores integer: calibrated scores are not integers; give only one of --scores and --calibration"
        )
    progress, draws = Progress(), statistics.draws
    with unchanged(runs):
        if mode.pairs is not None or mode.criteria is not None:
            _refuse_incomplete(runs, mode.item)
        with progress.step(_READING) as report:
            judged = read_judged(runs, report=report, criteria="joined", tag=by, where=RowSelection(where))
            if not isinstance(judged, JudgedPairs):
                known = people.labels_of(judged, equal_chances=False) if people.labels else None
                judged = Calibration.load(calibration).apply_to(judged, known) if calibration else judged
            conditions = check_means(judged, thresholds, scores)
        with progress.step(statistics.computing):
            if isinstance(judged, JudgedPairs):
                order = rank_pairs(judged, by, *draws)
                document = preference_ranking_document(order, conditions)
                findings = preference_findings(order, conditions)
            else:
                ranking = rank_systems(judged, known, scores, by, *draws)
                document = ranking_document(ranking, conditions)
                findings = ranking_findings(ranking, conditions)
    statistics.print(document, findings, all_tables)
    if not all(each.passes for each in conditions):
        raise typer.Exit(BELOW_THRESHOLD)


def _refuse_incomplete(runs: Sequence[Path], item: str) -> None:
    """Refuse runs that are not complete.

    Args:
        runs: the run directories.
        item: what their rows are called.

    Raises:
        UsageError: one is not complete.
    """
    from localjudge.runs.reader import is_complete

    for run in runs:
        if not is_complete(run):
            raise UsageError(
                f"{run}: not complete, and the {item}s that finish first are not a random sample; the same "
                "score command continues it"
            )


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
    from localjudge.report.judge_tables import jury_findings
    from localjudge.report.jury_document import jury_document
    from localjudge.runs.run_state import unchanged
    from localjudge.studies.jury import compare_judges
    from localjudge.studies.jury_run import write_jury

    people.require("jury")

    statistics.check(runs)
    progress, known = Progress(), people.labels_of if people.labels else None
    with unchanged(runs), progress.step(statistics.computing):
        found = compare_judges(runs, *statistics.draws, labels=known)
    statistics.print(jury_document(found), jury_findings(found), all_tables)
    if out is not None:
        with progress.step("writing the jury's run"):
            summary = write_jury(runs, out)
        with after_writing(out):
            progress.say(f"{summary.judged:,} judged, {summary.failed:,} failed · {out}")


def _why_no_map(calibration: Calibration) -> str:
    """Return why a calibration file has no map that can be applied, and what it is for."""
    if calibration.aspects:
        without = f"no gain is shown for {', '.join(calibration.aspects)}"
    else:
        without = "no aspect has two different scores on labelled rows"
    use = "--intervals takes its intervals" if calibration.intervals else "it records the maps and their errors"
    return f"will have no map that --calibration applies, because {without}; {use}"


def calibrate(
    runs: RunFolders,
    out: Annotated[Path, Flag("The calibration file to write.", "FILE")],
    *,
    interval: Annotated[
        float | None,
        Flag(
            "Also fit intervals that hold one person's label of a response in this share of cases, such as "
            "0.9; show, export and report print them with --intervals.",
            "LEVEL",
            least=0.5,
            most=0.99,
        ),
    ] = None,
    people: LabelOptions,
    statistics: StatisticsOptions,
) -> None:
    """Fit a monotone map from the judge's scores to labels; measure its gain on unseen instructions."""
    from localjudge.matching.judged_rows import read_scores
    from localjudge.matching.scores import check_parts
    from localjudge.report.agreement_tables import calibration_findings
    from localjudge.report.calibration_document import calibration_document
    from localjudge.runs.run_manifest import inputs_of_runs
    from localjudge.runs.run_state import unchanged
    from localjudge.studies.calibrate import fit

    people.require_labels()
    people.require("calibrate")
    check_out_file(out)
    statistics.check(runs)
    refuse_input_as_out(out, people.files + inputs_of_runs(runs))
    progress = Progress()
    with unchanged(runs):
        with progress.step(_READING) as report:
            scores = read_scores(runs, report=report)
            check_parts(scores)
            known = people.labels_of(scores, equal_chances=False)
        with progress.step(statistics.computing):
            found = fit(scores, known, *statistics.draws, interval)
    if not found.has_gain:
        progress.warn(f"{out}: {_why_no_map(found)}", always=True)
    found.save(out)
    document = calibration_document(found, known.notes)
    statistics.print(document, calibration_findings(found, known.notes), all_tables=True)
