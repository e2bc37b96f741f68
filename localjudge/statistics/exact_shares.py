"""Exact binomial intervals and bounds of shares of rows, by the effective number of independent rows."""

from __future__ import annotations

import math

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.statistics import UNDEFINED, Estimate, why_undefined
from localjudge.statistics.resampling import MIN_INSTRUCTIONS, averages


def exact_share(held: Flags, group: Integers, weights: Floats | None = None) -> Estimate:
    """Return the share of rows where something holds, with the exact interval of Clopper & Pearson (1934).

    If instructions have several rows, the interval is that of the effective number of rows, which has the
    variance between instructions (Korn & Graubard 1998), by the jackknife if their weights differ. A share of 0
    or 1 has no variance; then the rows of an instruction count as one, and unequal weights of instructions
    reduce their number (Kish's effective number).

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
    share, effective = effective_rows(held, group, weights=weights)
    groups = len(np.unique(group))
    if groups < MIN_INSTRUCTIONS:
        why = why_undefined(share, groups, least=MIN_INSTRUCTIONS, varies=True)
        return Estimate.from_floats(share, why=why)
    with_it = share * effective
    without_it = (1 - share) * effective
    low = betaincinv(with_it, without_it + 1, 0.025) if with_it > 0 else 0.0
    high = betaincinv(with_it + 1, without_it, 0.975) if without_it > 0 else 1.0
    return Estimate.from_floats(share, low=low, high=high)


def effective_rows(held: Flags, group: Integers, weights: Floats | None = None) -> tuple[float, float]:
    """Return the share of rows where something holds, and the effective number of independent rows.

    The arguments are as for `exact_share`; there is at least one row.
    """
    from scipy.special import stdtrit

    rows = len(held)
    _, numbered = np.unique(group, return_inverse=True)
    sizes = np.bincount(numbered, weights)  # [G]: the weight of each instruction
    groups = len(sizes)
    mean = averages(held[:, None].astype(np.float64), numbered, groups=groups, weights=weights)
    share = float(mean.value[0])
    group_weight = sizes / sizes.sum()  # [G]
    kish = float(1 / (group_weight**2).sum())
    changes = mean.shares[:, 0] / (1 - np.minimum(group_weight, 0.9))  # [G]: the jackknife
    # With equal weights, the result is the usual variance of a mean.
    changes = changes * (1 - 1 / groups)
    variance = (changes**2).sum()
    if groups < 2 or variance <= 0:
        return share, kish
    # The variance is estimated, with fewer degrees of freedom than independent rows would have.
    widening = (stdtrit(rows - 1, 0.975) / stdtrit(max(kish - 1, 1), 0.975)) ** 2
    effective = share * (1 - share) / variance * widening
    return share, float(min(rows, effective))


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
        number: the effective number of rows. It must not depend on the rows where it holds: then the bound
            never falls when it holds in one more row.
    """
    from scipy.special import betaincinv

    without_it = (1 - share) * number
    if without_it <= 0:
        return 1.0
    return float(betaincinv(share * number + 1, without_it, 0.95))


def fewest_to_exclude(share: float) -> int:
    """Return the smallest number of instructions on which none can exclude such a share, or a larger one."""
    return math.floor(math.log(0.05) / math.log1p(-share)) + 1
