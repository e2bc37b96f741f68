"""Comparison of one column of numbers with labels: correlations, kappa and errors, with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from localjudge.analysis import resampled_statistics
from localjudge.analysis.human_labels import Marks
from localjudge.analysis.interval import UNDEFINED, Estimate
from localjudge.analysis.resampling import (
    Contributions,
    averages,
    bootstrap_weights,
    expanded_percentile,
    studentise,
)
from localjudge.analysis.scores import Floats, Integers


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
    def of(cls, marks: Marks, group: Integers) -> ComparedLabels:
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

    @classmethod
    def others(cls, marks: Marks, group: Integers) -> ComparedLabels:
        """Return the other labels of each label's row, to compare `marks.value` with.

        Each label counts as one row.

        Args:
            marks: the labels of rows that have at least two.
            group: the instruction of each row of the run, [rows].
        """
        total = np.bincount(marks.row, marks.value)[marks.row]
        count = np.bincount(marks.row)[marks.row]
        order = np.argsort(marks.row, kind="stable")
        first, second = [], []
        for of_row in np.split(order, np.flatnonzero(np.diff(marks.row[order])) + 1):
            pairs = ~np.eye(len(of_row), dtype=np.bool_)
            first.append(np.repeat(of_row, len(of_row)).reshape(pairs.shape)[pairs])
            second.append(np.tile(of_row, len(of_row)).reshape(pairs.shape)[pairs])
        label, other = np.concatenate(first), np.concatenate(second)
        present, numbered = np.unique(group[marks.row], return_inverse=True)
        numbers: Integers = numbered.astype(np.int32)
        return cls(
            groups=len(present),
            mean=(total - marks.value) / (count - 1),
            mean_row=np.arange(len(marks.row), dtype=np.int32),
            mean_group=numbers,
            single=marks.value[other],
            single_row=label.astype(np.int32),
            single_group=numbers[label],
        )

    def part(self, chosen: NDArray[np.bool_]) -> ComparedLabels:
        """Return the labels of the chosen rows, a mask [rows]."""
        single = chosen[self.single_row]
        return replace(
            self,
            mean=self.mean[chosen],
            mean_row=self.mean_row[chosen],
            mean_group=self.mean_group[chosen],
            single=self.single[single],
            single_row=self.single_row[single],
            single_group=self.single_group[single],
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
        errors = np.column_stack([error == 0, np.abs(error) <= 1, np.abs(error), error]).astype(np.float64)
        width = self.highest - self.lowest
        estimates = averages(errors, against.single_group, against.groups)
        exact, within_one, mae, _ = self._studentised(estimates, 0, width)
        bias = self._studentised(estimates, -width, width, symmetric=True)[3]
        return replace(
            correlations,
            kappa=self.resampled(_kappa(x, y, self), resampled_statistics.kappa, x, y, against.single_group)
            if are_whole
            else UNDEFINED,
            exact=_at_most_one(exact) if are_whole else UNDEFINED,
            within_one=_at_most_one(within_one) if width > 1 else UNDEFINED,
            mae=mae,
            bias=bias,
        )

    def _studentised(
        self, estimates: Contributions, low: float, high: float, symmetric: bool = False
    ) -> list[Estimate]:
        return studentise(
            estimates, low, high, symmetric=symmetric, resamples=self.resamples, seed=self.seed
        ).estimates()

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
        self, value: float | None, statistic: Callable[..., Floats], x: Floats, y: Floats, group: Integers
    ) -> Estimate:
        """Return a statistic of pairs with its interval.

        Args:
            value: the statistic of all pairs; None if it is undefined.
            statistic: a function of `localjudge.analysis.resampled_statistics`.
            x: the first column, [m].
            y: the second column, [m].
            group: the instruction of each pair, [m].
        """
        if value is None or not self.resamples:
            return Estimate(value)
        # Equal pairs become one pair with more weight, because integers have few different pairs.
        pairs, pair = np.unique(np.column_stack([x, y]), axis=0, return_inverse=True)
        resampled = [
            statistic(pairs[:, 0], pairs[:, 1], weights)
            for weights in self._weights(group, pair.ravel(), len(pairs))
        ]
        return expanded_percentile(value, np.concatenate(resampled), self.groups)

    def _weights(self, group: Integers, pair: NDArray[np.intp], pairs: int) -> Iterator[Floats]:
        """Yield the weight of each distinct pair in each resample, in blocks of [resamples, pairs]."""
        from scipy.sparse import csr_array

        pair_counts = csr_array((np.ones(len(pair)), (pair, group)), shape=(pairs, self.groups))
        block = max(1, 2_000_000 // pairs)
        for weights in bootstrap_weights(self.groups, self.resamples, self.seed):
            for start in range(0, len(weights), block):
                yield np.ascontiguousarray((pair_counts @ weights[start : start + block].T).T)


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


def _at_most_one(share: Estimate) -> Estimate:
    return replace(share, high=None if share.high is None else min(share.high, 1.0))


def _constant(values: Floats) -> bool:
    return bool((values == values[0]).all())


def _are_whole(values: Floats) -> bool:
    return bool((values == np.round(values)).all())
