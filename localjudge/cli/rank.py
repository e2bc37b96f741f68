"""The command `rank`, which compares systems."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localjudge.cli.options import BELOW_THRESHOLD, RunFolders
from localjudge.cli.progress import Progress
from localjudge.cli.statistics_options import (
    READING,
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

if TYPE_CHECKING:
    from localjudge.modes.mode import Mode
    from localjudge.studies.conditions import Threshold


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
    from localjudge.report.preference_tables import preference_findings
    from localjudge.report.ranking_document import preference_ranking_document, ranking_document
    from localjudge.report.ranking_tables import ranking_findings
    from localjudge.runs.run_state import unchanged
    from localjudge.studies.calibration import Calibration
    from localjudge.studies.rank import rank as rank_systems
    from localjudge.studies.rank.preference_ranking import rank_pairs
    from localjudge.studies.rank.rows_of_systems import check_means

    people.require("rank")
    thresholds = _thresholds(min_ or (), max_failed=max_failed)
    statistics.check(runs)
    mode = common_mode(runs)
    _check_options(mode, people, calibration=calibration, scores=scores)

    progress = Progress()
    resamples, seed = statistics.draws
    with unchanged(runs):
        if mode.pairs is not None or mode.criteria is not None:
            _refuse_incomplete(runs, mode.item)
        with progress.step(READING) as report:
            judged = read_judged(runs, report=report, criteria="joined", tag=by, where=RowSelection(where))
            labels = None
            if not isinstance(judged, JudgedPairs):
                if people.labels:
                    labels = people.labels_of(judged, equal_chances=False)
                if calibration is not None:
                    judged = Calibration.load(calibration).apply_to(judged, labels)
            conditions = check_means(judged, thresholds, of=scores)
        with progress.step(statistics.computing):
            if isinstance(judged, JudgedPairs):
                preference_ranking = rank_pairs(judged, by, resamples=resamples, seed=seed)
                document = preference_ranking_document(preference_ranking, conditions)
                findings = preference_findings(preference_ranking, conditions)
            else:
                ranking = rank_systems(judged, labels, of=scores, by=by, resamples=resamples, seed=seed)
                document = ranking_document(ranking, conditions)
                findings = ranking_findings(ranking, conditions)
    statistics.print(document, findings, all_tables=all_tables)
    if not all(condition.passes for condition in conditions):
        raise typer.Exit(BELOW_THRESHOLD)


def _thresholds(min_: Sequence[str], *, max_failed: float | None) -> list[Threshold]:
    """Return what is asked of every system.

    Raises:
        UsageError: a value of --min is not of the form COLUMN=VALUE, or a column has two.
    """
    from localjudge.studies.conditions import Kind, Threshold

    lowest_means = column_numbers("min", "VALUE", min_)
    thresholds = [Threshold(Kind.MIN, column, limit=limit) for column, limit in lowest_means.items()]
    if max_failed is not None:
        thresholds.append(Threshold(Kind.MAX_FAILED, limit=max_failed))
    return thresholds


def _check_options(
    mode: Mode[Any], people: LabelOptions, *, calibration: Path | None, scores: str | None
) -> None:
    """Check that the mode of the runs takes the options that are given.

    Raises:
        UsageError: it does not, or the options contradict each other.
    """
    options: dict[str, object] = {
        "labels": people.labels,
        "mapping": people.mapping,
        "calibration": calibration,
    }
    if mode.pairs is not None:
        mode.refuse_options(options | {"scores": scores})
    if mode.criteria is not None:
        mode.refuse_options(options)
    if calibration is not None and scores == "integer":
        raise UsageError(
            "--scores integer: calibrated scores are not integers; give only one of --scores and --calibration"
        )


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
