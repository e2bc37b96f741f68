"""The power of a paired test, and how many instructions or labels it needs.

The test is that of `rank` and `compare`: the paired differences of two systems, one for each instruction. Their
variance has a part between instructions, and a part within them, which more responses to each instruction make
smaller (Miller, "Adding Error Bars to Evals", arXiv:2411.00640, section 5). The power is that of Student's t.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from localjudge.arrays import Floats, Integers

ALPHA = 0.05
MOST = 10_000_000
"""Largest number of instructions that is searched for."""


@dataclass(frozen=True, slots=True)
class Variances:
    """The variance of the difference of two systems on an instruction: between instructions, and within them.

    `within` is that of one response of each system; None if no system has two responses to an instruction, and
    then `between` includes it.
    """

    between: float
    within: float | None

    def of_difference(self, responses: int) -> float:
        """Return the variance of a difference of means of this number of responses each."""
        return self.between + (self.within or 0) / responses


def paired_variances(values: Floats, group: Integers, system: Integers) -> Variances | None:
    """Return the variances of a pilot, the mean of all pairs of systems; None if no two share two instructions.

    Args:
        values: the score of each row, [n].
        group: the instruction of each row, [n].
        system: the system of each row, [n].
    """
    shape = int(group.max()) + 1, int(system.max()) + 1
    cell = group.astype(np.int64) * shape[1] + system
    rows = np.bincount(cell, minlength=shape[0] * shape[1])
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.bincount(cell, values, minlength=len(rows)) / rows
        squares = np.bincount(cell, (values - means[cell]) ** 2, minlength=len(rows))
    is_several = rows > 1
    within = float(squares[is_several].sum() / (rows[is_several] - 1).sum()) if is_several.any() else None
    table, count = means.reshape(shape), rows.reshape(shape)
    found = []
    for one, other in combinations(range(shape[1]), 2):
        difference = table[:, one] - table[:, other]
        both = np.isfinite(difference)
        if both.sum() > 1:
            sampled = (1 / count[both, one] + 1 / count[both, other]).mean() * (within or 0)
            found.append(max(float(difference[both].var(ddof=1) - sampled), 0.0))
    return Variances(float(np.mean(found)), None if within is None else 2 * within) if found else None


def power(difference: float, variance: float, instructions: int, tests: int = 1) -> float:
    """Return the probability that a two-sided paired test finds a difference.

    Args:
        difference: the true mean difference.
        variance: the variance of the difference on an instruction.
        instructions: their number, at least 2.
        tests: number of tests that the level of 0.05 is divided by (Bonferroni).
    """
    from scipy.stats import nct, t

    freedom = instructions - 1
    critical = t.ppf(1 - ALPHA / tests / 2, freedom)
    shift = abs(difference) * math.sqrt(instructions / variance)
    return float(1 - nct.cdf(critical, freedom, shift) + nct.cdf(-critical, freedom, shift))


def instructions_needed(difference: float, variance: float, wanted: float = 0.8, tests: int = 1) -> int:
    """Return the smallest number of instructions with a power, at least 5.

    Args:
        difference: as for `power`.
        variance: as for `power`.
        wanted: the power.
        tests: as for `power`.
    """
    return _smallest(lambda count: power(difference, variance, count, tests) >= wanted) if variance > 0 else 5


def labels_needed(margin: float, variance: float) -> int:
    """Return how many labels a 95 % interval of this half width needs, for a mean with this variance."""
    from scipy.stats import t

    return _smallest(lambda count: t.ppf(1 - ALPHA / 2, count - 1) * math.sqrt(variance / count) <= margin)


def _smallest(is_enough: Callable[[int], Any]) -> int:
    """Return the smallest sufficient number from 5 on, by bisection: all numbers above it must suffice, too."""
    low, high = 4, 5
    while not is_enough(high):
        low, high = high, 2 * high
        if high > MOST:
            return MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
