"""Intervals and tests from the jackknife of instructions.

The covariance of estimates is the sum of the products of their changes without each instruction, and an
interval has the quantiles of Student's t (the cluster estimator CR3 of Bell & McCaffrey 2002).

Correlations, kappa, alpha, shares in order and mean errors are treated on the scale of the arcsine, with one
degree of freedom less than instructions. Where few instructions disagree, the variance on this scale hardly
depends on their number. On Fisher's z = atanh, a sample with more of them has a smaller variance, and its
interval does not reach far enough upwards. The arcsine of perfect agreement is finite, so a single instruction
that disagrees is enough for an interval. It is undefined if the statistic is the same without each of the
instructions: eight equal labels do not show that the next one is equal. Differences of two judges are not
transformed.

If few instructions carry the variance, the jackknife is often too small. Therefore further instructions are
added to it, each of which changes the statistic as much as the one that changes it most: two for correlations,
kappa and alpha (`FURTHER_OF_COEFFICIENTS`), one for differences (`FURTHER_OF_DIFFERENCES`), and none for means
over instructions or rows: shares in order and mean errors. `benchmarks/agreement_intervals.py` derives these
numbers; it compares the intervals with Fisher's z, fewer degrees of freedom, BCa and the percentile bootstrap.

`benchmarks/coverage.py` and `benchmarks/preference_coverage.py` measure how often the intervals contain the
true value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.statistics import Estimate, why_undefined
from localjudge.statistics.resampling import MIN_INSTRUCTIONS, RESAMPLES, Studentised

PARTS = 500
"""Largest number of parts of the instructions that the jackknife of a statistic leaves out."""

_DIGITS = 12

LEAST_FOR_AGREEMENT = 8
"""Number of instructions that the interval of a correlation, kappa, alpha or share in order requires.

