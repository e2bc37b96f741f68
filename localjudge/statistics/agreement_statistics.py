"""Statistics of agreement with labels: correlations, kappa, shares and errors, with their intervals.

A statistic of pairs is computed on thousands of resamples at once. A resample gives each row a weight: the
number of times that it was drawn, or, for rows that were drawn with unequal chances, that number over the
chance. Each function takes two columns [m] and weights [B, m] of at least 0, and returns [B] numbers: the
result of SciPy's function (scikit-learn's for kappa) on the rows, each repeated by its weight; NaN if it is
undefined. A common factor of the weights changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from localjudge.arrays import Flags, Floats, Integers, LabelArray, RowArrays
from localjudge.statistics import UNDEFINED, Estimate, why_undefined
from localjudge.statistics.exact_shares import exact_share
from localjudge.statistics.jackknife import (
    FURTHER_OF_COEFFICIENTS,
    LEAST_FOR_AGREEMENT,
    PARTS,
    LeftOut,
    agreement_estimate,
)
from localjudge.statistics.resampling import RESAMPLES, mean_estimate

Statistic = Callable[[Floats, Floats, Floats], Floats]
"""A statistic of pairs, on thousands of resamples at once."""

ONE_SIDE_IS_EQUAL = "the scores or the labels are all equal"
"""Why a correlation or kappa is undefined, or is 0 without an interval."""

_SMALLEST = 1e-12
"""Share of its terms below which a variance is a rounding error: the column is constant."""

_BLOCK_SIZE = 2_000_000
"""Largest number of weights in a block of instructions that are left out."""


def spearman(first: Floats, second: Floats, weights: Floats) -> Floats:
    """Return Spearman's correlation: Pearson's of the ranks in each resample; ties share their mean rank."""
    total = weights.sum(axis=1)  # [B]
    # Subtract the mean rank, so that the sums lose no precision.
    mean_rank = (total[:, None] + 1) / 2
    first_ranks = _ranks(first, weights)  # [B, m]
    first_ranks -= mean_rank
    second_ranks = _ranks(second, weights)  # [B, m]
    second_ranks -= mean_rank
    weighted_first = weights * first_ranks
    weighted_second = weights * second_ranks
    moments = _Moments(
        total=total,
        first=weighted_first.sum(axis=1),
        second=weighted_second.sum(axis=1),
        first_squares=(weighted_first * first_ranks).sum(axis=1),
        second_squares=(weighted_second * second_ranks).sum(axis=1),
        products=(weighted_first * second_ranks).sum(axis=1),
    )
    return moments.correlation()


def pearson(first: Floats, second: Floats, weights: Floats) -> Floats:
    """Return Pearson's correlation."""
    moments = _Moments.from_columns(first - first.mean(), second - second.mean(), weights=weights)
    return moments.correlation()


def kappa(first: Floats, second: Floats, weights: Floats) -> Floats:
    """Return Cohen's kappa with quadratic weights: 2 cov / (var x + var y + (mean x - mean y)²)."""
    centre = second.mean()
    moments = _Moments.from_columns(first - centre, second - centre, weights=weights)
    total = moments.total
    squares = moments.first_squares + moments.second_squares - 2 * moments.products
    product_of_means = 2 * moments.first * moments.second / total**2
    chance = moments.first_squares / total + moments.second_squares / total - product_of_means
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(chance > _SMALLEST, 1 - squares / total / chance, np.nan)


def nominal_kappa(first: Floats, second: Floats, weights: Floats) -> Floats:
    """Return Cohen's kappa of labels without an order."""
    total = weights.sum(axis=1)  # [B]
    agreed = weights @ (first == second) / total
    chance = np.zeros(len(weights))  # [B]
    for label in np.intersect1d(first, second):
        chance += (weights @ (first == label)) * (weights @ (second == label)) / total**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(1 - chance > _SMALLEST, (agreed - chance) / (1 - chance), np.nan)


def absolute_error(first: Floats, second: Floats, weights: Floats) -> Floats:
    """Return the mean distance between the columns."""
    mean: Floats = weights @ np.abs(first - second) / weights.sum(axis=1)
    return mean


def auc(scores: Floats, is_positive: Floats, weights: Floats) -> Floats:
    """Return the area under the ROC curve of `scores`, where `is_positive` is 1 or 0.

    It is the probability that a positive is above a negative; equal values count half (Hanley & McNeil 1982,
    doi:10.1148/radiology.143.1.7063747).
    """
    positives, _ = _levels(scores, weights * (is_positive == 1))  # [B, levels]
    negatives, _ = _levels(scores, weights * (is_positive == 0))  # [B, levels]
    negatives_below = np.cumsum(negatives, axis=1) - negatives / 2
    pairs = positives.sum(axis=1) * negatives.sum(axis=1)  # [B]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(pairs > 0, (positives * negatives_below).sum(axis=1) / pairs, np.nan)


