"""Means of systems at the same length of responses, by a linear regression of the scores."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from localjudge.arrays import Floats
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
    length = np.log1p(characters)  # [rows]
    weights = instruction_weights(rows)  # [rows]
    is_of_system = (rows.system[:, None] == np.arange(len(rows.systems))) * 1.0  # [rows, systems]
    slope = _length_slope(rows, length, values, is_of_system=is_of_system, weights=weights)
    if slope is None:
        return undefined
    means = _means_at_mean_length(rows, length, values, weights, weights[:, None] * is_of_system, slope)
    lowest, highest = ends
    estimates = studentise(means, lowest, highest, resamples=resamples, seed=seed).estimates()
    return [_within_scale(mean, lowest, highest) for mean in estimates]


@dataclass(frozen=True, slots=True)
class _LengthSlope:
    """The slope of length, with the contribution of each instruction, [groups]."""

    value: float
    shares: Floats


def _length_slope(
    rows: SystemRows, length: Floats, values: Floats, is_of_system: Floats, weights: Floats
) -> _LengthSlope | None:
    """Return the slope of length within instructions and systems (Frisch, Waugh and Lovell).

    Args:
        rows: the rows of all systems.
        length: the length of each row, [rows].
        values: its score, [rows].
        is_of_system: 1 for the system of a row, else 0, [rows, systems].
        weights: the weight of each row, [rows].

    Returns:
        The slope; None if too little of the variance of lengths is left.
    """
    columns = np.column_stack([length, values, is_of_system])  # [rows, 2 + systems]
    deviations = _deviations(rows, columns, weights)
    of_rows = deviations[:, :2]
    of_systems = deviations[:, 2:]
    coefficients, *_ = np.linalg.lstsq(of_systems, of_rows, rcond=None)
    residuals = of_rows - of_systems @ coefficients
    length_left = residuals[:, 0]
    score_left = residuals[:, 1]
    squares_of_group = np.bincount(rows.group, length_left**2, minlength=rows.groups)
    squares = squares_of_group.sum()
    rounding = 1e-12 * len(residuals)
    least = _LEAST_LEFT * (deviations[:, 0] ** 2).sum()
    if squares <= max(rounding, least, 2 * squares_of_group.max()):
        return None
    slope = (length_left * score_left).sum() / squares
    errors = score_left - slope * length_left
    gradient = np.bincount(rows.group, length_left * errors, minlength=rows.groups)
    return _LengthSlope(slope, gradient / (squares - squares_of_group))


def _deviations(rows: SystemRows, columns: Floats, weights: Floats) -> Floats:
    """Return columns minus their weighted means on each instruction, times the root of the weight.

    The result is [rows, k], as are the columns.
    """
    from scipy.sparse import csr_array

    count = len(rows.group)
    weights_by_instruction = csr_array((weights, (rows.group, np.arange(count))), shape=(rows.groups, count))
    total = np.maximum(weights_by_instruction.sum(axis=1), np.finfo(float).tiny)  # [groups]
    means = weights_by_instruction @ columns / total[:, None]  # [groups, k]
    deviations: Floats = np.sqrt(weights)[:, None] * (columns - means[rows.group])
    return deviations


def _means_at_mean_length(
    rows: SystemRows,
    length: Floats,
    values: Floats,
    weights: Floats,
    system_weights: Floats,
    slope: _LengthSlope,
) -> Contributions:
    """Return the mean of each system, moved along the slope to the mean length of all rows.

    Args:
        rows: the rows of all systems.
        length: the length of each row, [rows].
        values: its score, [rows].
        weights: its weight in the mean of all rows, [rows].
        system_weights: its weight in the mean of each system, [rows, systems].
        slope: the slope.
    """
    group = rows.group
    groups = rows.groups
    without_length = values - slope.value * length
    mean_length = averages(length[:, None], group, groups=groups, weights=weights)
    lengths = averages(length[:, None], group, groups=groups, weights=system_weights)
    adjusted = averages(without_length[:, None], group, groups=groups, weights=system_weights)
    distance = np.nan_to_num(lengths.value - mean_length.value)  # [systems]
    shares = adjusted.shares + slope.value * mean_length.shares - distance * slope.shares[:, None]
    return Contributions(
        value=adjusted.value + slope.value * mean_length.value,
        shares=shares,
        units=adjusted.units,
    )


def _within_scale(mean: Estimate, lowest: float, highest: float) -> Estimate:
    """Return an estimate whose value is not beyond the scale, where a straight line may lead."""
    if mean.value is None:
        return mean
    return replace(mean, value=min(max(mean.value, lowest), highest))
