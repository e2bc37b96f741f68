"""The bound of a gate: how far a mean can have fallen, how often it lets an unchanged system pass, its size.

A run is not inferior if the lower end of a one-sided 95 % confidence interval of its mean change is above
minus the margin. Two bounds are computed, and the higher one counts.

- `studentised_bound`: Student's t, made valid for rare and large drops: a third of the samples of 20
  instructions contain no drop if one instruction in twenty has one. So it is computed as if there were more
  instructions with the lowest possible change (`WORST_INSTRUCTIONS`), and with a slightly larger quantile
  (`QUANTILE`).
- `betting_bound`: Waudby-Smith & Ramdas (arXiv:2010.09686) with the largest bet. It is the higher one if nearly
  all instructions changed equally, mostly not at all: 59 equal instructions exclude a drop of 0.2 on a scale
  from 1 to 5.

Both are monotone: if the change on an instruction rises, the bound does not fall. `benchmarks/gate.py` measures
how often a gate passes by mistake.
"""

from __future__ import annotations

import math

import numpy as np

from localjudge.arrays import Floats
from localjudge.statistics.paired_test import ALPHA, smallest_number
from localjudge.statistics.resampling import MIN_INSTRUCTIONS

WORST_INSTRUCTIONS = 1.25
"""Number of further instructions with the lowest possible change."""
QUANTILE = 0.96
"""The quantile of Student's t. `benchmarks/gate.py` derives both: the smallest of its grid with false passes of
at most 5 %."""
_MOST_RAISED = 30
"""The number of largest changes that are raised where only their variance is known."""
_QUANTILES = 400
"""The number of quantiles that stand for a normal distribution."""


def lower_bound(changes: Floats, width: float) -> Floats:
    """Return the lower ends of the one-sided 95 % confidence intervals of mean changes.

    Args:
        changes: the change on each instruction, from -width to width, [..., n].
        width: the width of the scale.
    """
    bound: Floats = np.maximum(studentised_bound(changes, width), betting_bound(changes, width))
    return bound


def studentised_bound(
    changes: Floats, width: float, worst: float = WORST_INSTRUCTIONS, quantile: float = QUANTILE
) -> Floats:
    """Return the lower bounds of Student's t for mean changes, made monotone and valid for rare drops.

    When the largest change rises further, the variance can rise by more than the mean, and the bound of
    Student's t falls. So the result is the smallest bound of all changes that are at least as large. As the
    bound is concave and the same for any order of the changes, that is the smallest of the n + 1 bounds that
    result when the k largest changes are raised to the width, k from 0 to n.

    Args:
        changes, width: as for `lower_bound`.
        worst: number of further instructions at the lowest possible change.
        quantile: the quantile of Student's t.
    """
    return _smallest_bound(
        changes.sum(axis=-1),
        (changes**2).sum(axis=-1),
        largest=np.sort(changes, axis=-1)[..., ::-1],
        count=changes.shape[-1],
        width=width,
        worst=worst,
        quantile=quantile,
    )


def _smallest_bound(
    sums: Floats,
    squares: Floats,
    largest: Floats,
    count: int,
    width: float,
    worst: float = WORST_INSTRUCTIONS,
    quantile: float = QUANTILE,
) -> Floats:
    """Return the smallest of the bounds that result when the k largest changes are raised, k from 0 on.

    Args:
        sums: the sum of the changes, [...].
        squares: the sum of their squares, [...].
        largest: the largest changes in descending order, those that are raised, [..., k].
        count: number of instructions.
        width, worst, quantile: as for `studentised_bound`.
    """
    from scipy.special import stdtrit

    total = count + worst
    raised_sums = sums[..., None] - worst * width + _first_sums(width - largest)  # [..., k + 1]
    raised_squares = squares[..., None] + worst * width**2 + _first_sums(width**2 - largest**2)
    means = raised_sums / total
    variances = np.maximum(raised_squares - total * means**2, 0) / (total - 1)
    bounds = means - stdtrit(total - 1, quantile) * np.sqrt(variances / total)
    bound: Floats = np.maximum(bounds.min(axis=-1), -width)
    return bound


