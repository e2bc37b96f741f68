"""A monotone map from a judge's scores to labels: fitted, validated, and applied in reports only.

The map is scikit-learn's isotonic regression of the mean label on the score: it never decreases, without other
constraints. It also fits noise, and to random scores it fits the mean label. So its gain is measured by
cross-validation that leaves out whole instructions, over the judge's own scores and over that constant.

A calibrated mean does not estimate a human mean: the map is fitted on other rows, and a judge may err in
another way on another system. It has no interval, because the map's own error is unknown. Prediction-powered
means (`localjudge.statistics.prediction_powered`) are estimates of human means.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from math import isfinite
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from localjudge.arrays import Floats, Integers
from localjudge.errors import UsageError
from localjudge.matching.labels import Labels, refuse_unequal_chances
from localjudge.matching.scores import ScoreKind, Scores
from localjudge.records import Judgement, Outcome
from localjudge.rubrics.score_column import is_share
from localjudge.runs.notices import kinds
from localjudge.runs.reader import read_outcomes
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.statistics import UNDEFINED, Estimate
from localjudge.statistics.resampling import RESAMPLES, averages, studentise
from localjudge.statistics.score_interval import ScoreInterval, instructions_needed
from localjudge.system.durable import replacing


class _CalibrationRecord(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AspectMap(_CalibrationRecord):
    """The map of one aspect, piecewise linear between its points and constant beyond them, and its gain.

    All errors have one unit: they are mean squared errors, the square of the labels' unit, on instructions that
    the map was not fitted on. They are None for too few instructions.

    Attributes:
        x: the scores of the map's points.
        y: the label that each of them is mapped to.
        rows: number of labelled rows that it was fitted on.
        instructions: number of their instructions.
        folds: number of parts of the cross-validation.
        mse_as_judged: the mean squared error of the judge's scores.
        mse_calibrated: that of the mapped scores.
        mse_constant: that of the mean label as the score of every row.
        gain: `mse_as_judged` minus `mse_calibrated`; above 0 if the map helps.
        over_constant: `mse_constant` minus `mse_calibrated`; above 0 if the scores help.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    rows: int
    instructions: int
    folds: int
    mse_as_judged: float | None
    mse_calibrated: float | None
    mse_constant: float | None
    gain: Estimate
    over_constant: Estimate

    @model_validator(mode="after")
    def _is_a_map(self) -> Self:
        if not self.x or len(self.x) != len(self.y):
            raise ValueError("x and y must have the same number of points, at least one")
        if not all(map(isfinite, (*self.x, *self.y))):
            raise ValueError("x and y must be finite")
        if any(left >= right for left, right in pairwise(self.x)) or any(
            left > right for left, right in pairwise(self.y)
        ):
            raise ValueError("x must increase from point to point, and y must not decrease")
        return self

    @property
    def has_gain(self) -> bool:
        """True if a gain is shown over the judge's scores and over a constant: both intervals are above 0."""
        return self.gain.verdict == self.over_constant.verdict == "better"


