"""Statistics of agreement with labels: correlations, kappa, shares and errors, with their intervals.

A statistic of pairs is computed on thousands of resamples at once. A resample gives each row a weight: the
number of times that it was drawn, or, for rows that were drawn with unequal chances, that number over the
chance. Each function takes pairs `x`, `y` [m] and weights [B, m] of at least 0, and returns [B] numbers: the
result of SciPy's function (scikit-learn's for kappa) on the rows, each repeated by its weight; NaN if it is
undefined. A common factor of the weights changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localjudge.arrays import Flags, Floats, Integers, LabelArray, RowArrays
from localjudge.statistics import UNDEFINED, Estimate, why_undefined
from localjudge.statistics.jackknife import (
    FURTHER_OF_COEFFICIENTS,
    LEAST_FOR_AGREEMENT,
    PARTS,
    LeftOut,
    agreement_estimate,
    exact_share,
)
from localjudge.statistics.resampling import RESAMPLES, mean_estimate

_SMALLEST = 1e-12
"""Share of its terms below which a variance is a rounding error: the column is constant."""


def spearman(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Return Spearman's correlation: Pearson's of the ranks in each resample; ties share their mean rank."""
    rx, ry = _ranks(x, weights), _ranks(y, weights)
    n = weights.sum(axis=1)
    # Subtract the mean rank, so that the sums lose no precision.
    rx -= (n[:, None] + 1) / 2
    ry -= (n[:, None] + 1) / 2
    wx, wy = weights * rx, weights * ry
    return _correlation(
        n, wx.sum(axis=1), wy.sum(axis=1), (wx * rx).sum(axis=1), (wy * ry).sum(axis=1), (wx * ry).sum(axis=1)
    )