@dataclass(frozen=True, slots=True)
class _Moments:
    """Weighted sums over the rows of two columns, in each resample, [B].

    Attributes:
        total: of the weights.
        first: of the first column.
        second: of the second column.
        first_squares: of the squares of the first column.
        second_squares: of the squares of the second column.
        products: of the products of the columns.
    """

    total: Floats
    first: Floats
    second: Floats
    first_squares: Floats
    second_squares: Floats
    products: Floats

    @classmethod
    def from_columns(cls, first: Floats, second: Floats, weights: Floats) -> _Moments:
        """Return the sums of two columns [m] with weights [B, m]."""
        ones = np.ones_like(first)
        terms = np.column_stack([ones, first, second, first * first, second * second, first * second])
        sums = weights @ terms  # [B, 6]
        return cls(*sums.T)

    def correlation(self) -> Floats:
        """Return Pearson's correlation, [B]; NaN for a constant column."""
        total = self.total
        first_variance = total * self.first_squares - self.first * self.first
        second_variance = total * self.second_squares - self.second * self.second
        covariance = total * self.products - self.first * self.second
        first_varies = first_variance > _SMALLEST * total * self.first_squares
        second_varies = second_variance > _SMALLEST * total * self.second_squares
        with np.errstate(invalid="ignore", divide="ignore"):
            correlation = np.clip(covariance / np.sqrt(first_variance * second_variance), -1, 1)
            return np.where(first_varies & second_varies, correlation, np.nan)


def _ranks(values: Floats, weights: Floats) -> Floats:
    """Return the mean rank of each row among the repeated rows, [B, m]."""
    weight_of_level, level = _levels(values, weights)
    rank_of_level = np.cumsum(weight_of_level, axis=1) - (weight_of_level - 1) / 2  # [B, levels]
    ranks: Floats = rank_of_level[:, level]
    return ranks


