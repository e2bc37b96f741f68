"""A monotone map from a judge's scores to labels: fitted, and validated on instructions that it has not seen.

The map is scikit-learn's isotonic regression of the mean label on the score: it never decreases, without other
constraints. It also fits noise, and to random scores it fits the mean label. So its gain is measured by
cross-validation that leaves out whole instructions, over the judge's own scores and over that constant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Floats, Integers
from localjudge.errors import UsageError
from localjudge.matching.labels import Labels, refuse_unequal_chances
from localjudge.matching.scores import Scores
from localjudge.records import Judgement
from localjudge.rubrics.score_column import ScoreColumn, is_share
from localjudge.runs.reader import read_outcomes
from localjudge.statistics import UNDEFINED, Estimate
from localjudge.statistics.resampling import RESAMPLES, averages, studentise
from localjudge.statistics.score_interval import ScoreInterval, instructions_needed
from localjudge.studies.calibration import AspectMap, Calibration, labelled_row_digests

FOLDS = 5
"""Number of parts of the cross-validation, with that many instructions or more."""


def fit(
    scores: Scores, labels: Labels, resamples: int = RESAMPLES, seed: int = 0, level: float | None = None
) -> Calibration:
    """Fit a map for each aspect that has labels, and measure its gains by cross-validation.

    Args:
        scores: scores by one judge.
        labels: labels of some of its rows; the map predicts the mean label.
        resamples: number of resamples for the intervals of the gains.
        seed: seed of the folds and the resamples.
        level: the share of single labels that an interval covers; None for no intervals.

    Raises:
        UsageError: there is nothing to fit: no aspect has two different scores with labels, and no interval is
            asked for; or an interval is, and no aspect has enough labels for it.
    """
    if level is not None:
        refuse_unequal_chances(labels.chance, "an interval for the label of a new response")
    maps: dict[str, AspectMap] = {}
    for aspect in labels.aspects:
        rows, label = labels.means(aspect)
        score = scores.column(aspect, scores.best)[rows]
        if len(np.unique(score)) < 2:
            continue
        maps[aspect] = fit_map(
            score,
            label,
            group=scores.group[rows],
            resamples=resamples,
            seed=seed,
            weight=labels.marks[aspect].weight_of(rows),
        )
    if not maps and level is None:
        raise UsageError(
            f"{scores.where}: no aspect has two different scores on labelled rows, so there is nothing to fit"
        )
    manifest = scores.manifests[0]
    return Calibration(
        judge=manifest.judge,
        model=manifest.model.name,
        of=scores.best,
        rows=labelled_row_digests(scores, labels),
        aspects=maps,
        intervals={} if level is None else fit_intervals(scores, labels, level=level),
        notices=scores.notices,
    )


def fit_map(
    score: Floats, label: Floats, group: Integers, resamples: int, seed: int, weight: Floats | None = None
) -> AspectMap:
    """Fit the map of one aspect, and measure its gain on unseen instructions.

    Args:
        score: the score of each row, [rows].
        label: its mean label, [rows].
        group: its instruction, [rows].
        resamples: number of resamples for the intervals of the gains.
        seed: seed of the folds and the resamples.
        weight: its weight, [rows]; None if all are equal.
    """
    from sklearn.isotonic import IsotonicRegression

    instructions = len(np.unique(group))
    folds = min(FOLDS, instructions)
    errors = _UnseenErrors()
    if folds > 1:
        errors = _cross_validate(
            score, label, group=group, weight=weight, folds=folds, resamples=resamples, seed=seed
        )
    weights = np.ones(len(score)) if weight is None else weight
    isotonic = IsotonicRegression(out_of_bounds="clip").fit(score, label, weights)
    return AspectMap(
        x=tuple(isotonic.X_thresholds_.tolist()),
        y=tuple(isotonic.y_thresholds_.tolist()),
        rows=len(score),
        instructions=instructions,
        folds=folds,
        mse_as_judged=errors.as_judged,
        mse_calibrated=errors.calibrated,
        mse_constant=errors.constant,
        gain=errors.gain,
        over_constant=errors.over_constant,
    )


@dataclass(frozen=True, slots=True)
class _UnseenErrors:
    """Mean squared errors on instructions that a map was not fitted on, and its gains; undefined for too few.

    The attributes are those of `AspectMap`.
    """

    as_judged: float | None = None
    calibrated: float | None = None
    constant: float | None = None
    gain: Estimate = UNDEFINED
    over_constant: Estimate = UNDEFINED


def _cross_validate(
    score: Floats,
    label: Floats,
    *,
    group: Integers,
    weight: Floats | None,
    folds: int,
    resamples: int,
    seed: int,
) -> _UnseenErrors:
    """Return the errors of the scores, of the map and of the mean label, on instructions that are left out.

    Args:
        folds: number of parts, two or more.
        score, label, group, resamples, seed, weight: as for `fit_map`.
    """
    from sklearn.isotonic import IsotonicRegression
    from sklearn.model_selection import GroupKFold

    weights = np.ones(len(score)) if weight is None else weight
    mapped = np.empty_like(score)
    mean_label = np.empty_like(score)
    parts = GroupKFold(folds, shuffle=True, random_state=seed).split(score, label, group)
    for seen, unseen in parts:
        isotonic = IsotonicRegression(out_of_bounds="clip").fit(score[seen], label[seen], weights[seen])
        mapped[unseen] = isotonic.predict(score[unseen])
        mean_label[unseen] = np.average(label[seen], weights=weights[seen])

    error_as_judged = (score - label) ** 2
    error_calibrated = (mapped - label) ** 2
    error_constant = (mean_label - label) ** 2
    less_error = np.column_stack([error_as_judged - error_calibrated, error_constant - error_calibrated])
    present, numbered = np.unique(group, return_inverse=True)
    means = averages(less_error, numbered, groups=len(present), weights=weight)
    gain, over_constant = studentise(means, symmetric=True, resamples=resamples, seed=seed).estimates()
    return _UnseenErrors(
        as_judged=float(np.average(error_as_judged, weights=weights)),
        calibrated=float(np.average(error_calibrated, weights=weights)),
        constant=float(np.average(error_constant, weights=weights)),
        gain=gain,
        over_constant=over_constant,
    )


def fit_intervals(scores: Scores, labels: Labels, level: float) -> dict[str, ScoreInterval]:
    """Fit the interval of each ordered aspect that has enough labels.

    Args:
        scores: the scores of a run.
        labels: labels of a random sample of its rows.
        level: the share of labels to cover, between 0 and 1.

    Raises:
        UsageError: no aspect has labels of enough instructions, or the probabilities of its values.
    """
    needed = instructions_needed(level)
    columns = [column for column in scores.columns if not is_share(column.name)]
    spreads = _spreads(scores, columns)
    intervals: dict[str, ScoreInterval] = {}
    refused: list[str] = []
    for column, spread in zip(columns, spreads.T, strict=True):
        if column.name not in labels.aspects:
            continue
        marks = labels.marks[column.name]
        instructions = len(np.unique(scores.group[marks.row]))
        if np.isnan(spread[marks.row]).any():
            refused.append(f"{column.name} has no probabilities")
        elif instructions < needed:
            refused.append(f"{column.name} has labels of {instructions}")
        else:
            intervals[column.name] = ScoreInterval.fit(
                scores.ends(column.name),
                scores.column(column.name, "expected"),
                spread,
                marks,
                scores.group,
                level,
            )
    if not intervals:
        why = ", ".join(refused) if refused else "no labelled aspect has an order"
        raise UsageError(
            f"{scores.where}: an interval of {level:.0%} takes probabilities, and labels of {needed} "
            f"instructions or more; {why}"
        )
    return intervals


def _spreads(scores: Scores, columns: list[ScoreColumn]) -> Floats:
    """Return the spread of the probabilities of each row's values, [rows, columns]; NaN without these."""
    spreads: list[list[float]] = []
    for folder in scores.folders:
        for outcome in read_outcomes(folder):
            if isinstance(outcome, Judgement):
                spreads.append([column.spread(outcome) for column in columns])
    return np.array(spreads)
