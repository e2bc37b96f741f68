"""Intervals and tests by resampling instructions: the uncertainty that comes from the choice of instructions.

The 95 % intervals of means of the instructions' contributions (means, differences, prediction-powered means)
are those of the bootstrap-t (Efron & Tibshirani 1993, 12.5). In small samples at the end of the scale,
resamples tend to be constant. Therefore the variance of each resample is computed as if it had one more
instruction, with the variance of the sample; without this, the interval fails if nine of ten scores are the
highest. The tails of a mean may differ, because its distribution is skewed away from the end of the scale. The
distribution of a difference is not skewed, so its interval is symmetric (Hall 1988,
doi:10.1111/j.2517-6161.1988.tb01707.x).

Scores that hardly vary say nothing about a rare low score that the sample does not have: if 2 % of the scores
are 2 and the others just below 5, a third of the samples of 50 have no 2, and their intervals are much too
short. So there is no interval if one more instruction at the far end of the scale would move the mean much
further than the interval reaches (`LEAST_REACH`).

`jackknife` has the intervals of shares, correlations and kappa. `benchmarks/coverage.py`
measures how often the intervals contain the true value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from localjudge.arrays import Flags, Floats, Integers
from localjudge.statistics import Estimate, why_undefined

Bound = float | Floats
"""The smallest or the largest possible true value: of all k estimates, or of each, [k]."""

RESAMPLES = 1000
MIN_INSTRUCTIONS = 5
"""Number of instructions that an interval requires."""

LEAST_REACH = 0.5
"""Smallest reach of an interval (1.96 standard errors), as a share of the distance that one more instruction at
the far end of the scale would move the mean.

`benchmarks/interval_limits.py` derives it: the smallest of 0, 1/4, 1/2, 3/4 and 1 with which the printed
intervals contain the mean in 93 % of the sets or more, in each population of expected scores just below 5 of
which 2 % are 2."""

_BLOCK_SIZE = 4_000_000
"""Largest number of values in a block of resamples: 32 MB."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Contributions:
    """k estimates, each with the contributions of G instructions.

    The linear approximation of a resample is `value + weights @ shares`. Each column of `shares` sums to 0;
    `units` is the number of instructions that contribute to each estimate.
    """

    value: Floats  # [k]
    shares: Floats  # [G, k]
    units: Floats  # [k]

    def contrast(self, first: Integers, second: Integers) -> Contributions:
        """Return the differences between estimates: `first` minus `second`, both [pairs]."""
        return Contributions(
            value=self.value[first] - self.value[second],
            shares=self.shares[:, first] - self.shares[:, second],
            units=np.minimum(self.units[first], self.units[second]),
        )


@dataclass(frozen=True, slots=True)
class Studentised:
    """k estimates with their intervals and standard errors; NaN if there is no interval. Then `why` says why.

    `null_t` has the t statistics of B resamples under the null hypothesis that all estimates are 0. `units` is
    the number of instructions that contribute to each estimate, and `varies` says whether their contributions
    differ.
    """

    value: Floats  # [k]
    low: Floats  # [k]
    high: Floats  # [k]
    error: Floats  # [k]
    null_t: Floats  # [B, k]
    units: Floats  # [k]
    varies: Flags  # [k]

    @property
    def why(self) -> list[str]:
        """The reason why each estimate has no interval, [k]; empty with one."""
        columns = [column.tolist() for column in (self.error, self.value, self.units, self.varies)]
        reasons = []
        for error, value, units, varies in zip(*columns, strict=True):
            if math.isfinite(error):
                reasons.append("")
            else:
                reasons.append(why_undefined(value, units, least=MIN_INSTRUCTIONS, varies=varies))
        return reasons

    def estimates(self) -> list[Estimate]:
        """Return the estimates with their intervals, [k]."""
        return list(map(Estimate.from_floats, self.value, self.low, self.high, self.why))

    def simultaneous(self, lowest: Bound = -math.inf, highest: Bound = math.inf) -> Studentised:
        """Return the estimates with intervals that contain all k true values together in 95 % of samples.

        They belong to the p-values of `adjusted`: an interval excludes 0 exactly if its p is below 0.05.
        An open end stays open.

        Args:
            lowest: the smallest possible true value.
            highest: the largest possible true value.
        """
        critical_t = self._critical_t
        if math.isnan(critical_t):
            return self
        reach = critical_t * self.error  # [k]
        low = np.where(np.isneginf(self.low), self.low, self.value - reach)
        high = np.where(np.isposinf(self.high), self.high, self.value + reach)
        return replace(self, low=np.clip(low, lowest, highest), high=np.clip(high, lowest, highest))

    def adjusted(self) -> Floats:
        """Return two-sided p-values adjusted for k tests, [k]; NaN without an interval or a resample.

        The adjustment is the single-step method of Westfall & Young (1993): the share of resamples in which the
        largest |t| of all estimates reaches that of the estimate.
        """
        largest = np.sort(self._largest_t)  # [B]
        resamples = len(largest)
        t = np.abs(self.value / self.error)  # [k]
        # Equal statistics can differ by rounding.
        below = np.searchsorted(largest, t * (1 - _ROUNDING))  # [k]: resamples that do not reach t
        reached = resamples - below
        has_test = np.isfinite(t) & (resamples > 0)
        return np.where(has_test, (1 + reached) / (1 + resamples), np.nan)

    def detectable(self, power: float = 0.8) -> Floats:
        """Return the smallest true value that samples like this one find in this share of cases, [k].

        It is found if its adjusted p is below 0.05. NaN without an interval or a resample.
        """
        from scipy.special import ndtri

        smallest: Floats = (self._critical_t + ndtri(power)) * self.error
        return smallest

    @property
    def _critical_t(self) -> float:
        """The smallest |t| with an adjusted p below 0.05; NaN with too few resamples."""
        rank = math.ceil(0.05 * (1 + len(self.null_t))) - 1
        if rank <= 0:
            return math.nan
        ascending = np.sort(self._largest_t)
        return float(ascending[-rank]) * (1 + _ROUNDING)

    @property
    def _largest_t(self) -> Floats:
        """The largest |t| of the estimates that have an interval, in each resample, [B]."""
        has_interval = np.isfinite(self.error)
        largest: Floats = np.abs(self.null_t[:, has_interval]).max(axis=1, initial=0)
        return largest