def _levels(values: Floats, weights: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """Return the weight of each distinct value [B, levels], and the level of each row [m]."""
    levels, level = np.unique(values, return_inverse=True)
    order = np.argsort(level, kind="stable")
    starts = np.searchsorted(level[order], np.arange(len(levels)))
    return np.add.reduceat(weights[:, order], starts, axis=1), level


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
        return exact_share(held, self.group, weights=self.weight)

    def mean(self, values: Floats, lowest: float, highest: float, signed: bool = False) -> Estimate:
        """Return the mean of values [m] between two ends; `signed` values have a symmetric interval."""
        return mean_estimate(
            values,
            self.group,
            lowest=lowest,
            highest=highest,
            symmetric=signed,
            resamples=self.resamples,
            seed=self.seed,
            weights=self.weight,
        )

    def mean_error(self, column: Floats, labels: Floats, highest: float) -> Estimate:
        """Return the mean absolute error of a column [m], at most `highest`."""
        return self.agreement(absolute_error, column, second=labels, lowest=0.0, highest=highest, further=0)

    def agreement(
        self,
        statistic: Statistic,
        first: Floats,
        second: Floats,
        lowest: float = -1.0,
        highest: float = 1.0,
        tests: int = 1,
        further: int = FURTHER_OF_COEFFICIENTS,
    ) -> Estimate:
        """Return a statistic of pairs with its interval from the jackknife of instructions.

        Args:
            statistic: the statistic.
            first: the first column, [m].
            second: the second column, [m].
            lowest: the smallest possible value of the statistic.
            highest: the largest possible value.
            tests, further: as for `localjudge.statistics.jackknife.jackknife_interval`.
        """
        left_out = self.jackknife(statistic, first, second=second)
        if left_out is None:
            return Estimate(why=ONE_SIDE_IS_EQUAL)
        instructions = len(left_out.without)
        if instructions < 2:
            why = why_undefined(left_out.value, instructions, least=LEAST_FOR_AGREEMENT, varies=False)
            return Estimate(left_out.value, why=why)
        return agreement_estimate(
            left_out.value,
            left_out.without,
            lowest=lowest,
            highest=highest,
            tests=tests,
            further=further,
        )

    def difference(self, statistic: Statistic, column: Floats, other: Floats, labels: Floats) -> Estimate:
        """Return by how much a statistic of a column and the labels is above that of another column.

        Instructions are left out in both. All columns are [m], and the statistic is at most 1 and at least -1.
        """
        of_column = self.jackknife(statistic, column, second=labels)
        of_other = self.jackknife(statistic, other, second=labels)
        if of_column is None or of_other is None:
            return Estimate(why=ONE_SIDE_IS_EQUAL)
        return of_column.minus(of_other).difference(reach=2.0)

    def jackknife(self, statistic: Statistic, first: Floats, second: Floats) -> LeftOut | None:
        """Return a statistic of pairs, also without each instruction; None if it is undefined.

        Args:
            statistic, first, second: as for `agreement`.
        """
        from scipy.sparse import csr_array

        value = sample_statistic(statistic, first, second=second, weight=self.weight)
        if value is None:
            return None
        present, numbered = np.unique(self.group, return_inverse=True)
        if len(present) < 2:
            return LeftOut(value, np.full(len(present), np.nan))
        # Equal pairs become one pair with more weight, because integers have few different pairs.
        pairs, pair = np.unique(np.column_stack([first, second]), axis=0, return_inverse=True)
        # Above this number, several instructions are left out at a time.
        parts = min(len(present), PARTS)
        row_weights = np.ones(len(first)) if self.weight is None else self.weight
        entries = (row_weights, (numbered % parts, pair.ravel()))
        counts = csr_array(entries, shape=(parts, len(pairs)))  # the weight of each pair in each part
        without = []
        block = max(1, _BLOCK_SIZE // len(pairs))
        for start in range(0, parts, block):
            weights = counts.sum(axis=0) - counts[start : start + block].toarray()  # [block, pairs]
            without.append(statistic(pairs[:, 0], pairs[:, 1], weights))
        return LeftOut(value, np.concatenate(without))

    def kappa_of_labels(self, predicted: Floats, human: Floats) -> Estimate:
        """Return Cohen's kappa of labels without an order, [m]; no interval if all predicted ones are equal."""
        if (predicted != predicted[0]).any():
            return self.agreement(nominal_kappa, predicted, second=human)
        if (human == predicted[0]).all():
            return Estimate(None, why=ONE_SIDE_IS_EQUAL)
        return Estimate(0.0, why=ONE_SIDE_IS_EQUAL)


def sample_statistic(
    statistic: Statistic, first: Floats, second: Floats, weight: Floats | None = None
) -> float | None:
    """Return a statistic of all pairs; None if it is undefined, as for a constant column or a single pair."""
    if len(first) < 2:
        return None
    if weight is None:
        weight = np.ones(len(first))
    value = float(statistic(first, second, weight[None])[0])
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
    of_rows = SampledRows(group[rows], weight=marks.weight_of(rows))
    correlations = Comparison(
        spearman=of_rows.agreement(spearman, column[rows], second=means),
        pearson=of_rows.agreement(pearson, column[rows], second=means),
    )
    if ends is None or len(rows) < 2:
        return correlations
    of_labels = SampledRows(group[marks.row], weight=marks.weight, resamples=resamples, seed=seed)
    values = column[marks.row]  # [m]
    labels = marks.value  # [m]
    error = values - labels
    lowest, highest = ends
    width = highest - lowest
    comparison = replace(
        correlations,
        mae=of_labels.mean_error(values, labels, highest=width),
        bias=of_labels.mean(error, lowest=-width, highest=width, signed=True),
    )
    if not (_are_whole(values) and _are_whole(labels)):
        return comparison
    return replace(
        comparison,
        kappa=of_labels.agreement(kappa, values, second=labels),
        exact=of_labels.share(error == 0),
        within_one=of_labels.share(np.abs(error) <= 1),
    )


def _are_whole(numbers: Floats) -> bool:
    """Return whether all numbers are whole."""
    return bool((numbers == numbers.round()).all())


@dataclass(frozen=True, slots=True)
class NominalComparison:
    """The agreement of one column of labels with the human labels, each human label separately.

    `kappa` is Cohen's, without weights.
    """

    accuracy: Estimate
    kappa: Estimate


def compare_labels(predicted: Floats, human: Floats, labels: SampledRows) -> NominalComparison:
    """Compare labels with human ones, both numbers from 0.

    Args:
        predicted: the labels, [m].
        human: the human labels, [m].
        labels: their instructions and weights.
    """
    return NominalComparison(
        accuracy=labels.share(predicted == human),
        kappa=labels.kappa_of_labels(predicted, human),
    )
