"""The tables of a calibration: the map of each aspect, and the intervals for single labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from localjudge.report.tables import Cells, Findings, Table
from localjudge.statistics.score_interval import ScoreInterval
from localjudge.studies.calibration import AspectMap, Calibration

_MAPPED_SCORES = 5
"""Number of scores whose label a calibration prints."""


def calibration_findings(calibration: Calibration, label_notes: Sequence[str] = ()) -> Findings:
    """Return the maps with their gain on unseen instructions, and the intervals for single labels.

    Args:
        calibration: the maps.
        label_notes: remarks on the labels.
    """
    main: list[Table | str] = []
    notes = list(label_notes)
    if calibration.aspects:
        main.append(_maps(calibration))
        notes += _map_notes(calibration.aspects)
    if calibration.intervals:
        main += _intervals(calibration.intervals)
    return Findings((), main, notices=calibration.notices, notes=notes)


def _maps(calibration: Calibration) -> Table:
    """Return the errors of each map on unseen instructions, its gains, and points of its curve."""
    columns = (
        "aspect",
        "rows",
        "as judged",
        "calibrated",
        "constant",
        "gain over\nas judged",
        "gain over\nconstant",
        "score→label",
    )
    rows: list[Cells] = []
    for aspect, aspect_map in calibration.aspects.items():
        cells: Cells = (
            aspect,
            aspect_map.rows,
            aspect_map.mse_as_judged,
            aspect_map.mse_calibrated,
            aspect_map.mse_constant,
            aspect_map.gain,
            aspect_map.over_constant,
            _curve(aspect_map),
        )
        rows.append(cells)
    title = f"Map from the {calibration.of} score to the mean label; mean squared errors on unseen instructions"
    return Table(title, columns, rows)


def _curve(aspect_map: AspectMap) -> str:
    """Return the labels that a map has for equally spaced scores."""
    scores = np.linspace(aspect_map.x[0], aspect_map.x[-1], _MAPPED_SCORES)
    labels = np.interp(scores, aspect_map.x, aspect_map.y)
    is_share = scores[-1] - scores[0] <= 1
    digits = 2 if is_share else 1  # the scores of a share are quarters
    points: list[str] = []
    for score, label in zip(scores, labels, strict=True):
        points.append(f"{score:.{digits}f}→{label:.{digits}f}")
    return " ".join(points)


def _map_notes(aspects: Mapping[str, AspectMap]) -> Iterator[str]:
    """Yield which maps have no gain, and what a calibrated mean is not."""
    without_gain = [aspect for aspect, aspect_map in aspects.items() if not aspect_map.has_gain]
    if without_gain:
        yield (
            f"No gain is shown for {', '.join(without_gain)}: the gains over the judge's scores and over one "
            "constant for all rows must both have intervals above 0."
        )
    yield "A calibrated mean is not a human mean: rank --labels estimates that, from a random sample."


def _intervals(intervals: Mapping[str, ScoreInterval]) -> Iterator[Table | str]:
    """Yield the table of the intervals for single labels, and what they promise."""
    columns = ("aspect", "labelled rows", "annotators", "instructions", "mean width", "of a constant interval")
    rows: list[Cells] = []
    for aspect, interval in intervals.items():
        cells: Cells = (
            aspect,
            interval.rows,
            interval.annotators,
            interval.instructions,
            interval.width,
            interval.constant_width,
        )
        rows.append(cells)
    first_interval = next(iter(intervals.values()))
    level = f"{first_interval.level:.0%}"
    yield Table(f"Intervals for one person's label of a response, {level}", columns, rows)
    yield (
        "Of the labels that the same annotators will give to responses to new instructions like these, at "
        f"least {level} lie in these intervals, each instruction with the same weight. That is not said of "
        "a single row, system, score or annotator, nor of others; the labelled rows must be a random sample."
    )
    on_another_scale = [aspect for aspect, interval in intervals.items() if interval.lowest is None]
    if on_another_scale:
        yield (
            f"Labels of {', '.join(on_another_scale)} lie outside the judge's scale, so its ends do not cut "
            "these intervals; they are wider than with labels on the judge's scale."
        )
