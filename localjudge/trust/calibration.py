"""A monotone map from a judge's scores to people's: fitted, checked out of sample, applied in reports only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from localjudge.errors import UsageError
from localjudge.trust.scores import Floats, Of, Scores

_DECISIVE = ("rubric", "model")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Interval(_Record):
    """A value and its 95 % interval, as `Estimate`."""

    value: float | None
    low: float | None
    high: float | None


class AspectMap(_Record):
    """The map of one aspect: piecewise linear through the points, level beyond them; and what it was worth.

    `before` and `after` are the mean absolute errors on instructions that the map had not seen, `gain` is what
    lies between (above 0: the map helps), `constant` the error of always saying the labels' mean.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    rows: int
    instructions: int
    folds: int
    before: float | None
    after: float | None
    constant: float | None
    gain: Interval


class Calibration(_Record):
    """A judge's calibration, as it stands in its file."""

    format: Literal[1] = 1
    judge: dict[str, str]
    """The digests of rubric and model that it belongs to."""
    model: str
    of: Of
    labels: tuple[str, ...]
    """SHA-256 of each label file."""
    aspects: dict[str, AspectMap]

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read a calibration.

        Raises:
            UsageError: the file cannot be read or is no calibration.
        """
        try:
            return cls.model_validate_json(file.read_bytes())
        except OSError as error:
            raise UsageError(f"--calibration {file}: {error.strerror}") from None
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise UsageError(f"--calibration {file}: no calibration: {place}: {first['msg']}") from None

    def save(self, file: Path) -> None:
        file.write_text(json.dumps(self.model_dump(mode="json"), indent=2) + "\n", encoding="utf-8")

    def apply(self, aspect: str, values: Floats) -> Floats:
        """The scores of an aspect on the labels' scale; as they are, where the aspect has no map."""
        if aspect not in self.aspects:
            return values
        points = self.aspects[aspect]
        return np.interp(values, points.x, points.y)

    def apply_to(self, scores: Scores) -> Scores:
        """The scores with `expected` calibrated; nothing stored changes.

        Raises:
            UsageError: the scores are another judge's, or lack the kind of score that the map takes.
        """
        for folder, manifest in zip(scores.folders, scores.manifests, strict=True):
            if judge_of(manifest) != self.judge:
                raise UsageError(
                    f"--calibration: fitted for {self.model}, and {folder} is by {manifest['model']['name']} "
                    "or another rubric; fit one with localjudge calibrate"
                )
        columns = [self.apply(aspect, scores.column(aspect, self.of)) for aspect in scores.aspects]
        return replace(scores, expected=np.column_stack(columns))


def judge_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """What a calibration belongs to: the digests of the rubric and of the model."""
    return {name: str(manifest["settings"].get(name)) for name in _DECISIVE}
