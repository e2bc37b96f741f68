"""Means of systems and their differences, with the contribution of each instruction."""

from __future__ import annotations

import numpy as np

from localjudge.analysis.ppi import prediction_powered
from localjudge.analysis.resampling import Contributions, averages
from localjudge.analysis.scores import Floats, Integers, Scores


def judge_means(scores: Scores, values: Floats) -> Contributions:
    """Return each system's mean score; `values` has the score of each row, [rows]."""
    each = []
    for system in range(len(scores.systems)):
        rows = scores.system == system
        each.append(averages(values[rows, None], scores.group[rows], scores.groups))
    return _concatenated(each)


def human_means(scores: Scores, values: Floats, labelled: Integers, labels: Floats) -> Contributions:
    """Return each system's prediction-powered mean of the human score.

    Args:
        scores: the scores of all systems.
        values: the judge's score of each row, [rows].
        labelled: numbers of the rows with labels.
        labels: the mean label of each of these rows.
    """
    label = np.full(len(values), np.nan)
    label[labelled] = labels
    each = []
    for system in range(len(scores.systems)):
        rows = scores.system == system
        known = np.isfinite(label[rows])
        each.append(
            prediction_powered(values[rows], known, label[rows][known], scores.group[rows], scores.groups)
        )
    return _concatenated(each)


def _concatenated(each: list[Contributions]) -> Contributions:
    return Contributions(
        np.concatenate([one.value for one in each]),
        np.concatenate([one.shares for one in each], axis=1),
        np.concatenate([one.units for one in each]),
    )


def instruction_means(scores: Scores, values: Floats) -> Floats:
    """Return each system's mean on each instruction, [groups, systems]; NaN if it has no row there."""
    systems = len(scores.systems)
    cell = scores.group.astype(np.int64) * systems + scores.system
    size = scores.groups * systems
    rows = np.bincount(cell, minlength=size)
    with np.errstate(invalid="ignore"):
        return (np.bincount(cell, values, minlength=size) / rows).reshape(scores.groups, systems)


def paired_differences(cells: Floats, first: Integers, second: Integers) -> Contributions:
    """Return the mean difference of each pair of systems on the instructions that both answered.

    Args:
        cells: each system's mean on each instruction, [groups, systems].
        first: the first system of each pair, [pairs].
        second: the second system of each pair, [pairs]; its mean is subtracted.
    """
    between = cells[:, first] - cells[:, second]
    common = np.isfinite(between)
    units = common.sum(axis=0).astype(np.float64)
    between = np.where(common, between, 0)
    with np.errstate(invalid="ignore"):
        value = between.sum(axis=0) / units
    shares = np.where(common, between - value, 0) / np.maximum(units, 1)
    return Contributions(value, shares, units)