`benchmarks/agreement_intervals.py` measures the intervals from this number on."""

FURTHER_OF_COEFFICIENTS = 2
"""Number of further instructions in the variance of a correlation, kappa or alpha, each of which changes it as
much as the one that changes it most."""

FURTHER_OF_DIFFERENCES = 1
"""The same for a difference of two judges."""


@dataclass(frozen=True, slots=True)
class JackknifeEstimates:
    """k estimates with their covariance from the jackknife.

    `units` is the number of instructions that contribute to each estimate. There is no interval if an estimate
    is not finite, has no variance, or depends on fewer than five instructions. `open_below` and
    `open_above` tell which estimates the data do not bound on that side; their intervals have no end there.
    """

    value: Floats  # [k]
    covariance: Floats  # [k, k]
    units: Floats  # [k]
    open_below: Flags | bool = False  # [k]
    open_above: Flags | bool = False  # [k]

    def estimates(self) -> list[Estimate]:
        """Return the estimates with their intervals."""
        return self.tested(resamples=0).estimates()

    def tested(self, resamples: int = RESAMPLES, seed: int = 0) -> Studentised:
        """Return the estimates with their intervals, and draws of their t statistics if all are 0.

        Args:
            resamples: number of draws.
            seed: seed of the draws.
        """
        from scipy.special import stdtrit

        variance = np.diag(self.covariance)  # [k]
        varies = variance > 1e-24 * np.maximum(1, self.value**2)
        has_interval = (self.units >= MIN_INSTRUCTIONS) & varies & np.isfinite(self.value)
        error = np.sqrt(np.where(has_interval, variance, np.nan))
        freedom = np.where(has_interval, self.units - 1, 1)
        reach = stdtrit(freedom, 0.975) * error
        if resamples:
            null_t = _null_t_statistics(self.covariance, error, freedom=freedom, resamples=resamples, seed=seed)
        else:
            null_t = np.zeros((0, len(error)))
        low = np.where(has_interval & self.open_below, -np.inf, self.value - reach)
        high = np.where(has_interval & self.open_above, np.inf, self.value + reach)
        return Studentised(
            value=self.value,
            low=low,
            high=high,
            error=error,
            null_t=null_t,
            units=self.units,
            varies=varies,
        )


def _null_t_statistics(covariance: Floats, error: Floats, freedom: Floats, resamples: int, seed: int) -> Floats:
    """Draw t statistics of k estimates that are all 0, [resamples, k].

    They have a multivariate t distribution with the correlations of the estimates (Hothorn, Bretz & Westfall
    2008, doi:10.1002/bimj.200810425).

    Args:
        covariance: the covariance of the estimates, [k, k].
        error: their standard errors, [k]; NaN for an estimate without an interval, whose statistics are 0.
        freedom: their degrees of freedom, [k].
        resamples: number of draws.
        seed: seed of the draws.
    """
    from scipy.special import chdtri

    has_error = np.isfinite(error)
    scale = np.where(has_error, 1 / np.where(has_error, error, 1), 0)  # [k]
    correlation = covariance * scale * scale[:, None]
    eigenvalues, eigenvectors = np.linalg.eigh(correlation)
    root = eigenvectors * np.sqrt(np.maximum(eigenvalues, 0))  # [k, k]; root @ root.T is the correlation
    generator = np.random.default_rng(seed)
    normal = generator.standard_normal((resamples, len(error))) @ root.T
    # One chi-squared number for each draw, whose quantile depends on the degrees of freedom.
    degrees, degree_index = np.unique(freedom, return_inverse=True)
    probability = 1 - generator.random((resamples, 1))
    variance = chdtri(degrees, probability) / degrees  # [resamples, degrees]
    null_t: Floats = normal / np.sqrt(variance)[:, degree_index]
    return null_t


def left_out(group: Integers) -> Flags:
    """Return which rows are left without each instruction, or part of the instructions, [parts, m].

    Args:
        group: the instruction of each row, [m].
    """
    present, numbered = np.unique(group, return_inverse=True)
    parts = np.arange(min(len(present), PARTS))
    is_kept: Flags = numbered % PARTS != parts[:, None]
    return is_kept


def jackknife_interval(value: float, without: Floats, tests: int = 1, further: int = 0) -> Floats:
    """Return both ends of a statistic's interval, on a scale where it is symmetric; NaN if there is none.

    Args:
        value: the statistic of the sample.
        without: the statistic without each instruction (or each part of the instructions), [G].
        tests: number of intervals that cover their true values together in 95 % of samples (Bonferroni).
        further: number of further instructions in the variance, each of which changes the statistic as much as
            the one that changes it most.
    """
    from scipy.special import stdtrit

    parts = len(without)
    with np.errstate(invalid="ignore"):
        squares = (without - np.mean(without)) ** 2  # [G]
    total = squares.sum()
    if parts < LEAST_FOR_AGREEMENT or not np.isfinite(value + total) or total < 1e-24:
        return np.full(2, np.nan)
    variance = (total + further * squares.max()) * (parts - 1) / parts
    reach = stdtrit(parts - 1, 1 - 0.025 / tests) * np.sqrt(variance)
    return np.array([value - reach, value + reach])


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A statistic of the sample, and without each instruction or each part of the instructions, [G]."""

    value: float
    without: Floats

    def minus(self, other: LeftOut) -> LeftOut:
        """Return the difference from another statistic of the same instructions."""
        return LeftOut(self.value - other.value, self.without - other.without)

    def difference(self, reach: float = 1.0, tests: int = 1) -> Estimate:
        """Return a difference of at most `reach` with its interval; `tests` as for `jackknife_interval`."""
        ends = jackknife_interval(self.value, self.without, tests=tests, further=FURTHER_OF_DIFFERENCES)
        low, high = np.clip(ends, -reach, reach)
        return Estimate.from_floats(self.value, low=low, high=high, why=why_open(self.value, self.without))


def agreement_estimate(
    value: float,
    without: Floats,
    lowest: float = -1.0,
    highest: float = 1.0,
    tests: int = 1,
    further: int = FURTHER_OF_COEFFICIENTS,
) -> Estimate:
    """Return a statistic of agreement, `lowest` to `highest`, with its interval on the scale of the arcsine.

    Args:
        value: the statistic of the sample.
        without: the statistic without each instruction (or each part of the instructions), [G]; NaN if it is
            undefined.
        lowest: the smallest possible value.
        highest: the largest possible value.
        tests, further: as for `jackknife_interval`.
    """
    middle = (highest + lowest) / 2
    half = (highest - lowest) / 2
    # A rounding error next to 1 is far from it on this scale.
    fractions = ((np.append(value, without) - middle) / half).round(_DIGITS)
    angles = np.arcsin(np.clip(fractions, -1, 1))  # [1 + G]
    ends = jackknife_interval(angles[0], angles[1:], tests=tests, further=further)
    ends = np.clip(ends, -np.pi / 2, np.pi / 2)
    low, high = middle + half * np.sin(ends)
    why = ""
    if not np.isfinite(low):
        why = why_open(value, without)
    return Estimate.from_floats(value, low=low, high=high, why=why)


def why_open(value: float, without: Floats) -> str:
    """Return why a statistic has no interval."""
    parts = len(without)
    if parts >= LEAST_FOR_AGREEMENT and np.isfinite(value) and np.isnan(without).any():
        return "it is not defined without one of the instructions"
    varies = bool(np.ptp(without) > 1e-12)
    return why_undefined(value, parts, least=LEAST_FOR_AGREEMENT, varies=varies)
