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
            self.value[first] - self.value[second],
            self.shares[:, first] - self.shares[:, second],
            np.minimum(self.units[first], self.units[second]),
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
        columns = (self.error, self.value, self.units, self.varies)
        return [
            "" if math.isfinite(error) else why_undefined(value, units, MIN_INSTRUCTIONS, varies)
            for error, value, units, varies in zip(*(each.tolist() for each in columns), strict=True)
        ]

    def estimates(self) -> list[Estimate]:
        return [*map(Estimate.from_floats, self.value, self.low, self.high, self.why)]

    def simultaneous(self, lowest: Bound = -math.inf, highest: Bound = math.inf) -> Studentised:
        """Return the estimates with intervals that contain all k true values together in 95 % of samples.

        They belong to the p-values of `adjusted`: an interval excludes 0 exactly if its p is below 0.05.
        An open end stays open.

        Args:
            lowest: the smallest possible true value.
            highest: the largest possible true value.
        """
        if np.isnan(self._critical_t):
            return self
        reach = self._critical_t * self.error
        low = np.where(np.isneginf(self.low), self.low, self.value - reach)
        high = np.where(np.isposinf(self.high), self.high, self.value + reach)
        return replace(self, low=np.clip(low, lowest, highest), high=np.clip(high, lowest, highest))

    def adjusted(self) -> Floats:
        """Return two-sided p-values adjusted for k tests, [k]; NaN without an interval or a resample.

        The adjustment is the single-step method of Westfall & Young (1993): the share of resamples in which the
        largest |t| of all estimates reaches that of the estimate.
        """
        largest = np.sort(self._largest_t)
        t = np.abs(self.value / self.error)
        # Equal statistics can differ by rounding.
        reached = len(largest) - np.searchsorted(largest, t * (1 - _ROUNDING))
        return np.where(np.isfinite(t) & (len(largest) > 0), (1 + reached) / (1 + len(largest)), np.nan)

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
        place = math.ceil(0.05 * (1 + len(self.null_t))) - 1
        return float(np.sort(self._largest_t)[-place]) * (1 + _ROUNDING) if place > 0 else math.nan

    @property
    def _largest_t(self) -> Floats:
        """The largest |t| of the estimates that have an interval, in each resample, [B]."""
        largest: Floats = np.abs(self.null_t[:, np.isfinite(self.error)]).max(axis=1, initial=0)
        return largest


def bootstrap_weights(groups: int, resamples: int = RESAMPLES, seed: int = 0) -> Iterator[Floats]:
    """Yield how often each resample contains each instruction, in blocks of [resamples, groups].

    Equal arguments give equal resamples.
    """
    counts, block = _drawn(groups, resamples, seed), _resamples_in_block(groups)
    for start in range(0, resamples, block):
        yield counts[start : start + block].astype(np.float64)


@lru_cache(maxsize=1)
def _drawn(groups: int, resamples: int, seed: int) -> NDArray[np.uint8]:
    """Return how often each resample contains each instruction, [resamples, groups]; a study asks many times.

    That one resample contains an instruction 256 times has a probability below 10^-500.
    """
    generator, block = np.random.default_rng(seed), _resamples_in_block(groups)
    counts = np.empty((resamples, groups), dtype=np.uint8)
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = generator.integers(groups, size=(rows, groups)) + groups * np.arange(rows)[:, None]
        of_block = np.bincount(drawn.ravel(), minlength=rows * groups)
        counts[start : start + rows] = of_block.reshape(rows, groups)
    return counts


def _resamples_in_block(groups: int) -> int:
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
    value, shares, given = estimates.value, estimates.shares, estimates.units
    error, varies = standard_errors(estimates, lowest, highest)
    usable = np.isfinite(error)
    squares = shares**2
    total = squares.sum(axis=0)
    units = np.where(usable, given, MIN_INSTRUCTIONS)
    null_t = np.empty((resamples, len(value)))
    done = 0
    with np.errstate(invalid="ignore", divide="ignore"):
        for weights in bootstrap_weights(len(shares), resamples, seed):
            change = weights @ shares
            variance = np.maximum(weights @ squares - change**2 / units, 0)
            variance = (units * variance + total) / (units + 1) * units / (units - 1)
            null_t[done : done + len(weights)] = change / np.sqrt(variance)
            done += len(weights)
    low = high = np.full(len(value), np.nan)
    if usable.any() and resamples:
        null_t[:, ~usable] = 0
        if symmetric:
            upper = np.quantile(np.abs(null_t), 0.95, axis=0)
            lower = -upper
        else:
            lower, upper = np.quantile(null_t, [0.025, 0.975], axis=0)
        low = np.clip(value - upper * error, lowest, highest)
        high = np.clip(value - lower * error, lowest, highest)
    return Studentised(value, low, high, error, null_t, given, varies)


def standard_errors(
    estimates: Contributions, lowest: Bound = -math.inf, highest: Bound = math.inf
) -> tuple[Floats, Flags]:
    """Return the standard error of each estimate, NaN if it has no interval; and whether it varies, [k] each.

    Args:
        estimates, lowest, highest: as for `studentise`.
    """
    value, units = estimates.value, estimates.units
    total = (estimates.shares**2).sum(axis=0)
    # Rounding errors of a constant column do not count as variance.
    varies = total > 1e-24 * np.maximum(1, value**2)
    usable = (units >= MIN_INSTRUCTIONS) & varies & np.isfinite(value)
    units = np.where(usable, units, MIN_INSTRUCTIONS)
    error = np.sqrt(total * units / (units - 1))
    far = np.maximum(value - lowest, highest - value) / (units + 1)
    usable &= ~np.isfinite(far) | (1.96 * error >= LEAST_REACH * far)
    return np.where(usable, error, np.nan), varies


def cell_means(values: Floats, cell: Integers, cells: int) -> Floats:
    """Return the mean of each column in each cell, [cells, k]; NaN for a cell without rows.

    Args:
        values: the columns, [m, k].
        cell: the cell of each row, [m].
        cells: number of cells.
    """
    totals = np.zeros((cells, values.shape[1]))
    np.add.at(totals, cell, values)
    with np.errstate(invalid="ignore"):
        means: Floats = totals / np.bincount(cell, minlength=cells)[:, None]
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
    weights = np.ones(len(values)) if weights is None else weights
    weights = weights[:, None] if weights.ndim == 1 else weights
    with np.errstate(invalid="ignore", divide="ignore"):
        shares_of_rows = weights / weights.sum(axis=0)
        value = (weights * values).sum(axis=0) / weights.sum(axis=0)
    shares = np.zeros((groups, len(value)))
    np.add.at(shares, group, shares_of_rows * (values - value))
    present = np.zeros((groups, weights.shape[1]), dtype=np.bool_)
    np.logical_or.at(present, group, weights > 0)
    units = np.broadcast_to(present.sum(axis=0).astype(np.float64), value.shape)
    return Contributions(value, np.nan_to_num(shares), units)


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
    estimates = averages(values[:, None], numbered, len(present), weights)
    return studentise(estimates, lowest, highest, symmetric, resamples, seed).estimates()[0]