class Calibration(_CalibrationRecord):
    """The content of a calibration file."""

    format: Literal[4] = 4
    judge: dict[str, Any]
    """The judge that it was fitted for, as `RunManifest.judge` has it."""
    model: str
    of: ScoreKind
    rows: tuple[str, ...]
    """The digests of the labelled rows that it was fitted on, sorted."""
    aspects: dict[str, AspectMap]
    """The map of each aspect; none if only intervals could be fitted."""
    intervals: dict[str, ScoreInterval] = {}
    """The intervals for single labels, if they were asked for."""
    notices: tuple[str, ...] = ()
    """The notices of the run that it was fitted on."""

    @classmethod
    def load(cls, file: Path) -> Self:
        """Return the calibration in a file.

        Raises:
            UsageError: the file cannot be read or is not a calibration.
        """
        try:
            return cls.model_validate_json(file.read_bytes())
        except OSError as error:
            raise UsageError(f"`calibration` {file}: {error.strerror}") from None
        except ValidationError as error:
            first = error.errors()[0]
            if first["loc"] == ("format",):
                raise UsageError(
                    f"`calibration` {file}: written by another version; make it again with localjudge calibrate"
                ) from None
            place = ".".join(map(str, first["loc"]))
            raise UsageError(f"`calibration` {file}: not a calibration: {place}: {first['msg']}") from None

    def save(self, file: Path) -> None:
        """Write the file, completely or not at all."""
        with replacing(file) as scratch:
            scratch.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @property
    def has_gain(self) -> bool:
        """Whether a map has a shown gain; `apply_to` refuses a calibration without one."""
        return any(each.has_gain for each in self.aspects.values())

    def apply(self, aspect: str, values: Floats) -> Floats:
        """Return the scores of an aspect on the labels' scale; unchanged if the aspect has no map."""
        if aspect not in self.aspects:
            return values
        points = self.aspects[aspect]
        return np.interp(values, points.x, points.y)

    def check(self, folder: Path, manifest: RunManifest) -> None:
        """Check that a run is by the judge that this was fitted for.

        Raises:
            UsageError: it is by another one.
        """
        # A file does not have a setting that is newer than it, which stands for None.
        fitted_for = dict.fromkeys(manifest.judge) | self.judge
        if manifest.judge != fitted_for:
            raise UsageError(
                f"`calibration`: fitted for {self.model}, but {folder} was judged by "
                f"{manifest.model.name}, or with another rubric or other settings; fit a new one with "
                "localjudge calibrate"
            )

    def apply_to(self, scores: Scores, labels: Labels | None = None) -> Scores:
        """Return the calibrated aspects of the scores, with `expected` calibrated; stored scores do not change.

        An aspect without a map, or whose map has no shown gain, is left out, so that nobody mistakes its scores
        for calibrated ones. The notices name both kinds.

        Args:
            scores: scores by the judge that the maps were fitted for.
            labels: the labels that the calibrated scores are used with; a notice counts the rows that the maps
                were fitted on.

        Raises:
            UsageError: the scores are by another judge, or lack the kind of score that the map needs; or no
                aspect is left.
        """
        for folder, manifest in zip(scores.folders, scores.manifests, strict=True):
            self.check(folder, manifest)
        mapped = [aspect for aspect in scores.aspects if aspect in self.aspects]
        kept = [aspect for aspect in mapped if self.aspects[aspect].has_gain]
        refused = [aspect for aspect in mapped if aspect not in kept]
        no_map = [aspect for aspect in scores.aspects if aspect not in mapped]
        left = [f"{', '.join(no_map)} (no map)"] * bool(no_map)
        left += [f"{', '.join(refused)} (no gain is shown)"] * bool(refused)
        if not kept:
            raise UsageError(f"`calibration`: no aspect is left to calibrate: {', '.join(left)}")
        parts = [f"calibrated: {', '.join(kept)}"]
        parts += [f"left out: {', '.join(left)}"] * bool(left)
        parts += [f"fitted on scores with notices ({kinds(self.notices)})"] * bool(self.notices)
        used = _labelled_rows(scores, labels) if labels else ()
        if overlap := len({*used} & {*self.rows}):
            parts.append(
                f"fitted on labels of {overlap} of these {len(used)} labelled rows, so the scores fit these "
                "labels better than new ones; the calibration file has its gain on unseen instructions"
            )
        places = [scores.aspects.index(aspect) for aspect in kept]
        columns = [self.apply(aspect, scores.column(aspect, self.of)) for aspect in kept]
        return replace(
            scores,
            columns=tuple(scores.columns[place] for place in places),
            integer=scores.integer[:, places],
            expected=np.column_stack(columns),
            notices=(*scores.notices, "; ".join(parts)),
            calibrated=True,
            untested="calibrated means have no intervals, because the error of the map is unknown; they are "
            "not human means: --labels with labels of a random sample of the rows estimates those",
        )


def _labelled_rows(scores: Scores, labels: Labels) -> tuple[str, ...]:
    """Return digests of the rows that have labels, sorted; they do not depend on the label files."""
    rows = np.unique(np.concatenate([marks.row for marks in labels.marks.values()]))
    names = (scores.shown[row][0] or scores.ids[row] for row in rows)
    digests = {hashlib.sha256(name.encode(errors="replace")).hexdigest()[:16] for name in names}
    return tuple(sorted(digests))


IntervalsOf = Callable[[Outcome], dict[str, tuple[float, float]]]
"""Returns the interval of each aspect of an outcome whose probabilities are known."""


def read_intervals(file: Path, folders: Sequence[Path]) -> IntervalsOf:
    """Return a function that gives the label intervals of an outcome, from the intervals in a calibration file.

    Raises:
        UsageError: the file has no intervals, or was fitted for another judge.
    """
    calibration, manifests = Calibration.load(file), [read_manifest(folder) for folder in folders]
    for folder, manifest in zip(folders, manifests, strict=True):
        calibration.check(folder, manifest)
    if not (intervals := calibration.intervals):
        raise UsageError(f"`intervals` {file}: has none; make it with localjudge calibrate --interval 0.9")
    columns = [column for column in manifests[0].rubric.score_columns if column.name in intervals]

    def intervals_of(outcome: Outcome) -> dict[str, tuple[float, float]]:
        return {
            column.name: intervals[column.name].ends(outcome.expected[column.name], column.spread(outcome))
            for column in columns
            if isinstance(outcome, Judgement) and column.name in outcome.expected
        }

    return intervals_of


