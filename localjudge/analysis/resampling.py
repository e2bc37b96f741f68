"""Intervals and tests by resampling instructions: how far a figure moves when others had been asked.

Two kinds of interval, both at 95 %, both from the same resamples:

* for whatever is a mean of the instructions' contributions (means, differences, shares, prediction-powered
  means): the bootstrap-t (Efron & Tibshirani 1993, 12.5). In small samples at the edge of the scale resamples
  tend to be constant, so each resample's variance is taken as if it had one more instruction, of the sample's
  own variance; without that, the interval fails where nine of ten scores are the highest. Its tails may differ
  for a mean, which leans away from the edge of the scale; a difference leans to neither side, and its interval
  is symmetric (Hall 1988, doi:10.1111/j.2517-6161.1988.tb01707.x).
* for correlations and kappa: the expanded percentile interval, whose tails are those of Student's t (Hesterberg
  2015, doi:10.1080/00031305.2015.1089789).

`benchmarks/coverage.py` measures how often they hold the truth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from localjudge.analysis.interval import Estimate
from localjudge.analysis.scores import Floats, Integers

RESAMPLES = 1000
FEWEST = 5
"""Instructions that an interval needs."""

_AT_ONCE = 4_000_000
"""Numbers of a block of resamples, at most: 32 MB."""


@dataclass(frozen=True, slots=True)
class Contributions:
    """k estimates as sums of what each of G instructions adds: near the estimate, a resample gives
    `value + weights @ shares`. Each column of `shares` sums to 0; `units` counts the instructions behind it."""

    value: Floats  # [k]
    shares: Floats  # [G, k]
    units: Floats  # [k]

    def contrast(self, first: Integers, second: Integers) -> Contributions:
        """The differences of estimates: `first` less `second`, both [pairs]."""
        return Contributions(
            self.value[first] - self.value[second],
            self.shares[:, first] - self.shares[:, second],
            np.minimum(self.units[first], self.units[second]),
        )


@dataclass(frozen=True, slots=True)
class Studentised:
    """k estimates with their intervals, each's distance from 0 in standard errors, and what the resamples gave
    for that distance when it is 0 in truth. NaN where there is no interval."""

    value: Floats  # [k]
    low: Floats  # [k]
    high: Floats  # [k]
    t: Floats  # [k]
    drawn: Floats  # [B, k]

    def estimates(self) -> list[Estimate]:
        return [Estimate.of(*ends) for ends in zip(self.value, self.low, self.high, strict=True)]

    def adjusted(self) -> Floats:
        """Two-sided p-values that hold for all k together: step-down maxima of Romano & Wolf (2005,
        doi:10.1198/016214504000000539), [k]."""
        result = np.full(len(self.t), np.nan)
        left = np.flatnonzero(np.isfinite(self.t))
        left = left[np.argsort(-np.abs(self.t[left]), kind="stable")]
        if not len(left):
            return result
        drawn = np.abs(self.drawn[:, left])
        # The largest among each estimate and those below it.
        highest = np.maximum.accumulate(drawn[:, ::-1], axis=1)[:, ::-1]
        reached = (highest >= np.abs(self.t[left])).sum(axis=0)
        result[left] = np.maximum.accumulate((1 + reached) / (1 + len(drawn)))
        return result


def draws(groups: int, resamples: int = RESAMPLES, seed: int = 0) -> Iterator[Floats]:
    """How often each instruction is drawn: blocks of [resamples, groups]. The same for the same arguments."""
    generator = np.random.default_rng(seed)
    block = max(1, _AT_ONCE // max(groups, 1))
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = generator.integers(groups, size=(rows, groups)) + groups * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * groups)
        yield counts.reshape(rows, groups).astype(np.float64)


def studentise(
    estimates: Contributions,
    lowest: float = -math.inf,
    highest: float = math.inf,
    symmetric: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Studentised:
    """Intervals by the bootstrap-t.

    Args:
        estimates: what to find intervals for.
        lowest: what the true value cannot lie below; `highest`, above.
        symmetric: for differences, equally far to both sides.
        resamples: how many.
        seed: of the resamples.
    """
    value, shares, units = estimates.value, estimates.shares, estimates.units
    squares = shares**2
    spread = squares.sum(axis=0)
    # What rounding leaves of a constant column is no spread.
    usable = (units >= FEWEST) & (spread > 1e-24 * np.maximum(1, value**2)) & np.isfinite(value)
    units = np.where(usable, units, FEWEST)
    error = np.sqrt(spread * units / (units - 1))
    drawn = np.empty((resamples, len(value)))
    done = 0
    with np.errstate(invalid="ignore", divide="ignore"):
        for weights in draws(len(shares), resamples, seed):
            moved = weights @ shares
            variance = np.maximum(weights @ squares - moved**2 / units, 0)
            variance = (units * variance + spread) / (units + 1) * units / (units - 1)
            drawn[done : done + len(weights)] = moved / np.sqrt(variance)
            done += len(weights)
        t = np.where(usable, value / error, np.nan)
    low = high = np.full(len(value), np.nan)
    if usable.any() and resamples:
        drawn[:, ~usable] = 0
        if symmetric:
            upper = np.quantile(np.abs(drawn), 0.95, axis=0)
            lower = -upper
        else:
            lower, upper = np.quantile(drawn, [0.025, 0.975], axis=0)
        low = np.where(usable, np.clip(value - upper * error, lowest, highest), np.nan)
        high = np.where(usable, np.clip(value - lower * error, lowest, highest), np.nan)
    return Studentised(value, low, high, t, drawn)


def expanded_percentile(value: float, resampled: Floats, groups: int) -> Estimate:
    """The interval of a statistic from its values in the resamples [B], of which NaN are left out.

    Undefined under five instructions, or where fewer than nine in ten resamples give the statistic a value.
    """
    from scipy.stats import norm, t

    kept = resampled[np.isfinite(resampled)]
    if groups < FEWEST or len(kept) < 0.9 * len(resampled):
        return Estimate.of(value)
    tails = norm.cdf(t.ppf([0.025, 0.975], groups - 1) * math.sqrt(groups / (groups - 1)))
    low, high = np.quantile(kept, tails)
    return Estimate.of(value, min(low, value), max(high, value))


def averages(values: Floats, group: Integers, groups: int) -> Contributions:
    """The means of k columns of rows, as contributions of their instructions.

    Args:
        values: [m, k].
        group: each row's instruction, [m].
        groups: how many instructions there are, with rows or without.
    """
    rows = len(values)
    present = np.bincount(group, minlength=groups)
    value = values.mean(axis=0) if rows else np.full(values.shape[1], np.nan)
    shares = np.zeros((groups, values.shape[1]))
    np.add.at(shares, group, (values - value) / max(rows, 1))
    return Contributions(value, shares, np.full(len(value), float((present > 0).sum())))
