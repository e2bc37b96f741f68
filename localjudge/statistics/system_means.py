"""Means of systems and their differences, with the contribution of each instruction.

All instructions of a system have the same weight in its mean, however many rows the system has on each. A
system that answered easier instructions has a higher mean for that reason alone, so the additive model
(`means_on_same_instructions`) compares systems that answered different instructions.

Prediction-powered means are means of the human score of all rows, from a few labels and the judge's scores.
The judge's scores replace the missing labels, and the existing labels correct the judge's scores. So the
interval is valid for the human score even if the judge is bad; a good judge makes it shorter. This is the
power-tuned estimator of Angelopoulos, Duchi & Zrnic, "PPI++: Efficient Prediction-Powered Inference"
(arXiv:2311.01453), equation 3 and section 6. It requires that the labelled rows are a random sample of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localjudge.arrays import Floats, Integers
from localjudge.statistics import UNDEFINED, Estimate
from localjudge.statistics.resampling import Contributions, averages, cell_means, studentise

_LEFT = 0.1
"""Smallest share of the variance of lengths within systems that a slope of length is known from."""


class SystemRows(Protocol):
    """The n rows of systems: their instructions and their systems, each numbered from 0, [n]."""

    @property
    def group(self) -> Integers: ...
    @property
    def groups(self) -> int: ...
    @property
    def system(self) -> Integers: ...
    @property
    def systems(self) -> Sequence[str]: ...


def prediction_powered(
    judged: Floats,
    labelled: NDArray[np.bool_],
    labels: Floats,
    group: Integers,
    groups: int,
    weights: Floats | None = None,
) -> Contributions:
    """Return the mean of the labels, with the contribution of each instruction; NaN for fewer than two labels.

    Args:
        judged: the judge's score of each row, [m].
        labelled: mask of the rows that have a label, [m].
        labels: the labels of these rows, in the same order.
        group: the instruction of each row, [m].
        groups: number of instructions.
        weights: the weight of each row in the mean, [m]; None for equal weights.
    """
    weights = np.ones(len(judged)) if weights is None else weights
    shares, known, rest = np.zeros((groups, 1)), judged[labelled], judged[~labelled]
    if len(known) < 2:
        return Contributions(np.array([np.nan]), shares, np.zeros(1))
    share = weights[labelled] / weights[labelled].sum()
    share_of_rest = weights[~labelled] / weights[~labelled].sum()
    tuning = power_tuning(known, rest, labels)
    corrected = labels - tuning * known
    mean, rest_mean = share @ corrected, share_of_rest @ rest
    # Each label influences the tuning; its leverage grows with the distance of its judge's score from the mean.
    # The HC3 correction (MacKinnon & White 1985) makes the interval valid with as few as thirty labels.
    squares = (known - known.mean()) ** 2
    leverage = np.minimum(squares / squares.sum(), 0.9) if tuning else 0.0
    np.add.at(shares[:, 0], group[labelled], share * (corrected - mean) / (1 - leverage))
    np.add.at(shares[:, 0], group[~labelled], tuning * share_of_rest * (rest - rest_mean))
    units = float(len(np.unique(group[labelled])))
    return Contributions(np.array([mean + tuning * rest_mean]), shares, np.array([units]))


def drawn_with_chances(
    judged: Floats,
    labelled: NDArray[np.bool_],
    labels: Floats,
    chance: Floats,
    group: Integers,
    groups: int,
    weights: Floats,
) -> Contributions:
    """Return `prediction_powered` for labels of rows that were drawn with unequal chances.

    Each labelled row stands for 1 / chance rows (active inference, arXiv:2403.03208); the judge's mean on the
    labelled rows is compared with that on all rows.

    Args:
        judged: as for `prediction_powered`.
        labelled: as for `prediction_powered`.
        labels: as for `prediction_powered`.
        chance: the chance of each labelled row to be in the sample, up to a common factor.
        group: as for `prediction_powered`.
        groups: as for `prediction_powered`.
        weights: the weight of each row in the mean, [m].
    """
    shares = np.zeros((groups, 1))
    if labelled.sum() < 2:
        return Contributions(np.array([np.nan]), shares, np.zeros(1))
    label, share, every = np.zeros(len(judged)), np.zeros(len(judged)), weights / weights.sum()
    label[labelled], share[labelled] = labels, weights[labelled] / chance
    share /= share.sum()
    surplus = share @ judged - every @ judged
    of_label = share * (label - share @ label)
    of_judge = share * (judged - share @ judged) - every * (judged - every @ judged)
    squares = of_judge**2
    tuning = float(np.clip(of_label @ of_judge / squares.sum(), 0, 1)) if squares.any() else 0.0
    leverage = np.where(labelled, np.minimum(squares / squares.sum(), 0.9), 0) if tuning else 0.0
    np.add.at(shares[:, 0], group, (of_label - tuning * of_judge) / (1 - leverage))
    units = len(np.unique(group[labelled]))
    return Contributions(np.array([share @ label - tuning * surplus]), shares, np.array([float(units)]))


def power_tuning(known: Floats, rest: Floats, labels: Floats) -> float:
    """Return the weight of the judge's scores, 0 to 1, that minimizes the variance of the mean.

    The weight is lambda in PPI++, example 6.1.

    Args:
        known: the judge's scores of the labelled rows, in the order of the labels.
        rest: the judge's scores of the other rows.
        labels: the labels.
    """
    variance = np.concatenate([known, rest]).var(ddof=1)
    if not len(rest) or variance <= 0:
        return 0.0
    covariance = np.mean((labels - labels.mean()) * (known - known.mean()))
    return float(np.clip(covariance / ((1 + len(known) / len(rest)) * variance), 0, 1))


def instruction_means(rows: SystemRows, values: Floats) -> Floats:
    """Return each system's mean on each instruction, [groups, systems]; NaN if it has no row there."""
    size = rows.groups * len(rows.systems)
    return cell_means(values[:, None], _cells(rows), size).reshape(rows.groups, len(rows.systems))