FOLDS = 5


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
    of = scores.best
    maps = {}
    if level:
        refuse_unequal_chances(labels.chance, "an interval for the label of a new response")
    for aspect in labels.aspects:
        rows, label = labels.means(aspect)
        score, group = scores.column(aspect, of)[rows], scores.group[rows]
        if len(np.unique(score)) > 1:
            weight = labels.marks[aspect].weight_of(rows)
            maps[aspect] = fit_map(score, label, group, resamples, seed, weight)
    if not maps and level is None:
        raise UsageError(
            f"{scores.where}: no aspect has two different scores on labelled rows, so there is nothing to fit"
        )
    manifest = scores.manifests[0]
    return Calibration(
        judge=manifest.judge,
        model=manifest.model.name,
        of=of,
        rows=_labelled_rows(scores, labels),
        aspects=maps,
        intervals=fit_intervals(scores, labels, level) if level else {},
        notices=scores.notices,
    )


def fit_map(
    score: Floats, label: Floats, group: Integers, resamples: int, seed: int, weight: Floats | None = None
) -> AspectMap:
    """Fit the map of one aspect; all columns are [rows], and `group` has the instruction of each row.

    `weight` has the weight of each row; None if all are equal.
    """
    from sklearn.isotonic import IsotonicRegression
    from sklearn.model_selection import GroupKFold

    present, numbered = np.unique(group, return_inverse=True)
    weights = np.ones(len(score)) if weight is None else weight
    folds = min(FOLDS, len(present))
    as_judged = calibrated = constant = None
    gains = [UNDEFINED, UNDEFINED]
    if folds > 1:
        mapped, mean = np.empty_like(score), np.empty_like(score)
        splits = GroupKFold(folds, shuffle=True, random_state=seed).split(score, label, group)
        for seen, unseen in splits:
            isotonic = IsotonicRegression(out_of_bounds="clip").fit(score[seen], label[seen], weights[seen])
            mapped[unseen] = isotonic.predict(score[unseen])
            mean[unseen] = np.average(label[seen], weights=weights[seen])
        errors = [(column - label) ** 2 for column in (score, mapped, mean)]
        as_judged, calibrated, constant = (float(np.average(error, weights=weights)) for error in errors)
        less = np.column_stack([errors[0] - errors[1], errors[2] - errors[1]])
        of_groups = averages(less, numbered, len(present), weight)
        gains = studentise(of_groups, symmetric=True, resamples=resamples, seed=seed).estimates()
    whole = IsotonicRegression(out_of_bounds="clip").fit(score, label, weights)
    return AspectMap(
        x=tuple(whole.X_thresholds_.tolist()),
        y=tuple(whole.y_thresholds_.tolist()),
        rows=len(score),
        instructions=len(present),
        folds=folds,
        mse_as_judged=as_judged,
        mse_calibrated=calibrated,
        mse_constant=constant,
        gain=gains[0],
        over_constant=gains[1],
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
    outcomes = chain.from_iterable(map(read_outcomes, scores.folders))
    judged = (outcome for outcome in outcomes if isinstance(outcome, Judgement))
    spreads = np.array([[column.spread(judgement) for column in columns] for judgement in judged])
    intervals, lacking = dict[str, ScoreInterval](), list[str]()
    for column, spread in zip(columns, spreads.T, strict=True):
        if column.name not in labels.aspects:
            continue
        of_people = labels.marks[column.name]
        if np.isnan(spread[of_people.row]).any():
            lacking.append(f"{column.name} has no probabilities")
        elif (count := len(np.unique(scores.group[of_people.row]))) < needed:
            lacking.append(f"{column.name} has labels of {count}")
        else:
            expected, ends = scores.column(column.name, "expected"), scores.ends(column.name)
            intervals[column.name] = ScoreInterval.fit(ends, expected, spread, of_people, scores.group, level)
    if not intervals:
        raise UsageError(
            f"{scores.where}: an interval of {level:.0%} takes probabilities, and labels of {needed} "
            f"instructions or more; {', '.join(lacking) or 'no labelled aspect has an order'}"
        )
    return intervals
