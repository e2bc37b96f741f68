"""Means of systems and their differences, with the contribution of each instruction.

All instructions of a system have the same weight in its mean, however many rows the system has on each. A
system that answered easier instructions has a higher mean for that reason alone, so the additive model
(`means_on_same_instructions`) compares systems that answered different instructions.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from localjudge.analysis.matching.scores import Floats, Integers, Scores
from localjudge.analysis.statistics.ppi import prediction_powered
from localjudge.analysis.statistics.resampling import Contributions


def instruction_means(scores: Scores, values: Floats) -> Floats:
    """Return each system's mean on each instruction, [groups, systems]; NaN if it has no row there."""
    rows, size = _cell_rows(scores), scores.groups * len(scores.systems)
    total = np.bincount(_cells(scores), values, minlength=size)
    with np.errstate(invalid="ignore"):
        return (total / rows).reshape(scores.groups, len(scores.systems))


def instruction_weights(scores: Scores) -> Floats:
    """Return the weight of each row, [rows]: 1 / the number of rows of its system on its instruction."""
    weights: Floats = 1 / _cell_rows(scores)[_cells(scores)]
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
    component: Integers = connected_components(answered.T @ answered, directed=False)[1]
    return component


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
        own = component == number
        here = present[:, own].any(axis=1)
        centre = level[here].mean() if here.any() else np.nan
        value[own] = centre + effect[own]
        of_level = np.where(here, level - centre, 0) / max(here.sum(), 1)
        of_level = of_level - changes @ part[here].mean(axis=0) if here.any() else of_level
        shares[:, own] = changes[:, own] + of_level[:, None]
    return Contributions(value, shares, present.sum(axis=0).astype(np.float64))


def human_means(scores: Scores, values: Floats, labelled: Integers, labels: Floats) -> Contributions:
    """Return each system's prediction-powered mean of the human score.

    Args:
        scores: the scores of all systems.
        values: the judge's score of each row, [rows].
        labelled: numbers of the rows with labels.
        labels: the mean label of each of these rows.
    """
    systems = range(len(scores.systems))
    return _concatenated(
        [_human_mean(scores, values, labelled, labels, scores.system == system) for system in systems]
    )


def human_differences(
    scores: Scores, values: Floats, labelled: Integers, labels: Floats, answered: NDArray[np.bool_]
) -> Contributions:
    """Return the difference of the prediction-powered means of each pair of systems, on common instructions.

    Args:
        scores: the scores of all systems.
        values: the judge's score of each row, [rows].
        labelled: numbers of the rows with labels.
        labels: the mean label of each of these rows.
        answered: whether each system answered each instruction, [groups, systems].
    """
    each = []
    for pair in combinations(range(len(scores.systems)), 2):
        common = np.logical_and.reduce(answered[:, pair], axis=1)[scores.group]
        both = [
            _human_mean(scores, values, labelled, labels, common & (scores.system == system)) for system in pair
        ]
        each.append(_concatenated(both).contrast(np.array([0]), np.array([1])))
    return _concatenated(each)


def _human_mean(
    scores: Scores, values: Floats, labelled: Integers, labels: Floats, rows: NDArray[np.bool_]
) -> Contributions:
    label = np.full(len(values), np.nan)
    label[labelled] = labels
    known, weights = np.isfinite(label[rows]), instruction_weights(scores)[rows]
    return prediction_powered(
        values[rows], known, label[rows][known], scores.group[rows], scores.groups, weights
    )


def _concatenated(each: list[Contributions]) -> Contributions:
    return Contributions(
        np.concatenate([one.value for one in each]),
        np.concatenate([one.shares for one in each], axis=1),
        np.concatenate([one.units for one in each]),
    )


def _cells(scores: Scores) -> Integers:
    """Return the number of each row's cell, [rows]: its instruction and its system."""
    cells: Integers = scores.group.astype(np.int64) * len(scores.systems) + scores.system
    return cells


def _cell_rows(scores: Scores) -> Integers:
    rows: Integers = np.bincount(_cells(scores), minlength=scores.groups * len(scores.systems))
    return rows