def instruction_weights(rows: SystemRows) -> Floats:
    """Return the weight of each row, [rows]: 1 / the number of rows of its system on its instruction."""
    cells = _cells(rows)
    weights: Floats = 1 / np.bincount(cells)[cells]
    return weights


def column_means(columns: Floats) -> Contributions:
    """Return the mean of each column over its instructions; `columns` [groups, k] has NaN elsewhere."""
    present = np.isfinite(columns)
    units = present.sum(axis=0).astype(np.float64)
    columns = np.where(present, columns, 0)
    with np.errstate(invalid="ignore"):
        value = columns.sum(axis=0) / units
    return Contributions(value, np.where(present, columns - value, 0) / np.maximum(units, 1), units)


def connected_systems(cells: Floats) -> Integers:
    """Return the number of each system's component, [systems].

    The systems of one component have instructions in common, directly or through other systems.

    Args:
        cells: each system's mean on each instruction, [groups, systems].
    """
    from scipy.sparse.csgraph import connected_components

    answered = np.isfinite(cells).astype(np.float64)
    numbers: Integers = connected_components(answered.T @ answered, directed=False)[1]
    return numbers


def means_on_same_instructions(cells: Floats) -> Contributions:
    """Return each system's mean on all instructions of its component, by the additive model.

    The model of a cell is the effect of the instruction plus the effect of the system, fitted by least squares.
    If each system answered each instruction, these are the systems' means.

    Args:
        cells: each system's mean on each instruction, [groups, systems].
    """
    present = np.isfinite(cells)
    part = present / np.maximum(present.sum(axis=1, keepdims=True), 1)
    filled = np.where(present, cells, 0)
    level = (part * filled).sum(axis=1)
    inverse = np.linalg.pinv(np.diag(present.sum(axis=0)) - present.T @ part, hermitian=True)
    effect = inverse @ np.where(present, cells - level[:, None], 0).sum(axis=0)
    level -= part @ effect
    # The change of the effects by each instruction; `effect` and these have the sum 0 in each component.
    changes = np.where(present, cells - effect - level[:, None], 0) @ inverse
    component = connected_systems(cells)
    value, shares = np.empty_like(effect), np.empty_like(changes)
    for number in np.unique(component):
        members = component == number
        here = present[:, members].any(axis=1)
        centre = level[here].mean() if here.any() else np.nan
        value[members] = centre + effect[members]
        of_level = np.where(here, level - centre, 0) / max(here.sum(), 1)
        of_level = of_level - changes @ part[here].mean(axis=0) if here.any() else of_level
        shares[:, members] = changes[:, members] + of_level[:, None]
    return Contributions(value, shares, present.sum(axis=0).astype(np.float64))


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """The labels of some rows in one column.

    Attributes:
        rows: the numbers of the rows.
        label: the mean label of each.
        chance: the chance of each to be labelled, up to a common factor.
    """

    rows: Integers
    label: Floats
    chance: Floats

    def means(self, rows: SystemRows, values: Floats) -> Contributions:
        """Return each system's prediction-powered mean of the human score.

        Args:
            rows: the rows of all systems.
            values: the judge's score of each row, [rows].
        """
        systems = range(len(rows.systems))
        return _concatenated([self._mean(rows, values, rows.system == system) for system in systems])

    def differences(self, rows: SystemRows, values: Floats, answered: NDArray[np.bool_]) -> Contributions:
        """Return the difference of the means of each pair of systems, on common instructions.

        Args:
            rows: the rows of all systems.
            values: the judge's score of each row, [rows].
            answered: whether each system answered each instruction, [groups, systems].
        """
        differences = []
        for pair in combinations(range(len(rows.systems)), 2):
            common = np.logical_and.reduce(answered[:, pair], axis=1)[rows.group]
            both = [self._mean(rows, values, common & (rows.system == system)) for system in pair]
            differences.append(_concatenated(both).contrast(np.array([0]), np.array([1])))
        return _concatenated(differences)

    def _mean(self, rows: SystemRows, values: Floats, among: NDArray[np.bool_]) -> Contributions:
        label, chance = np.full((2, len(values)), np.nan)
        label[self.rows], chance[self.rows] = self.label, self.chance
        known, weights = np.isfinite(label[among]), instruction_weights(rows)[among]
        label, chance, group = label[among][known], chance[among][known], rows.group[among]
        if len(label) and np.ptp(chance) > 0:
            return drawn_with_chances(values[among], known, label, chance, group, rows.groups, weights)
        return prediction_powered(values[among], known, label, group, rows.groups, weights)


