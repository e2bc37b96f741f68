"""Intervals and tests from the jackknife of instructions, for preferences.

The variance of an estimate is the sum of the squared changes by leaving out each instruction, and its interval
has the quantiles of Student's t (the cluster estimator CR3 of Bell & McCaffrey 2002). A share is treated on the
scale of its log-odds, so that its interval stays between 0 and 1 and is defined if a system always wins: near
that end the bootstrap-t of `localjudge.analysis.resampling` is several times too wide or undefined, as
`benchmarks/coverage.py` shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localjudge.analysis.interval import Estimate
from localjudge.analysis.resampling import MIN_INSTRUCTIONS, RESAMPLES, Contributions, Studentised
from localjudge.analysis.scores import Floats, Integers

LEAST_INFORMATION = 0.002
"""Information of a preference, as a share of that of 50 %, below which it counts as certain: more than 99.95 %.

A certain share gets one more instruction that is a tie, and its log-odds are finite."""


def jackknifed(estimates: Contributions, resamples: int = RESAMPLES, seed: int = 0) -> Studentised:
    """Return the estimates with jackknife intervals, and draws of their t statistics if all are 0.

    The draws have a multivariate t distribution with the correlations of the estimates (Hothorn, Bretz &
    Westfall 2008, doi:10.1002/bimj.200810425).

    Args:
        estimates: the estimates; `shares` has the changes by leaving out each instruction.
        resamples: number of draws.
        seed: seed of the draws.
    """
    from scipy.stats import chi2, t

    value, shares = estimates.value, estimates.shares
    total = (shares**2).sum(axis=0)
    usable = (
        (estimates.units >= MIN_INSTRUCTIONS) & (total > 1e-24 * np.maximum(1, value**2)) & np.isfinite(value)
    )
    error = np.where(usable, np.sqrt(np.where(usable, total, 1)), np.nan)
    freedom = np.where(usable, estimates.units - 1, 1)
    reach = t.ppf(0.975, freedom) * error
    scaled = np.where(usable, shares / error, 0)
    eigenvalues, vectors = np.linalg.eigh(scaled.T @ scaled)
    generator = np.random.default_rng(seed)
    null_t = (
        generator.standard_normal((resamples, len(value))) @ (vectors * np.sqrt(np.maximum(eigenvalues, 0))).T
    )
    quantile = generator.random((resamples, 1))
    degrees, place = np.unique(freedom, return_inverse=True)
    null_t /= np.sqrt(chi2.ppf(quantile, degrees) / degrees)[:, place]
    return Studentised(value, value - reach, value + reach, value / error, null_t)


@dataclass(frozen=True, slots=True)
class Shares:
    """k shares, means of values from 0 to 1, and their log-odds; NaN for a share of nothing."""

    value: Floats  # [k]
    rows: Integers  # [k]: the number of values
    log_odds: Contributions

    @classmethod
    def of(cls, values: Floats, part: Integers, parts: int, group: Integers, groups: int) -> Shares:
        """Return the mean of each part of the values.

        Args:
            values: the values, [m].
            part: the part of each value, [m].
            parts: k.
            group: the instruction of each value, [m].
            groups: number of instructions.
        """
        cell, size = group.astype(np.int64) * parts + part, groups * parts
        total = np.bincount(cell, values, minlength=size).reshape(groups, parts)
        rows = np.bincount(cell, minlength=size).reshape(groups, parts)
        all_rows = rows.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = total.sum(axis=0) / all_rows
            units = all_rows**2 / (rows**2).sum(axis=0)
            certain = 4 * value * (1 - value) < LEAST_INFORMATION
            extra = np.where(certain, 1 / units, 0)
            centre = (value + extra / 2) / (1 + extra)
            weight = rows / (all_rows * (1 + extra))
            # The change by leaving out one instruction; an only instruction has no interval anyway.
            shares = (total / (all_rows * (1 + extra)) - weight * centre) / np.maximum(1 - weight, 1e-6)
            last = (0.5 - centre) * extra
            slope = centre * (1 - centre)
            log_odds = np.log(centre / (1 - centre))
            shares = np.nan_to_num(np.vstack([shares, last]) / slope)
        return cls(value, all_rows, Contributions(log_odds, shares, np.nan_to_num(units) + certain + 1e-6))

    def estimates(self) -> list[Estimate]:
        """Return the shares with their intervals."""
        found = jackknifed(self.log_odds, resamples=1)
        low, high = 1 / (1 + np.exp(-found.low)), 1 / (1 + np.exp(-found.high))
        ends = zip(self.value, np.minimum(low, self.value), np.maximum(high, self.value), strict=True)
        return [Estimate.of(*each) for each in ends]
