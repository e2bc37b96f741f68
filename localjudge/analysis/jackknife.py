"""Intervals and tests from the jackknife of instructions, for preferences.

The covariance of estimates is the sum of the products of their changes without each instruction, and an
interval has the quantiles of Student's t (the cluster estimator CR3 of Bell & McCaffrey 2002). A share is
treated on the scale of its log-odds, so that its interval stays between 0 and 1 and is defined if a system
always wins. Near that end the bootstrap-t of `localjudge.analysis.resampling` is too wide or undefined: for the
log-odds of 29 wins in 30 it gives -2.6 to 9.3, the jackknife 1.2 to 5.5, and the exact interval is 1.6 to 7.1.
`benchmarks/preference_coverage.py` measures how often the intervals contain the true value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localjudge.analysis.interval import Estimate
from localjudge.analysis.resampling import MIN_INSTRUCTIONS, RESAMPLES, Studentised
from localjudge.analysis.scores import Floats, Integers

LEAST_INFORMATION = 0.002
"""Information of a preference, as a share of that of 50 %, below which it counts as certain: more than 99.95 %.

A certain share gets one more instruction that is a tie, and its log-odds are finite."""


@dataclass(frozen=True, slots=True)
class JackknifeEstimates:
    """k estimates with their covariance from the jackknife.

    `units` is the number of instructions that contribute to each estimate. There is no interval if an estimate
    is not finite, has no variance, or depends on fewer than five instructions.
    """

    value: Floats  # [k]
    covariance: Floats  # [k, k]
    units: Floats  # [k]

    def estimates(self) -> list[Estimate]:
        """Return the estimates with their intervals."""
        return self.tested(resamples=0).estimates()

    def tested(self, resamples: int = RESAMPLES, seed: int = 0) -> Studentised:
        """Return the estimates with their intervals, and draws of their t statistics if all are 0.

        The draws have a multivariate t distribution with the correlations of the estimates (Hothorn, Bretz &
        Westfall 2008, doi:10.1002/bimj.200810425).

        Args:
            resamples: number of draws.
            seed: seed of the draws.
        """
        from scipy.stats import chi2, t

        variance = np.diag(self.covariance)
        usable = (
            (self.units >= MIN_INSTRUCTIONS)
            & (variance > 1e-24 * np.maximum(1, self.value**2))
            & np.isfinite(self.value)
        )
        error = np.sqrt(np.where(usable, variance, np.nan))
        freedom = np.where(usable, self.units - 1, 1)
        reach = t.ppf(0.975, freedom) * error
        null_t = np.zeros((resamples, len(error)))
        if resamples:
            scale = np.where(usable, 1 / np.where(usable, error, 1), 0)
            eigenvalues, vectors = np.linalg.eigh(self.covariance * scale * scale[:, None])
            root = vectors * np.sqrt(np.maximum(eigenvalues, 0))
            generator = np.random.default_rng(seed)
            null_t = generator.standard_normal(null_t.shape) @ root.T
            degrees, place = np.unique(freedom, return_inverse=True)
            spread = chi2.ppf(generator.random((resamples, 1)), degrees) / degrees
            null_t /= np.sqrt(spread)[:, place]
        return Studentised(self.value, self.value - reach, self.value + reach, self.value / error, null_t)


@dataclass(frozen=True, slots=True)
class Shares:
    """k shares, means of values from 0 to 1, and their log-odds; NaN for a share of nothing."""

    value: Floats  # [k]
    rows: Integers  # [k]: the number of values
    log_odds: JackknifeEstimates

    @classmethod
    def of(cls, values: Floats, part: Integers, parts: int, group: Integers) -> Shares:
        """Return the mean of each part of the values.

        Args:
            values: the values, [m].
            part: the part of each value, [m].
            parts: k.
            group: the instruction of each value, [m].
        """
        from scipy.sparse import csr_array

        # A cell has the values of one part and one instruction.
        cells, cell = np.unique(group.astype(np.int64) * parts + part, return_inverse=True)
        of_part, of_group = cells % parts, cells // parts
        total, rows = np.bincount(cell, values, minlength=len(cells)), np.bincount(cell, minlength=len(cells))
        all_rows = np.bincount(part, minlength=parts)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = np.bincount(part, values, minlength=parts) / all_rows
            units = all_rows**2 / np.bincount(of_part, rows.astype(np.float64) ** 2, minlength=parts)
            certain = 4 * value * (1 - value) < LEAST_INFORMATION
            extra = np.where(certain, 1 / units, 0)
            centre = (value + extra / 2) / (1 + extra)
            log_odds, slope = np.log(centre / (1 - centre)), centre * (1 - centre)
            last = np.nan_to_num((0.5 - centre) * extra / slope)
        weight = rows / (all_rows * (1 + extra))[of_part]
        change = weight * (total / rows - centre[of_part]) / slope[of_part]
        change /= np.maximum(1 - weight, 1e-6)  # the jackknife; an only instruction has no interval anyway
        changes = csr_array((change, (of_group, of_part)), shape=(int(group.max(initial=0)) + 1, parts))
        covariance = (changes.T @ changes).toarray() + np.outer(last, last)
        # Rounding does not take away an instruction.
        units = np.nan_to_num(units) + certain + 1e-6
        return cls(value, all_rows, JackknifeEstimates(log_odds, covariance, units))

    def estimates(self) -> list[Estimate]:
        """Return the shares with their intervals."""
        found = self.log_odds.tested(resamples=0)
        low, high = 1 / (1 + np.exp(-found.low)), 1 / (1 + np.exp(-found.high))
        ends = zip(self.value, np.minimum(low, self.value), np.maximum(high, self.value), strict=True)
        return [Estimate.of(*each) for each in ends]