def pearson(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Return Pearson's correlation."""
    x, y = x - x.mean(), y - y.mean()
    n, sx, sy, sxx, syy, sxy = (weights @ np.column_stack([np.ones_like(x), x, y, x * x, y * y, x * y])).T
    return _correlation(n, sx, sy, sxx, syy, sxy)


def kappa(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Return Cohen's kappa with quadratic weights: 2 cov / (var x + var y + (mean x - mean y)²)."""
    x, y = x - y.mean(), y - y.mean()
    n, sx, sy, sxx, syy, sxy = (weights @ np.column_stack([np.ones_like(x), x, y, x * x, y * y, x * y])).T
    chance = sxx / n + syy / n - 2 * sx * sy / n**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(chance > _SMALLEST, 1 - (sxx + syy - 2 * sxy) / n / chance, np.nan)


def nominal_kappa(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Return Cohen's kappa of labels without an order."""
    n = weights.sum(axis=1)
    agreed = weights @ (x == y) / n
    chance = np.zeros(len(weights))
    for label in np.intersect1d(x, y):
        chance += (weights @ (x == label)) * (weights @ (y == label)) / n**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(1 - chance > _SMALLEST, (agreed - chance) / (1 - chance), np.nan)


def absolute_error(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Return the mean distance between the columns."""
    mean: Floats = weights @ np.abs(x - y) / weights.sum(axis=1)
    return mean


def auc(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Return the area under the ROC curve of `x`, where `y` is 1 for a positive and 0 for a negative.

    It is the probability that a positive is above a negative; equal values count half (Hanley & McNeil 1982,
    doi:10.1148/radiology.143.1.7063747).
    """
    positive, _ = _levels(x, weights * (y == 1))
    negative, _ = _levels(x, weights * (y == 0))
    below = np.cumsum(negative, axis=1) - negative / 2
    pairs = positive.sum(axis=1) * negative.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(pairs > 0, (positive * below).sum(axis=1) / pairs, np.nan)


def _correlation(n: Any, sx: Any, sy: Any, sxx: Any, syy: Any, sxy: Any) -> Floats:
    vx, vy = n * sxx - sx * sx, n * syy - sy * sy
    varied = (vx > _SMALLEST * n * sxx) & (vy > _SMALLEST * n * syy)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(varied, np.clip((n * sxy - sx * sy) / np.sqrt(vx * vy), -1, 1), np.nan)


def _ranks(values: Floats, weights: Floats) -> Floats:
    """Return the mean rank of each row among the repeated rows, [B, m]."""
    at_level, level = _levels(values, weights)
    ranks = np.cumsum(at_level, axis=1) - (at_level - 1) / 2
    taken: Floats = ranks[:, level]
    return taken


def _levels(values: Floats, weights: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """Return the weight of each distinct value [B, levels], and the level of each row [m]."""
    levels, level = np.unique(values, return_inverse=True)
    order = np.argsort(level, kind="stable")
    starts = np.searchsorted(level[order], np.arange(len(levels)))
    return np.add.reduceat(weights[:, order], starts, axis=1), level


Statistic = Callable[[Floats, Floats, Floats], Floats]
"""A statistic of pairs, on thousands of resamples at once."""
ONE_SIDE_IS_EQUAL = "the scores or the labels are all equal"
"""Why a correlation or kappa is undefined, or is 0 without an interval."""
_FOLDS = 5


@dataclass(frozen=True, slots=True)
class SampledRows(RowArrays):
    """The instruction and the weight of m rows or labels, and how their instructions are resampled.

    Instructions are any numbers. `weight` is None if all rows have the same.
    """

    group: Integers  # [m]
    weight: Floats | None = None  # [m]
    resamples: int = RESAMPLES
    seed: int = 0

    def share(self, held: Flags) -> Estimate:
        """Return the share of the rows where something holds, [m]; see `exact_share`."""
        return exact_share(held, self.group, self.weight)

    def mean(self, values: Floats, lowest: float, highest: float, signed: bool = False) -> Estimate:
        """Return the mean of values [m] between two ends; `signed` values have a symmetric interval."""
        ends = lowest, highest, signed
        return mean_estimate(values, self.group, *ends, self.resamples, self.seed, self.weight)

    def mean_error(self, x: Floats, y: Floats, highest: float) -> Estimate:
        """Return the mean absolute error of a column [m], at most `highest`."""
        return self.agreement(absolute_error, x, y, lowest=0.0, highest=highest, further=0)

    def agreement(
        self,
        statistic: Statistic,
        x: Floats,
        y: Floats,
        lowest: float = -1.0,
        highest: float = 1.0,
        tests: int = 1,
        further: int = FURTHER_OF_COEFFICIENTS,
    ) -> Estimate:
        """Return a statistic of pairs with its interval from the jackknife of instructions.

        Args:
            statistic: the statistic.
            x: the first column, [m].
            y: the second column, [m].
            lowest: the smallest possible value of the statistic.
            highest: the largest possible value.
            tests, further: as for `localjudge.statistics.jackknife.jackknife_interval`.
        """
        found = self.left_out(statistic, x, y)
        if found is None:
            return Estimate(why=ONE_SIDE_IS_EQUAL)
        if len(found.without) < 2:
            why = why_undefined(found.value, len(found.without), LEAST_FOR_AGREEMENT, False)
            return Estimate(found.value, why=why)
        return agreement_estimate(
            found.value, found.without, lowest=lowest, highest=highest, tests=tests, further=further
        )

    def difference(self, statistic: Statistic, x: Floats, other: Floats, y: Floats) -> Estimate:
        """Return by how much a statistic of `x` and `y` is above that of `other` and `y`, with its interval.

        Instructions are left out in both. The columns are [m], and the statistic is at most 1 and at least -1.
        """
        found, of_other = self.left_out(statistic, x, y), self.left_out(statistic, other, y)
        if found is None or of_other is None:
            return Estimate(why=ONE_SIDE_IS_EQUAL)
        return found.minus(of_other).difference(reach=2.0)

    def left_out(self, statistic: Statistic, x: Floats, y: Floats) -> LeftOut | None:
        """Return a statistic of pairs, also without each instruction; None if it is undefined.

        Args:
            statistic, x, y: as for `agreement`.
        """
        from scipy.sparse import csr_array

        value = of_all(statistic, x, y, self.weight)
        if value is None:
            return None
        present, numbered = np.unique(self.group, return_inverse=True)
        if len(present) < 2:
            return LeftOut(value, np.full(len(present), np.nan))
        # Equal pairs become one pair with more weight, because integers have few different pairs.
        pairs, pair = np.unique(np.column_stack([x, y]), axis=0, return_inverse=True)
        # Above this number, several instructions are left out at a time.
        parts = min(len(present), PARTS)
        weights_of_pairs = np.ones(len(x)) if self.weight is None else self.weight
        counts = csr_array((weights_of_pairs, (numbered % parts, pair.ravel())), shape=(parts, len(pairs)))
        left_out, block = [], max(1, 2_000_000 // len(pairs))
        for start in range(0, parts, block):
            weights = counts.sum(axis=0) - counts[start : start + block].toarray()
            left_out.append(statistic(pairs[:, 0], pairs[:, 1], weights))
        return LeftOut(value, np.concatenate(left_out))

    def kappa_of_labels(self, given: Floats, human: Floats) -> Estimate:
        """Return Cohen's kappa of labels without an order, [m]; no interval if all that is given is equal."""
        if (given == given[0]).all():
            return Estimate(None if (human == given[0]).all() else 0.0, why=ONE_SIDE_IS_EQUAL)
        return self.agreement(nominal_kappa, given, human)


def of_all(statistic: Statistic, x: Floats, y: Floats, weight: Floats | None = None) -> float | None:
    """Return a statistic of all pairs; None if it is undefined, as for a constant column or a single pair."""
    if len(x) < 2:
        return None
    weights = np.ones(len(x)) if weight is None else weight
    value = float(statistic(x, y, weights[None])[0])
    return value if np.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The agreement statistics of one column of numbers with the labels.

    The correlations use the mean label of each row, the others each label separately. These are undefined if a
    label lies outside the judge's scale.

    Attributes:
        spearman: Spearman's rank correlation.
        pearson: Pearson's correlation.
        mae: the mean absolute error.
        kappa: Cohen's kappa with quadratic weights; it requires whole numbers on both sides.
        exact: the share of equal numbers; it requires whole numbers, too.
        within_one: the share of numbers that differ by one at most; it requires whole numbers, too.
        bias: the mean of the column minus the label.
    """

    spearman: Estimate = UNDEFINED
    pearson: Estimate = UNDEFINED
    mae: Estimate = UNDEFINED
    kappa: Estimate = UNDEFINED
    exact: Estimate = UNDEFINED
    within_one: Estimate = UNDEFINED
    bias: Estimate = UNDEFINED


def compare(
    column: Floats,
    marks: LabelArray,
    group: Integers,
    ends: tuple[int, int] | None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Return all statistics of a column of numbers.

    Args:
        column: the numbers, [rows of the run].
        marks: the labels.
        group: the instruction of each row, [rows of the run].
        ends: the lowest and the highest number of the scale, which contains all labels; None for a column on
            another scale, which has a correlation alone.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
    """
    rows, means = marks.means()
    of_rows = SampledRows(group[rows], marks.weight_of(rows))
    correlations = {
        "spearman": of_rows.agreement(spearman, column[rows], means),
        "pearson": of_rows.agreement(pearson, column[rows], means),
    }
    if ends is None or len(rows) < 2:
        return Comparison(**correlations)
    labels = SampledRows(group[marks.row], marks.weight, resamples, seed)
    x, y = column[marks.row], marks.value
    error, width, are_whole = x - y, ends[1] - ends[0], bool((x == x.round()).all() and (y == y.round()).all())
    return Comparison(
        **correlations,
        mae=labels.mean_error(x, y, width),
        kappa=labels.agreement(kappa, x, y) if are_whole else UNDEFINED,
        exact=labels.share(error == 0) if are_whole else UNDEFINED,
        within_one=labels.share(np.abs(error) <= 1) if are_whole else UNDEFINED,
        bias=labels.mean(error, -width, width, signed=True),
    )


@dataclass(frozen=True, slots=True)
class NominalComparison:
    """The agreement of one column of labels with the human labels, each human label separately.

    `kappa` is Cohen's, without weights.
    """

    accuracy: Estimate
    kappa: Estimate


def compare_labels(given: Floats, human: Floats, labels: SampledRows) -> NominalComparison:
    """Compare labels with human ones, both numbers from 0.

    Args:
        given: the labels, [m].
        human: the human labels, [m].
        labels: their instructions and weights.
    """
    return NominalComparison(labels.share(given == human), labels.kappa_of_labels(given, human))


def baseline_labels(columns: Mapping[str, Floats], human: Floats, labels: SampledRows) -> dict[str, Floats]:
    """Return the labels [m] of trivial judges, numbers from 0, each learned on other instructions.

    "most frequent" is the most frequent human label. Each column [m] is the prediction of a small decision tree
    that knows only its number.

    Args:
        columns: what each other trivial judge knows.
        human: the human labels, [m].
        labels: the instructions and weights of the human labels.
    """
    from sklearn.tree import DecisionTreeClassifier

    found = {"most frequent": most_frequent_label(human, labels)}
    for name, column in columns.items() if len(np.unique(labels.group)) > 1 else ():
        predicted = found[name] = np.zeros(len(human))
        for seen, unseen in _folds(labels):
            tree = DecisionTreeClassifier(max_depth=2, random_state=labels.seed)
            weight = None if labels.weight is None else labels.weight[seen]
            tree.fit(column[seen, None], human[seen].astype(int), weight)
            predicted[unseen] = tree.predict(column[unseen, None])
    return found


def most_frequent_label(human: Floats, labels: SampledRows) -> Floats:
    """Return for each label the most frequent one of other instructions, [m]; of several, the smallest.

    Args:
        human: the human labels, [m].
        labels: their instructions and weights.
    """
    numbers, place = np.unique(human, return_inverse=True)
    weights = np.ones(len(human)) if labels.weight is None else labels.weight
    predicted = np.empty(len(human))
    for seen, unseen in _folds(labels):
        counts = np.bincount(place[seen], weights[seen], minlength=len(numbers))
        predicted[unseen] = numbers[counts.argmax()]
    return predicted


def median_label(human: Floats, labels: SampledRows) -> Floats:
    """Return for each label the median of those of other instructions, [m].

    The arguments are those of `most_frequent_label`.
    """
    weights = np.ones(len(human)) if labels.weight is None else labels.weight
    predicted = np.empty(len(human))
    for seen, unseen in _folds(labels):
        order = np.argsort(human[seen], kind="stable")
        cumulated = np.cumsum(weights[seen][order])
        middle = np.searchsorted(cumulated, cumulated[-1] / 2)
        predicted[unseen] = human[seen][order][middle]
    return predicted


def _folds(labels: SampledRows) -> Iterator[tuple[Integers, Integers]]:
    """Yield the labels to learn from, and those of other instructions; with one instruction, all are both."""
    from sklearn.model_selection import GroupKFold

    groups, places = len(np.unique(labels.group)), np.arange(len(labels.group))
    if groups < 2:
        yield places, places
        return
    folds = GroupKFold(min(_FOLDS, groups), shuffle=True, random_state=labels.seed)
    yield from folds.split(places, groups=labels.group)
