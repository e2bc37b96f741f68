"""Means of systems at the same length of responses, by a linear regression of the scores."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from localjudge.arrays import Floats, Integers
from localjudge.statistics import UNDEFINED, Estimate
from localjudge.statistics.resampling import Contributions, averages, studentise
from localjudge.statistics.system_means import SystemRows, instruction_weights

_LEAST_LEFT = 0.1
"""Smallest share of the variance of lengths within systems that a slope of length is known from."""


def means_at_equal_length(
    rows: SystemRows,
    values: Floats,
    ends: tuple[int, int],
    characters: Floats | None,
    resamples: int,
    seed: int,
) -> list[Estimate]:
    """Return each system's mean at the mean length of all rows.

    The model of a row's score is a linear regression with three terms: an effect of the instruction, an effect
    of the system, and a slope times log(1 + characters of the candidate). The slope is thus estimated within
    instructions and within systems: if a good system writes long responses, its quality is not attributed to
    their length. All instructions of a system have the same weight, however many rows it has on each.

    Args:
        rows: the rows of all systems.
        values: the score of each row, [rows].
        ends: the lowest and the highest score; no estimate and no interval reaches beyond them.
        characters: the length of each row's candidate, [rows]; None if they are not known.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.

    Returns:
        An estimate for each system; undefined if lengths are unknown, if less than a tenth of their variance is
        left within systems (a variance inflation factor above 10), or if one instruction has half of that.
    """
    undefined = [UNDEFINED] * len(rows.systems)
    if characters is None:
        return undefined
    regression = _Regression(
        group=rows.group,
        groups=rows.groups,
        length=np.log1p(characters),
        score=values,
        weight=instruction_weights(rows),
        is_of_system=(rows.system[:, None] == np.arange(len(rows.systems))).astype(np.float64),
    )
    slope = regression.slope()
    if slope is None:
        return undefined
    lowest, highest = ends
    means = regression.means_at_mean_length(slope)
    estimates = studentise(means, lowest, highest=highest, resamples=resamples, seed=seed).estimates()
    return [_within_scale(mean, lowest, highest=highest) for mean in estimates]


@dataclass(frozen=True, slots=True)
class _LengthSlope:
    """The slope of length, with the contribution of each instruction."""

    value: float
    shares: Floats  # [G]


@dataclass(frozen=True, slots=True)
class _Regression:
    """The rows of a regression of n scores on instructions, systems and lengths."""

    group: Integers  # [n]: the number of the instruction
    groups: int  # G
    length: Floats  # [n]
    score: Floats  # [n]
    weight: Floats  # [n]
    is_of_system: Floats  # [n, systems]: 1 for the row's system, else 0

    def slope(self) -> _LengthSlope | None:
        """Return the slope of length within instructions and systems (Frisch, Waugh and Lovell).

        It is None if too little of the variance of lengths is left.
        """
        columns = np.column_stack([self.length, self.score, self.is_of_system])  # [n, 2 + systems]
        deviations = self._deviations(columns)
        length_and_score = deviations[:, :2]
        systems = deviations[:, 2:]
        coefficients, *_ = np.linalg.lstsq(systems, length_and_score, rcond=None)
        residuals = length_and_score - systems @ coefficients  # [n, 2]
        length = residuals[:, 0]
        score = residuals[:, 1]
        squares_of_group = np.bincount(self.group, length**2, minlength=self.groups)  # [G]
        squares = squares_of_group.sum()
        rounding_error = 1e-12 * len(residuals)
        least_left = _LEAST_LEFT * (deviations[:, 0] ** 2).sum()
        if squares <= max(rounding_error, least_left, 2 * squares_of_group.max()):
            return None
        slope = (length * score).sum() / squares
        errors = score - slope * length
        changes = np.bincount(self.group, length * errors, minlength=self.groups)  # [G]
        return _LengthSlope(slope, changes / (squares - squares_of_group))

    def means_at_mean_length(self, slope: _LengthSlope) -> Contributions:
        """Return the mean of each system, moved along the slope to the mean length of all rows."""
        length = self.length[:, None]
        without_length = (self.score - slope.value * self.length)[:, None]
        system_weight = self.weight[:, None] * self.is_of_system  # [n, systems]
        of_all = averages(length, self.group, groups=self.groups, weights=self.weight)
        lengths = averages(length, self.group, groups=self.groups, weights=system_weight)
        adjusted = averages(without_length, self.group, groups=self.groups, weights=system_weight)
        distance = np.nan_to_num(lengths.value - of_all.value)  # [systems]
        shares = adjusted.shares + slope.value * of_all.shares - distance * slope.shares[:, None]
        return Contributions(
            value=adjusted.value + slope.value * of_all.value,
            shares=shares,
            units=adjusted.units,
        )

    def _deviations(self, columns: Floats) -> Floats:
        """Return columns minus their weighted means on each instruction, times the root of the weight.

        The result is [n, k], as are the columns.
        """
        from scipy.sparse import csr_array

        rows = len(self.group)
        # [G, n]: the weight of each row on its instruction
        weights = csr_array((self.weight, (self.group, np.arange(rows))), shape=(self.groups, rows))
        total = np.maximum(weights.sum(axis=1), np.finfo(float).tiny)  # [G]
        means = weights @ columns / total[:, None]  # [G, k]
        deviations: Floats = np.sqrt(self.weight)[:, None] * (columns - means[self.group])
        return deviations


def _within_scale(mean: Estimate, lowest: float, highest: float) -> Estimate:
    """Return an estimate whose value is not beyond the scale, where a straight line may lead."""
    if mean.value is None:
        return mean
    return replace(mean, value=min(max(mean.value, lowest), highest))