def _concatenated(parts: list[Contributions]) -> Contributions:
    return Contributions(
        np.concatenate([one.value for one in parts]),
        np.concatenate([one.shares for one in parts], axis=1),
        np.concatenate([one.units for one in parts]),
    )


def _cells(rows: SystemRows) -> Integers:
    """Return the number of each row's cell, [rows]: its instruction and its system."""
    cells: Integers = rows.group.astype(np.int64) * len(rows.systems) + rows.system
    return cells


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
    from scipy.sparse import csr_array

    undefined = [UNDEFINED] * len(rows.systems)
    if characters is None:
        return undefined
    group, groups, weights = rows.group, rows.groups, instruction_weights(rows)
    length, dummies = np.log1p(characters), (rows.system[:, None] == np.arange(len(rows.systems))) * 1.0
    columns = np.column_stack([length, values, dummies])
    # The columns minus their weighted means for each instruction.
    cells = csr_array((weights, (group, np.arange(len(group)))), shape=(groups, len(group)))
    means = cells @ columns / np.maximum(cells.sum(axis=1), np.finfo(float).tiny)[:, None]
    inner = np.sqrt(weights)[:, None] * (columns - means[group])
    # Residuals of length and score after the effects of instructions and systems (Frisch, Waugh and Lovell).
    coefficients, *_ = np.linalg.lstsq(inner[:, 2:], inner[:, :2], rcond=None)
    residuals = inner[:, :2] - inner[:, 2:] @ coefficients
    of_group = np.bincount(group, residuals[:, 0] ** 2, minlength=groups)
    squares = of_group.sum()
    if squares <= max(1e-12 * len(residuals), _LEFT * (inner[:, 0] ** 2).sum(), 2 * of_group.max()):
        return undefined
    slope = (residuals[:, 0] * residuals[:, 1]).sum() / squares
    errors = residuals[:, 1] - slope * residuals[:, 0]
    slope_shares = np.bincount(group, residuals[:, 0] * errors, minlength=groups) / (squares - of_group)
    of_all = averages(length[:, None], group, groups, weights)
    of_systems = weights[:, None] * dummies
    adjusted = averages((values - slope * length)[:, None], group, groups, of_systems)
    distance = averages(length[:, None], group, groups, of_systems).value - of_all.value
    shares = adjusted.shares + slope * of_all.shares - np.nan_to_num(distance) * slope_shares[:, None]
    contributions = Contributions(adjusted.value + slope * of_all.value, shares, adjusted.units)
    estimates = studentise(contributions, *ends, resamples=resamples, seed=seed).estimates()
    # A straight line may lead beyond the scale.
    return [
        mean if mean.value is None else replace(mean, value=min(max(mean.value, ends[0]), ends[1]))
        for mean in estimates
    ]
