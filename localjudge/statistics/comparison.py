"""Comparison of one column of numbers with labels: correlations, kappa and errors, with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from localjudge.arrays import Floats, Integers, LabelArray
from localjudge.statistics import UNDEFINED, Estimate, agreement_statistics, why_undefined
from localjudge.statistics.jackknife import (
    LEAST_FOR_AGREEMENT,
    PARTS,
    agreement_estimate,
    exact_share,
)
from localjudge.statistics.resampling import mean_estimate

ONE_SIDE_IS_EQUAL = "the scores or the labels are all equal"
"""Why a correlation or kappa is undefined, or is 0 without an interval."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The agreement statistics of one column of numbers with the labels.

    The correlations use the mean label of each row. `kappa` (quadratic weights), `exact`, `within_one`, `mae`
    and `bias` (the column minus the label) use each label separately; they are undefined if a label lies
    outside the judge's scale, and `within_one` for a scale of two values. `kappa` and `exact` require whole
    numbers on both sides.
    """

    pearson: Estimate = UNDEFINED
    spearman: Estimate = UNDEFINED
    kendall: Estimate = UNDEFINED
    kappa: Estimate = UNDEFINED
    exact: Estimate = UNDEFINED
    within_one: Estimate = UNDEFINED
    mae: Estimate = UNDEFINED
    bias: Estimate = UNDEFINED


STATISTICS = tuple(field.name for field in fields(Comparison))
CORRELATIONS: Mapping[str, Callable[[Floats, Floats, Floats], Floats]] = {
    "pearson": agreement_statistics.pearson,
    "spearman": agreement_statistics.spearman,
    "kendall": agreement_statistics.kendall,
}


@dataclass(frozen=True, slots=True)
class ComparedLabels:
    """The labels to compare with, [rows] and [labels].

    The correlations use `mean`, the mean label of each row; the other statistics use `single`, each label
    separately. The groups are the instructions. The weights are None if all are equal.
    """

    mean: Floats
    mean_row: Integers
    mean_group: Integers
    single: Floats
    single_row: Integers
    single_group: Integers
    mean_weight: Floats | None = None
    single_weight: Floats | None = None

    @classmethod
    def from_labels(cls, marks: LabelArray, group: Integers) -> ComparedLabels:
        """Return the labels `marks`; `group` has the instruction of each row of the run, [rows]."""
        rows, means = marks.means()
        weight = marks.weight_of(rows)
        return cls(means, rows, group[rows], marks.value, marks.row, group[marks.row], weight, marks.weight)

    @property
    def groups(self) -> int:
        """Number of instructions."""
        return len(np.unique(self.mean_group))


def compare(
    column: Floats, against: ComparedLabels, ends: tuple[int, int], resamples: int, seed: int
) -> Comparison:
    """Return all statistics of a column.

    Args:
        column: the numbers, [rows of the run].
        against: the labels.
        ends: the lowest and the highest number of the scale, which contains all labels.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
    """
    correlations = correlations_with(column, against)
    if len(against.mean) < 2:
        return correlations
    x, y, group = column[against.single_row], against.single, against.single_group
    error, width, weight = x - y, ends[1] - ends[0], against.single_weight
    kappa = exact = UNDEFINED
    if _are_whole(x) and _are_whole(y):
        kappa = with_interval(agreement_statistics.kappa, x, y, group, weight=weight)
        exact = exact_share(error == 0, group, weight)
    return replace(
        correlations,
        kappa=kappa,
        exact=exact,
        within_one=exact_share(np.abs(error) <= 1, group, weight) if width > 1 else UNDEFINED,
        mae=mean_estimate(np.abs(error), group, 0, width, False, resamples, seed, weight),
        bias=mean_estimate(error, group, -width, width, True, resamples, seed, weight),
    )


def correlations_with(column: Floats, against: ComparedLabels) -> Comparison:
    """Return the correlations of a column [rows of the run], which do not depend on its scale."""
    x, y, group, weight = column[against.mean_row], against.mean, against.mean_group, against.mean_weight
    return Comparison(
        **{
            name: with_interval(statistic, x, y, group, weight=weight)
            for name, statistic in CORRELATIONS.items()
        }
    )


def with_interval(
    statistic: Callable[[Floats, Floats, Floats], Floats],
    x: Floats,
    y: Floats,
    group: Integers,
    lowest: float = -1.0,
    tests: int = 1,
    weight: Floats | None = None,
) -> Estimate:
    """Return a statistic of pairs with its interval from the jackknife of instructions.

    Args:
        statistic: a function of `localjudge.statistics.agreement_statistics`.
        x: the first column, [m].
        y: the second column, [m].
        group: the instruction of each pair, [m].
        lowest: the smallest possible value of the statistic.
        tests: as for `localjudge.statistics.jackknife.jackknife_interval`.
        weight: the weight of each pair, [m]; None for equal ones.
    """
    from scipy.sparse import csr_array

    value = of_all(statistic, x, y, weight)
    present, numbered = np.unique(group, return_inverse=True)
    if value is None:
        return Estimate(why=ONE_SIDE_IS_EQUAL)
    if len(present) < 2:
        return Estimate(value, why=why_undefined(value, len(present), LEAST_FOR_AGREEMENT, False))
    # Equal pairs become one pair with more weight, because integers have few different pairs.
    pairs, pair = np.unique(np.column_stack([x, y]), axis=0, return_inverse=True)
    # Above this number, several instructions are left out at a time.
    parts = min(len(present), PARTS)
    weights_of_pairs = np.ones(len(x)) if weight is None else weight
    counts = csr_array((weights_of_pairs, (numbered % parts, pair.ravel())), shape=(parts, len(pairs)))
    left_out, block = [], max(1, 2_000_000 // len(pairs))
    for start in range(0, parts, block):
        weights = counts.sum(axis=0) - counts[start : start + block].toarray()
        left_out.append(statistic(pairs[:, 0], pairs[:, 1], weights))
    return agreement_estimate(value, np.concatenate(left_out), lowest, tests)


def kappa_of_labels(given: Floats, human: Floats, group: Integers, weight: Floats | None = None) -> Estimate:
    """Return Cohen's kappa of labels without an order; without an interval if all that is given is equal.

    Args:
        given: the labels to compare, [m].
        human: the human labels, [m].
        group: the instruction of each, [m].
        weight: the weight of each, [m]; None for equal ones.
    """
    if (given == given[0]).all():
        return Estimate(None if (human == given[0]).all() else 0.0, why=ONE_SIDE_IS_EQUAL)
    return with_interval(agreement_statistics.nominal_kappa, given, human, group, weight=weight)


def of_all(
    statistic: Callable[[Floats, Floats, Floats], Floats], x: Floats, y: Floats, weight: Floats | None = None
) -> float | None:
    """Return a statistic of all pairs; None if it is undefined, as for a constant column or a single pair."""
    if len(x) < 2:
        return None
    weights = np.ones(len(x)) if weight is None else weight
    value = float(statistic(x, y, weights[None])[0])
    return value if np.isfinite(value) else None


def _are_whole(values: Floats) -> bool:
    return bool((values == np.round(values)).all())
