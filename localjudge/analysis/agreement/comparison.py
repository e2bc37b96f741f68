"""Comparison of one column of numbers with labels: correlations, kappa and errors, with their intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from localjudge.analysis.matching.human_labels import LabelArray
from localjudge.analysis.matching.scores import Floats, Integers
from localjudge.analysis.statistics import resampled_statistics
from localjudge.analysis.statistics.interval import UNDEFINED, Estimate
from localjudge.analysis.statistics.jackknife import PARTS, agreement_estimate, exact_share
from localjudge.analysis.statistics.resampling import averages, studentise


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


@dataclass(frozen=True, slots=True)
class ComparedLabels:
    """The labels to compare with, [rows] and [labels].

    The correlations use `mean`, the mean label of each row; the other statistics use `single`, each label
    separately. Groups are numbered from 0 without gaps.
    """

    groups: int
    mean: Floats
    mean_row: Integers
    mean_group: Integers
    single: Floats
    single_row: Integers
    single_group: Integers

    @classmethod
    def from_labels(cls, marks: LabelArray, group: Integers) -> ComparedLabels:
        """Return the labels `marks`; `group` has the instruction of each row of the run, [rows]."""
        rows, means = marks.means()
        present, mean_group = np.unique(group[rows], return_inverse=True)
        return cls(
            groups=len(present),
            mean=means,
            mean_row=rows,
            mean_group=mean_group.astype(np.int32),
            single=marks.value,
            single_row=marks.row,
            single_group=np.searchsorted(present, group[marks.row]).astype(np.int32),
        )


@dataclass(frozen=True, slots=True)
class ComparisonStatistics:
    """The computation of agreement statistics with intervals, for one set of labels and one scale."""

    groups: int
    resamples: int
    seed: int
    lowest: int
    highest: int

    def compare(self, column: Floats, against: ComparedLabels, in_scale: bool) -> Comparison:
        """Return all statistics of a column [rows of the run]."""
        correlations = self.correlations(column, against)
        if not in_scale or len(against.mean) < 2:
            return correlations
        x, y = column[against.single_row], against.single
        are_whole = _are_whole(x) and _are_whole(y)
        error = x - y
        width = self.highest - self.lowest
        group = against.single_group
        return replace(
            correlations,
            kappa=self.resampled(_kappa(x, y, self), resampled_statistics.kappa, x, y, group)
            if are_whole
            else UNDEFINED,
            exact=self.share(error == 0, group) if are_whole else UNDEFINED,
            within_one=self.share(np.abs(error) <= 1, group) if width > 1 else UNDEFINED,
            mae=self._mean(np.abs(error), group, 0, width),
            bias=self._mean(error, group, -width, width),
        )

    def share(self, held: NDArray[np.bool_], group: Integers) -> Estimate:
        """Return the share of pairs where something holds, [m], with its exact interval."""
        if not len(held):
            return UNDEFINED
        return exact_share(held, group) if self.resamples else Estimate.from_floats(held.mean())

    def _mean(self, values: Floats, group: Integers, lowest: float, highest: float) -> Estimate:
        estimates, symmetric = averages(values[:, None], group, self.groups), lowest < 0
        found = studentise(estimates, lowest, highest, symmetric, self.resamples, self.seed)
        return found.estimates()[0]

    def correlations(self, column: Floats, against: ComparedLabels) -> Comparison:
        """Return the correlations of a column, which do not depend on its scale."""
        x, y, group = column[against.mean_row], against.mean, against.mean_group
        found = {
            name: self.resampled(correlation(name, x, y), statistic, x, y, group)
            for name, statistic in (
                ("pearson", resampled_statistics.pearson),
                ("spearman", resampled_statistics.spearman),
                ("kendall", resampled_statistics.kendall),
            )
        }
        return Comparison(**found)

    def resampled(
        self,
        value: float | None,
        statistic: Callable[..., Floats],
        x: Floats,
        y: Floats,
        group: Integers,
        lowest: float = -1.0,
    ) -> Estimate:
        """Return a statistic of pairs with its interval from the jackknife of instructions.

        Args:
            value: the statistic of all pairs; None if it is undefined.
            statistic: a function of `localjudge.analysis.statistics.resampled_statistics`.
            x: the first column, [m].
            y: the second column, [m].
            group: the instruction of each pair, [m].
            lowest: the smallest possible value of the statistic.
        """
        from scipy.sparse import csr_array

        if value is None or not self.resamples or self.groups < 2:
            return Estimate(value)
        # Equal pairs become one pair with more weight, because integers have few different pairs.
        pairs, pair = np.unique(np.column_stack([x, y]), axis=0, return_inverse=True)
        # Above this number, several instructions are left out at a time.
        parts = min(self.groups, PARTS)
        counts = csr_array((np.ones(len(x)), (group % parts, pair.ravel())), shape=(parts, len(pairs)))
        left_out, block = [], max(1, 2_000_000 // len(pairs))
        for start in range(0, parts, block):
            weights = counts.sum(axis=0) - counts[start : start + block].toarray()
            left_out.append(statistic(pairs[:, 0], pairs[:, 1], weights))
        return agreement_estimate(value, np.concatenate(left_out), lowest)


def correlation(name: str, x: Floats, y: Floats) -> float | None:
    """Return a correlation, computed by SciPy; None for fewer than two pairs or a constant column.

    Args:
        name: "pearson", "spearman" or "kendall" (tau-b).
        x: the first column, [n].
        y: the second column, [n].
    """
    from scipy import stats

    if len(x) < 2 or _constant(x) or _constant(y):
        return None
    statistics = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}
    return float(statistics[name](x, y).statistic)


def _kappa(x: Floats, y: Floats, scale: ComparisonStatistics) -> float | None:
    from sklearn.metrics import cohen_kappa_score

    if _constant(x) and _constant(y) and x[0] == y[0]:
        return None
    values = np.arange(scale.lowest, scale.highest + 1)
    return float(cohen_kappa_score(x.astype(int), y.astype(int), labels=values, weights="quadratic"))


def _constant(values: Floats) -> bool:
    return bool((values == values[0]).all())


def _are_whole(values: Floats) -> bool:
    return bool((values == np.round(values)).all())
