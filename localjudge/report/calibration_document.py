"""The document of `localjudge calibrate --json`: what the calibration file has, and the notes on the labels.

`localjudge help labels` describes the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localjudge.statistics import Estimate
from localjudge.statistics.score_interval import ScoreInterval
from localjudge.studies.calibration import AspectMap, Calibration


def calibration_document(calibration: Calibration, notes: Sequence[str]) -> dict[str, Any]:
    """Return the document of a calibration.

    Args:
        calibration: the calibration.
        notes: remarks on the labels.
    """
    return {
        "format": calibration.format,
        "judge": dict(calibration.judge),
        "model": calibration.model,
        "of": calibration.of,
        "rows": list(calibration.rows),
        "aspects": {aspect: _aspect_map(of_aspect) for aspect, of_aspect in calibration.aspects.items()},
        "intervals": {aspect: _interval(interval) for aspect, interval in calibration.intervals.items()},
        "notices": list(calibration.notices),
        "notes": list(notes),
    }


def _aspect_map(of_aspect: AspectMap) -> dict[str, Any]:
    return {
        "x": list(of_aspect.x),
        "y": list(of_aspect.y),
        "rows": of_aspect.rows,
        "instructions": of_aspect.instructions,
        "folds": of_aspect.folds,
        "mse_as_judged": of_aspect.mse_as_judged,
        "mse_calibrated": of_aspect.mse_calibrated,
        "mse_constant": of_aspect.mse_constant,
        "gain": _gain(of_aspect.gain),
        "over_constant": _gain(of_aspect.over_constant),
    }


def _gain(gain: Estimate) -> dict[str, Any]:
    """Return a gain as the calibration file has it: with `why`, empty where there is an interval."""
    return {"value": gain.value, "low": gain.low, "high": gain.high, "why": gain.why}


def _interval(interval: ScoreInterval) -> dict[str, Any]:
    return {
        "level": interval.level,
        "below": interval.below,
        "above": interval.above,
        "base": interval.base,
        "lowest": interval.lowest,
        "highest": interval.highest,
        "whole": interval.whole,
        "rows": interval.rows,
        "annotators": interval.annotators,
        "instructions": interval.instructions,
        "width": interval.width,
        "constant_width": interval.constant_width,
    }
