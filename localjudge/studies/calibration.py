"""The map from a judge's scores to labels of each aspect, as a file has it, and applied to scores.

A calibrated mean does not estimate a human mean: the map is fitted on other rows, and a judge may err in
another way on another system. It has no interval, because the map's own error is unknown. Prediction-powered
means (`localjudge.statistics.system_means`) are estimates of human means.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from localjudge.arrays import Floats
from localjudge.errors import UsageError
from localjudge.matching.labels import Labels
from localjudge.matching.scores import ScoreKind, Scores
from localjudge.records import Judgement, Outcome
from localjudge.runs.notices import kinds
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.statistics import Estimate
from localjudge.statistics.score_interval import ScoreInterval
from localjudge.system.durable import replacing

_NO_INTERVALS = (
    "calibrated means have no intervals, because the error of the map is unknown; they are not human means: "
    "--labels with labels of a random sample of the rows estimates those"
)


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
        if not all(map(isfinite, self.x + self.y)):
            raise ValueError("x and y must be finite")
        x_increases = all(left < right for left, right in pairwise(self.x))
        y_decreases = any(left > right for left, right in pairwise(self.y))
        if not x_increases or y_decreases:
            raise ValueError("x must increase from point to point, and y must not decrease")
        return self

    @property
    def has_gain(self) -> bool:
        """Whether a gain is shown over the judge's scores and over a constant: both intervals are above 0."""
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
            field = ".".join(map(str, first["loc"]))
            raise UsageError(f"`calibration` {file}: not a calibration: {field}: {first['msg']}") from None

    def save(self, file: Path) -> None:
        """Write the file, completely or not at all."""
        with replacing(file) as scratch:
            scratch.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @property
    def has_gain(self) -> bool:
        """Whether a map has a shown gain; `apply_to` refuses a calibration without one."""
        return any(aspect_map.has_gain for aspect_map in self.aspects.values())

    def apply(self, aspect: str, values: Floats) -> Floats:
        """Return the scores of an aspect on the labels' scale; unchanged if the aspect has no map."""
        if aspect not in self.aspects:
            return values
        aspect_map = self.aspects[aspect]
        return np.interp(values, aspect_map.x, aspect_map.y)

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
        calibrated: list[str] = []
        without_gain: list[str] = []
        without_map: list[str] = []
        for aspect in scores.aspects:
            if aspect not in self.aspects:
                without_map.append(aspect)
            elif self.aspects[aspect].has_gain:
                calibrated.append(aspect)
            else:
                without_gain.append(aspect)
        left_out: list[str] = []
        if without_map:
            left_out.append(f"{', '.join(without_map)} (no map)")
        if without_gain:
            left_out.append(f"{', '.join(without_gain)} (no gain is shown)")
        if not calibrated:
            raise UsageError(f"`calibration`: no aspect is left to calibrate: {', '.join(left_out)}")

        notice = [f"calibrated: {', '.join(calibrated)}"]
        if left_out:
            notice.append(f"left out: {', '.join(left_out)}")
        if self.notices:
            notice.append(f"fitted on scores with notices ({kinds(self.notices)})")
        if labels is not None:
            notice += self._seen_labels(labelled_row_digests(scores, labels))
        columns = [scores.aspects.index(aspect) for aspect in calibrated]
        expected = [self.apply(aspect, scores.column(aspect, self.of)) for aspect in calibrated]
        return replace(
            scores,
            columns=tuple(scores.columns[column] for column in columns),
            integer=scores.integer[:, columns],
            expected=np.column_stack(expected),
            notices=scores.notices + ("; ".join(notice),),
            calibrated=True,
            untested=_NO_INTERVALS,
        )

    def _seen_labels(self, labelled: Sequence[str]) -> list[str]:
        """Return the notice on labelled rows, by their digests, that the maps were fitted on; none without."""
        seen = set(labelled).intersection(self.rows)
        if not seen:
            return []
        return [
            f"fitted on labels of {len(seen)} of these {len(labelled)} labelled rows, so the scores fit these "
            "labels better than new ones; the calibration file has its gain on unseen instructions"
        ]


def labelled_row_digests(scores: Scores, labels: Labels) -> tuple[str, ...]:
    """Return digests of the rows that have labels, sorted; they do not depend on the label files."""
    digests: set[str] = set()
    for row in np.unique(np.concatenate([marks.row for marks in labels.marks.values()])).tolist():
        text_digest, _ = scores.shown[row]
        name = text_digest if text_digest else scores.ids[row]
        digests.add(hashlib.sha256(name.encode(errors="replace")).hexdigest()[:16])
    return tuple(sorted(digests))


IntervalsOf = Callable[[Outcome], dict[str, tuple[float, float]]]
"""Returns the interval of each aspect of an outcome whose probabilities are known."""


def read_intervals(file: Path, folders: Sequence[Path]) -> IntervalsOf:
    """Return a function that gives the label intervals of an outcome, from the intervals in a calibration file.

    Raises:
        UsageError: the file has no intervals, or was fitted for another judge.
    """
    calibration = Calibration.load(file)
    manifests = [read_manifest(folder) for folder in folders]
    for folder, manifest in zip(folders, manifests, strict=True):
        calibration.check(folder, manifest)
    intervals = calibration.intervals
    if not intervals:
        raise UsageError(f"`intervals` {file}: has none; make it with localjudge calibrate --interval 0.9")
    columns = [column for column in manifests[0].rubric.score_columns if column.name in intervals]

    def intervals_of(outcome: Outcome) -> dict[str, tuple[float, float]]:
        if not isinstance(outcome, Judgement):
            return {}
        return {
            column.name: intervals[column.name].ends(outcome.expected[column.name], column.spread(outcome))
            for column in columns
            if column.name in outcome.expected
        }

    return intervals_of
