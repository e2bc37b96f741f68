"""Intervals and tests from the jackknife of instructions, and exact intervals of shares.

The covariance of estimates is the sum of the products of their changes without each instruction, and an
interval has the quantiles of Student's t (the cluster estimator CR3 of Bell & McCaffrey 2002). A share is
treated on the scale of its log-odds, so that its interval stays between 0 and 1 and is defined if a system
always wins. Near that end the bootstrap-t of `resampling` is too wide or undefined: for the
log-odds of 29 wins in 30 it gives -2.6 to 9.3, the jackknife 1.2 to 5.5, and the exact interval is 1.6 to 7.1.

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

import math
from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.statistics import UNDEFINED, Estimate, why_undefined
from localjudge.statistics.resampling import MIN_INSTRUCTIONS, RESAMPLES, Studentised, averages

CERTAIN_BELOW = 0.002
"""Information of a preference, as a share of that of 50 %, below which it counts as certain: more than 99.95 %.

A certain share gets one more instruction that is a tie, and its log-odds are finite."""

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

        The draws have a multivariate t distribution with the correlations of the estimates (Hothorn, Bretz &
        Westfall 2008, doi:10.1002/bimj.200810425).

        Args:
            resamples: number of draws.
            seed: seed of the draws.
        """
        from scipy.special import chdtri, stdtrit

        variance = np.diag(self.covariance)
        varies = variance > 1e-24 * np.maximum(1, self.value**2)
        usable = (self.units >= MIN_INSTRUCTIONS) & varies & np.isfinite(self.value)
        error = np.sqrt(np.where(usable, variance, np.nan))
        freedom = np.where(usable, self.units - 1, 1)
        reach = stdtrit(freedom, 0.975) * error
        null_t = np.zeros((resamples, len(error)))
        if resamples:
            scale = np.where(usable, 1 / np.where(usable, error, 1), 0)
            eigenvalues, vectors = np.linalg.eigh(self.covariance * scale * scale[:, None])
            root = vectors * np.sqrt(np.maximum(eigenvalues, 0))
            generator = np.random.default_rng(seed)
            null_t = generator.standard_normal(null_t.shape) @ root.T
            degrees, place = np.unique(freedom, return_inverse=True)
            spread = chdtri(degrees, 1 - generator.random((resamples, 1))) / degrees
            null_t /= np.sqrt(spread)[:, place]
        low = np.where(usable & self.open_below, -np.inf, self.value - reach)
        high = np.where(usable & self.open_above, np.inf, self.value + reach)
        return Studentised(self.value, low, high, error, null_t, self.units, varies)


@dataclass(frozen=True, slots=True)
class Shares:
    """k shares, means of values from 0 to 1, and their log-odds; NaN for a share of nothing."""

    value: Floats  # [k]
    rows: Integers  # [k]: the number of values
    log_odds: JackknifeEstimates

    @classmethod
    def from_values(cls, values: Floats, part: Integers, parts: int, group: Integers) -> Shares:
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
            certain = 4 * value * (1 - value) < CERTAIN_BELOW
            extra = np.where(certain, 1 / units, 0)
            centre = (value + extra / 2) / (1 + extra)
            log_odds, slope = np.log(centre / (1 - centre)), centre * (1 - centre)
            last = np.nan_to_num((0.5 - centre) * extra / slope)
        weight = rows / (all_rows * (1 + extra))[of_part]
        change = weight * (total / rows - centre[of_part]) / slope[of_part]
        change /= np.maximum(1 - weight, 1e-6)  # the jackknife; a single instruction has no interval anyway
        changes = csr_array((change, (of_group, of_part)), shape=(int(group.max(initial=0)) + 1, parts))
        covariance = (changes.T @ changes).toarray() + np.outer(last, last)
        # Rounding does not take away an instruction.
        units = np.nan_to_num(units) + certain + 1e-6
        return cls(value, all_rows, JackknifeEstimates(log_odds, covariance, units))

    def estimates(self) -> list[Estimate]:
        """Return the shares with their intervals."""
        tested = self.log_odds.tested(resamples=0)
        low, high = (1 / (1 + np.exp(-end)) for end in (tested.low, tested.high))
        ends = np.minimum(low, self.value), np.maximum(high, self.value)
        return [*map(Estimate.from_floats, self.value, *ends, tested.why)]


def left_out(group: Integers) -> Flags:
    """Return which rows are left without each instruction, or part of the instructions, [parts, m].

    Args:
        group: the instruction of each row, [m].
    """
    present, numbered = np.unique(group, return_inverse=True)
    kept: Flags = numbered % PARTS != np.arange(min(len(present), PARTS))[:, None]
    return kept


def jackknife_interval(value: float, left_out: Floats, tests: int = 1, further: int = 0) -> Floats:
    """Return both ends of a statistic's interval, on a scale where it is symmetric; NaN if there is none.

    Args:
        value: the statistic of the sample.
        left_out: the statistic without each instruction (or each part of the instructions), [G].
        tests: number of intervals that hold together in 95 % of samples (Bonferroni).
        further: number of further instructions in the variance, each of which changes the statistic as much as
            the one that changes it most.
    """
    from scipy.special import stdtrit

    parts = len(left_out)
    with np.errstate(invalid="ignore"):
        squares = (left_out - np.mean(left_out)) ** 2
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
        ends = jackknife_interval(self.value, self.without, tests, FURTHER_OF_DIFFERENCES)
        low, high = np.clip(ends, -reach, reach)
        return Estimate.from_floats(self.value, low, high, why_open(self.value, self.without))


