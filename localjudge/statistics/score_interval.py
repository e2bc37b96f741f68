"""An interval for one person's label of a response, from the judge's probabilities: conformal prediction.

The residual of a label is its distance from the expected score, in units of the spread of the judge's
probabilities (their standard deviation) plus a quarter of the scale; so an interval is wide where the judge is
in doubt, and never empty where it is sure. A quantile of the residuals on each side gives the interval: a judge
that is too strict for everyone gets an interval above its scores.

Labels of an instruction are alike, so each instruction has the same weight in the quantiles, shared by its
labels, and a new instruction, whose residual may be anything, has the weight of one (hierarchical conformal
prediction, Lee, Barber and Willett, arXiv 2306.06342). A label that one of the same annotators gives to a
response to a new instruction of the same population then lies in the interval with at least the level's
probability. This coverage is marginal: on average over instructions, whatever their number of responses, and
not guaranteed for each system, score or annotator. It is that of a single label, because a reader compares one
with the interval. The interval is not random.

Labels on the judge's scale lie between its ends, and so does the interval. If a label lies outside, the labels
have another scale, whose ends are unknown: the largest label of a sample need not be the largest possible one.
Then the interval is not cut.
"""

from __future__ import annotations

from math import ceil, floor, inf

import numpy as np
from pydantic import BaseModel, ConfigDict

from localjudge.arrays import Floats, Integers, LabelArray

_ROUNDING = 1e-9


class ScoreInterval(BaseModel):
    """How far the labels of an aspect lie from the expected score.

    Attributes:
        level: the smallest share of labels that lie in the interval.
        below: the largest residual below the expected score that the interval covers.
        above: the same above it.
        base: what is added to the spread of a judgement to get the unit of its residual: a quarter of the
            judge's scale.
        lowest: the lowest label of the scale; None if the labels have another scale than the judge.
        highest: the highest one; None like `lowest`.
        whole: whether labels are whole numbers; the ends of an interval are then whole numbers, too.
        rows: number of labelled rows.
        annotators: number of people who labelled them.
        instructions: number of their instructions.
        width: mean width of the intervals of these rows.
        constant_width: their mean width if all were equally wide; where it is smaller, the judge's
            probabilities do not tell where it errs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    level: float
    below: float
    above: float
    base: float
    lowest: float | None
    highest: float | None
    whole: bool
    rows: int
    annotators: int
    instructions: int
    width: float = 0.0
    constant_width: float = 0.0

    @classmethod
    def fit(
        cls,
        scale: tuple[float, float],
        expected: Floats,
        spread: Floats,
        labels: LabelArray,
        group: Integers,
        level: float,
    ) -> ScoreInterval:
        """Fit the interval of an aspect from labelled rows.

        Args:
            scale: the lowest and the highest score of the judge.
            expected: the expected score of each row, [rows].
            spread: the standard deviation of the judge's probabilities for each row, [rows].
            labels: the labels of some of these rows, each with its annotator.
            group: the instruction of each row, [rows]; `instructions_needed` of them have labels, at least.
            level: the share of labels to cover.
        """
        label_expected = expected[labels.row]  # [m]
        label_spread = spread[labels.row]  # [m]
        residual = labels.value - label_expected  # [m]
        lowest, highest = scale
        base = (highest - lowest) / 4
        unit = base + label_spread  # [m]
        weight, instructions = _label_weights(group[labels.row])
        share = (1 + level) / 2
        is_in_scale = bool(((lowest <= labels.value) & (labels.value <= highest)).all())
        is_whole = bool((labels.value == np.round(labels.value)).all())
        interval = cls(
            level=level,
            below=_quantile(-residual / unit, weight, share=share),
            above=_quantile(residual / unit, weight, share=share),
            base=base,
            lowest=lowest if is_in_scale else None,
            highest=highest if is_in_scale else None,
            whole=is_whole,
            rows=len(np.unique(labels.row)),
            annotators=len(np.unique(labels.annotator)),
            instructions=instructions,
        )
        # All residuals in the same unit.
        constant = interval.model_copy(
            update={
                "below": _quantile(-residual, weight, share=share),
                "above": _quantile(residual, weight, share=share),
                "base": 1.0,
            }
        )
        widths = {
            "width": interval._mean_width(label_expected, label_spread),
            "constant_width": constant._mean_width(label_expected, np.zeros_like(label_spread)),
        }
        return interval.model_copy(update=widths)

    def _mean_width(self, expected: Floats, spread: Floats) -> float:
        """Return the mean width of the intervals of judgements, [m] each."""
        widths = []
        for judgement in zip(expected.tolist(), spread.tolist(), strict=True):
            low, high = self.ends(*judgement)
            widths.append(high - low)
        return float(np.mean(widths))

    def ends(self, expected: float, spread: float) -> tuple[float, float]:
        """Return the lowest and the highest label in the interval of a judgement."""
        lowest = -inf if self.lowest is None else self.lowest
        highest = inf if self.highest is None else self.highest
        unit = self.base + spread
        low = max(lowest, expected - self.below * unit)
        high = min(highest, expected + self.above * unit)
        if self.whole:
            low = ceil(low - _ROUNDING)
            high = floor(high + _ROUNDING)
        if low <= high:
            return low, high
        # It covers no label: the nearest one.
        nearest = min(max(expected, lowest), highest)
        if self.whole:
            nearest = round(nearest)
        return nearest, nearest


def _label_weights(group: Integers) -> tuple[Floats, int]:
    """Return the weight of each label in the quantiles [m], and the number of instructions.

    Each instruction has the same weight, shared by its labels, and so has a new one.

    Args:
        group: the instruction of each label, [m].
    """
    _, numbered, sizes = np.unique(group, return_inverse=True, return_counts=True)
    instructions = len(sizes)
    return 1 / (sizes[numbered] * (instructions + 1)), instructions


def _quantile(residual: Floats, weight: Floats, share: float) -> float:
    """Return the smallest residual up to which the rows have this share of the weight."""
    order = np.argsort(residual)
    is_reached = np.cumsum(weight[order]) >= share - _ROUNDING
    first_reached = np.argmax(is_reached)
    return float(residual[order][first_reached])


def instructions_needed(level: float) -> int:
    """Return the smallest number of labelled instructions from which an interval of this level has two ends."""
    return ceil(2 / (1 - level) - 1 - _ROUNDING)