def bootstrap_weights(groups: int, resamples: int = RESAMPLES, seed: int = 0) -> Iterator[Floats]:
    """Yield how often each resample contains each instruction, in blocks of [resamples, groups].

    Equal arguments give equal resamples.
    """
    counts = _drawn(groups, resamples, seed=seed)
    block = _resamples_in_block(groups)
    for start in range(0, resamples, block):
        yield counts[start : start + block].astype(np.float64)


@lru_cache(maxsize=1)
def _drawn(groups: int, resamples: int, seed: int) -> NDArray[np.uint8]:
    """Return how often each resample contains each instruction, [resamples, groups]; a study asks many times.

    That one resample contains an instruction 256 times has a probability below 10^-500.
    """
    generator = np.random.default_rng(seed)
    block = _resamples_in_block(groups)
    counts = np.empty((resamples, groups), dtype=np.uint8)
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        instruction = generator.integers(groups, size=(rows, groups))
        # A cell is one instruction in one resample of the block.
        cell = instruction + groups * np.arange(rows)[:, None]
        counts_of_block = np.bincount(cell.ravel(), minlength=rows * groups)
        counts[start : start + rows] = counts_of_block.reshape(rows, groups)
    return counts


def _resamples_in_block(groups: int) -> int:
    """Return how many resamples of this number of instructions are computed at a time."""
    return max(1, _BLOCK_SIZE // max(groups, 1))


def studentise(
    estimates: Contributions,
    lowest: Bound = -math.inf,
    highest: Bound = math.inf,
    symmetric: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Studentised:
    """Return the estimates with bootstrap-t intervals; none if the contributions hardly vary.

    Args:
        estimates: the estimates.
        lowest: the smallest possible true value, of all estimates or of each, [k].
        highest: the largest possible true value.
        symmetric: use symmetric intervals, for differences.
        resamples: number of resamples.
        seed: seed of the resamples.
    """
    value = estimates.value
    error, varies = standard_errors(estimates, lowest, highest=highest)
    has_error = np.isfinite(error)  # [k]
    null_t = _null_t_statistics(estimates, has_error, resamples=resamples, seed=seed)
    low = np.full(len(value), np.nan)
    high = np.full(len(value), np.nan)
    if has_error.any() and resamples:
        null_t[:, ~has_error] = 0
        if symmetric:
            upper_t = np.quantile(np.abs(null_t), 0.95, axis=0)
            lower_t = -upper_t
        else:
            lower_t, upper_t = np.quantile(null_t, [0.025, 0.975], axis=0)
        low = np.clip(value - upper_t * error, lowest, highest)
        high = np.clip(value - lower_t * error, lowest, highest)
    return Studentised(
        value=value,
        low=low,
        high=high,
        error=error,
        null_t=null_t,
        units=estimates.units,
        varies=varies,
    )


def _null_t_statistics(estimates: Contributions, has_error: Flags, resamples: int, seed: int) -> Floats:
    """Return the t statistics of each resample, by its own variance and around the estimates, [resamples, k].

    The variance of a resample is computed as if it had one more instruction, with the variance of the sample.

    Args:
        estimates: the estimates.
        has_error: whether each has a standard error, [k]; the statistics of the others mean nothing.
        resamples, seed: as for `studentise`.
    """
    shares = estimates.shares  # [G, k]
    squares = shares**2
    total = squares.sum(axis=0)  # [k]
    units = np.where(has_error, estimates.units, MIN_INSTRUCTIONS)  # [k]
    null_t = np.empty((resamples, len(estimates.value)))
    start = 0
    with np.errstate(invalid="ignore", divide="ignore"):
        for weights in bootstrap_weights(len(shares), resamples, seed=seed):  # [B, G] in each block
            change = weights @ shares  # [B, k]
            variance = np.maximum(weights @ squares - change**2 / units, 0)
            variance = (units * variance + total) / (units + 1) * units / (units - 1)
            end = start + len(weights)
            null_t[start:end] = change / np.sqrt(variance)
            start = end
    return null_t


def standard_errors(
    estimates: Contributions, lowest: Bound = -math.inf, highest: Bound = math.inf
) -> tuple[Floats, Flags]:
    """Return the standard error of each estimate, NaN if it has no interval; and whether it varies, [k] each.

    Args:
        estimates, lowest, highest: as for `studentise`.
    """
    value = estimates.value
    total = (estimates.shares**2).sum(axis=0)  # [k]
    # Rounding errors of a constant column do not count as variance.
    varies = total > 1e-24 * np.maximum(1, value**2)
    is_usable = (estimates.units >= MIN_INSTRUCTIONS) & varies & np.isfinite(value)
    units = np.where(is_usable, estimates.units, MIN_INSTRUCTIONS)
    error = np.sqrt(total * units / (units - 1))
    # How far one more instruction at the far end of the scale moves the mean.
    farthest_move = np.maximum(value - lowest, highest - value) / (units + 1)
    reaches_far = 1.96 * error >= LEAST_REACH * farthest_move
    is_usable &= ~np.isfinite(farthest_move) | reaches_far
    return np.where(is_usable, error, np.nan), varies


def cell_means(values: Floats, cell: Integers, cells: int) -> Floats:
    """Return the mean of each column in each cell, [cells, k]; NaN for a cell without rows.

    Args:
        values: the columns, [m, k].
        cell: the cell of each row, [m].
        cells: number of cells.
    """
    totals = np.zeros((cells, values.shape[1]))
    np.add.at(totals, cell, values)
    rows = np.bincount(cell, minlength=cells)  # [cells]
    with np.errstate(invalid="ignore"):
        means: Floats = totals / rows[:, None]
    return means


def averages(values: Floats, group: Integers, groups: int, weights: Floats | None = None) -> Contributions:
    """Return the means of k columns, with the contribution of each instruction.

    Args:
        values: the columns, [m, k], or [m, 1] for one column with several weightings.
        group: the instruction of each row, [m].
        groups: number of instructions, including those without rows.
        weights: the weight of each row, such as 1 / its chance to be drawn, [m], or its weight in each column,
            [m, k], which is 0 for a row that is not part of the column; None for equal ones.
    """
    if weights is None:
        weights = np.ones(len(values))
    if weights.ndim == 1:
        weights = weights[:, None]
    total_weight = weights.sum(axis=0)  # [k] or [1]
    with np.errstate(invalid="ignore", divide="ignore"):
        row_shares = weights / total_weight  # [m, k] or [m, 1]
        value = (weights * values).sum(axis=0) / total_weight  # [k]
    shares = np.zeros((groups, len(value)))
    np.add.at(shares, group, row_shares * (values - value))
    is_present = np.zeros((groups, weights.shape[1]), dtype=np.bool_)
    np.logical_or.at(is_present, group, weights > 0)
    units = np.broadcast_to(is_present.sum(axis=0).astype(np.float64), value.shape)
    return Contributions(value=value, shares=np.nan_to_num(shares), units=units)


def mean_estimate(
    values: Floats,
    group: Integers,
    lowest: float = -math.inf,
    highest: float = math.inf,
    symmetric: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
    weights: Floats | None = None,
) -> Estimate:
    """Return the mean of values with its interval; undefined without values.

    Args:
        values: the values, [m].
        group: the instruction of each value, [m].
        lowest: the smallest possible mean.
        highest: the largest possible mean.
        symmetric: as for `studentise`.
        resamples: number of resamples.
        seed: seed of the resamples.
        weights: as for `averages`.
    """
    present, numbered = np.unique(group, return_inverse=True)
    means = averages(values[:, None], numbered, groups=len(present), weights=weights)
    tested = studentise(means, lowest, highest=highest, symmetric=symmetric, resamples=resamples, seed=seed)
    return tested.estimates()[0]
