"""Means of systems, with the contribution of each instruction.

All instructions of a system have the same weight in its mean, however many rows the system has on each. A
system that answered easier instructions has a higher mean for that reason alone, so the additive model
(`means_on_same_instructions`) compares systems that answered different instructions.

`prediction_powered` has the means of human scores, and `equal_length` those at equal length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from localjudge.arrays import Floats, Integers
from localjudge.statistics.resampling import Contributions, cell_means


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


def instruction_means(rows: SystemRows, values: Floats) -> Floats:
    """Return each system's mean on each instruction, [groups, systems]; NaN if it has no row there."""
    shape = (rows.groups, len(rows.systems))
    means = cell_means(values[:, None], _cells(rows), cells=shape[0] * shape[1])
    return means.reshape(shape)


def instruction_weights(rows: SystemRows) -> Floats:
    """Return the weight of each row, [rows]: 1 / the number of rows of its system on its instruction."""
    cell = _cells(rows)
    rows_of_cell = np.bincount(cell)
    weights: Floats = 1 / rows_of_cell[cell]
    return weights


def column_means(columns: Floats) -> Contributions:
    """Return the mean of each column over its instructions; `columns` [groups, k] has NaN elsewhere."""
    is_present = np.isfinite(columns)
    units = is_present.sum(axis=0).astype(np.float64)  # [k]
    columns = np.where(is_present, columns, 0)
    with np.errstate(invalid="ignore"):
        value = columns.sum(axis=0) / units
    shares = np.where(is_present, columns - value, 0) / np.maximum(units, 1)
    return Contributions(value=value, shares=shares, units=units)


def connected_systems(cells: Floats) -> Integers:
    """Return the number of each system's component, [systems].

    The systems of one component have instructions in common, directly or through other systems.

    Args:
        cells: each system's mean on each instruction, [groups, systems].
    """
    from scipy.sparse.csgraph import connected_components

    answered = np.isfinite(cells).astype(np.float64)
    common = answered.T @ answered  # [systems, systems]: the number of common instructions
    _, component = connected_components(common, directed=False)
    components: Integers = component
    return components


def means_on_same_instructions(cells: Floats) -> Contributions:
    """Return each system's mean on all instructions of its component, by the additive model.

    The model of a cell is the effect of the instruction plus the effect of the system, fitted by least squares.
    If each system answered each instruction, these are the systems' means.

    Args:
        cells: each system's mean on each instruction, [groups, systems].
    """
    is_present = np.isfinite(cells)
    # The share of each present system in the mean of an instruction, [groups, systems].
    share = is_present / np.maximum(is_present.sum(axis=1, keepdims=True), 1)
    level = (share * np.where(is_present, cells, 0)).sum(axis=1)  # [groups]: the mean of each instruction
    # The normal equations of the systems' effects, after those of the instructions.
    information = np.diag(is_present.sum(axis=0)) - is_present.T @ share  # [systems, systems]
    inverse = np.linalg.pinv(information, hermitian=True)
    deviations = np.where(is_present, cells - level[:, None], 0)  # [groups, systems]
    effect = inverse @ deviations.sum(axis=0)  # [systems]
    level -= share @ effect  # [groups]: the effect of each instruction
    residuals = np.where(is_present, cells - effect - level[:, None], 0)  # [groups, systems]
    # The change of the effects by each instruction; `effect` and these have the sum 0 in each component.
    effect_changes = residuals @ inverse  # [groups, systems]
    component = connected_systems(cells)
    value = np.empty_like(effect)  # [systems]
    shares = np.empty_like(effect_changes)  # [groups, systems]
    for number in np.unique(component):
        is_member = component == number
        is_answered = is_present[:, is_member].any(axis=1)  # [groups]
        if is_answered.any():
            centre = level[is_answered].mean()
            level_changes = np.where(is_answered, level - centre, 0) / is_answered.sum()
            level_changes = level_changes - effect_changes @ share[is_answered].mean(axis=0)
        else:
            centre = np.nan
            level_changes = np.zeros(len(level))
        value[is_member] = centre + effect[is_member]
        shares[:, is_member] = effect_changes[:, is_member] + level_changes[:, None]
    units = is_present.sum(axis=0).astype(np.float64)
    return Contributions(value=value, shares=shares, units=units)


def _cells(rows: SystemRows) -> Integers:
    """Return the number of each row's cell, [rows]: its instruction and its system."""
    cell: Integers = rows.group.astype(np.int64) * len(rows.systems) + rows.system
    return cell