def _first_sums(values: Floats) -> Floats:
    """Return the sums of the first 0 to k values, [..., k + 1]."""
    count = values.shape[-1]
    sums = np.zeros(values.shape[:-1] + (count + 1,))
    sums[..., 1:] = np.cumsum(values, axis=-1)
    return sums


def betting_bound(changes: Floats, width: float) -> Floats:
    """Return the lower bounds of mean changes by betting all wealth on each instruction.

    Someone who bets that the mean is below m owns the product of (width + change) / (width + m) at the end. If
    they were wrong, this is above 20 in at most 5 % of samples, so the bound is the m for which it is 20.

    Args:
        changes, width: as for `lower_bound`.
    """
    count = changes.shape[-1]
    with np.errstate(divide="ignore"):
        geometric_mean = np.exp(np.log(width + changes).mean(axis=-1))
    bound: Floats = geometric_mean * ALPHA ** (1 / count) - width
    return bound


def chance_to_pass(margin: float, variance: float, width: float, instructions: int) -> float:
    """Return the probability that a gate passes a system whose mean does not change.

    The mean of its changes is taken as normal, and their variance as known.

    Args:
        margin: the largest drop that passes.
        variance: the variance of its change on an instruction.
        width: the width of the scale.
        instructions: their number.
    """
    from scipy.special import ndtr

    if variance <= 0:
        return float(instructions >= fewest_to_pass(margin, width))
    lowest = min(
        _lowest_mean_studentised(margin, variance, width=width, instructions=instructions),
        _lowest_mean_betting(margin, variance, width=width, instructions=instructions),
    )
    error = math.sqrt(variance / instructions)
    return float(ndtr(-lowest / error))


def _lowest_mean_studentised(margin: float, variance: float, width: float, instructions: int) -> float:
    """Return the lowest mean change that passes by the studentised bound, if changes are about normal."""
    from scipy.special import ndtri

    # Blom's approximation of the largest of this number of normal values.
    ranks = np.arange(1, min(instructions, _MOST_RAISED) + 1)
    largest = math.sqrt(variance) * ndtri(1 - (ranks - 0.375) / (instructions + 0.25))
    raised = np.clip(largest, -width, width)
    bound_of_no_change = _smallest_bound(
        np.zeros(()), np.array(instructions * variance), largest=raised, count=instructions, width=width
    )
    shift = -margin - float(bound_of_no_change)
    return shift * (instructions + WORST_INSTRUCTIONS) / instructions


def _lowest_mean_betting(margin: float, variance: float, width: float, instructions: int) -> float:
    """Return the lowest mean change that passes by the betting bound, if changes are about normal."""
    from scipy.special import ndtri

    quantiles = ndtri((np.arange(_QUANTILES) + 0.5) / _QUANTILES)
    wealth = 1 + np.clip(math.sqrt(variance) * quantiles / width, -0.9, 1)
    log_needed = math.log1p(-margin / width) - math.log(ALPHA) / instructions
    log_missing = log_needed - np.log(wealth).mean()
    slope = (1 / wealth).mean()
    # The first step of Newton's method from a mean of 0.
    return float(width * log_missing / slope)


def fewest_to_pass(margin: float, width: float) -> int:
    """Return the smallest number of instructions, at least 5, with which a system without any change passes.

    The betting bound decides it.

    Args:
        margin, width: as for `chance_to_pass`.
    """
    too_few = math.floor(math.log(ALPHA) / math.log1p(-margin / width))
    return max(MIN_INSTRUCTIONS, too_few + 1)


def instructions_to_pass(margin: float, variance: float, width: float, wanted: float = 0.8) -> int | None:
    """Return the smallest number of instructions with which an unchanged system passes this often.

    It is None for more than `localjudge.statistics.paired_test.MOST`.

    Args:
        margin, variance, width: as for `chance_to_pass`.
        wanted: how often it must pass.
    """

    def is_enough(instructions: int) -> bool:
        chance = chance_to_pass(margin, variance, width=width, instructions=instructions)
        return chance >= wanted

    return smallest_number(is_enough)