def agreement_estimate(
    value: float,
    left_out: Floats,
    lowest: float = -1.0,
    highest: float = 1.0,
    tests: int = 1,
    further: int = FURTHER_OF_COEFFICIENTS,
) -> Estimate:
    """Return a statistic of agreement, `lowest` to `highest`, with its interval on the scale of the arcsine.

    Args:
        value: the statistic of the sample.
        left_out: the statistic without each instruction (or each part of the instructions), [G]; NaN if it is
            undefined.
        lowest: the smallest possible value.
        highest: the largest possible value.
        tests, further: as for `jackknife_interval`.
    """
    middle, half = (highest + lowest) / 2, (highest - lowest) / 2
    # A rounding error next to 1 is far from it on this scale.
    fraction = ((np.append(value, left_out) - middle) / half).round(_DIGITS)
    angle = np.arcsin(np.clip(fraction, -1, 1))
    ends = jackknife_interval(angle[0], angle[1:], tests, further)
    low, high = middle + half * np.sin(np.clip(ends, -np.pi / 2, np.pi / 2))
    why = "" if np.isfinite(low) else why_open(value, left_out)
    return Estimate.from_floats(value, low, high, why)


def why_open(value: float, left_out: Floats) -> str:
    """Return why a statistic has no interval."""
    if len(left_out) >= LEAST_FOR_AGREEMENT and np.isfinite(value) and np.isnan(left_out).any():
        return "it is not defined without one of the instructions"
    return why_undefined(value, len(left_out), LEAST_FOR_AGREEMENT, bool(np.ptp(left_out) > 1e-12))


def exact_share(held: Flags, group: Integers, weights: Floats | None = None) -> Estimate:
    """Return the share of rows where something holds, with the exact interval of Clopper & Pearson (1934).

    If instructions have several rows, the interval is that of the effective number of rows, which has the
    variance between instructions (Korn & Graubard 1998), by the jackknife if their weights differ. A share of 0
    or 1 has no variance; then the rows of an instruction count as one, and those with more weight for less than
    one (Kish's effective number).

    Args:
        held: a mask of the rows, [m].
        group: the instruction of each row, [m].
        weights: the weight of each row, such as 1 / its chance to be drawn, [m]; None for equal ones.

    Returns:
        The share; undefined without rows.
    """
    from scipy.special import betaincinv

    if not len(held):
        return UNDEFINED
    share, effective = effective_rows(held, group, weights)
    if (groups := len(np.unique(group))) < MIN_INSTRUCTIONS:
        return Estimate.from_floats(share, why=why_undefined(share, groups, MIN_INSTRUCTIONS, True))
    yes, no = share * effective, (1 - share) * effective
    low = betaincinv(yes, no + 1, 0.025) if yes > 0 else 0.0
    high = betaincinv(yes + 1, no, 0.975) if no > 0 else 1.0
    return Estimate.from_floats(share, low, high)


def kish_number(group: Integers) -> float:
    """Return Kish's effective number of rows, as if all rows of an instruction were alike.

    With equal numbers of rows it is the number of instructions.

    Args:
        group: the number of the instruction of each row, [n].
    """
    _, sizes = np.unique(group, return_counts=True)
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def share_below(share: float, number: float) -> float:
    """Return the one-sided 95 % upper bound of Clopper and Pearson of a share.

    Args:
        share: the share of rows where something holds.
        number: their effective number. It must not depend on where it holds: then the bound never falls when
            it holds in one more row.
    """
    from scipy.special import betaincinv

    others = (1 - share) * number
    return float(betaincinv(share * number + 1, others, 0.95)) if others > 0 else 1.0


def fewest_to_exclude(share: float) -> int:
    """Return the smallest number of instructions on which none can exclude such a share, or a larger one."""
    return math.floor(math.log(0.05) / math.log1p(-share)) + 1


def effective_rows(held: Flags, group: Integers, weights: Floats | None = None) -> tuple[float, float]:
    """Return the share of rows where something holds, and the number of independent rows that say as much.

    The arguments are those of `exact_share`; there is at least one row.
    """
    from scipy.special import stdtrit

    _, numbered = np.unique(group, return_inverse=True)
    sizes = np.bincount(numbered, weights)
    rows, groups = len(held), len(sizes)
    mean = averages(held[:, None].astype(np.float64), numbered, groups, weights)
    weight = sizes / sizes.sum()
    alike, share = float(1 / (weight**2).sum()), mean.value[0]
    # With equal weights, the correction is that of the plain variance.
    changes = mean.shares[:, 0] / (1 - np.minimum(weight, 0.9)) * (1 - 1 / groups)
    variance = (changes**2).sum()
    if groups < 2 or variance <= 0:
        return float(share), alike
    freedom = (stdtrit(rows - 1, 0.975) / stdtrit(max(alike - 1, 1), 0.975)) ** 2
    return float(share), float(min(rows, share * (1 - share) / variance * freedom))
