"""The paired test of a change, its power, and how many instructions it needs.

The test of `compare` is that of `sign_flip`; its power is that of Student's t for the paired differences of two
systems, one for each instruction. So is the power of the tests of `rank`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from localjudge.arrays import Floats, Integers
from localjudge.statistics import Estimate, sign_test
from localjudge.statistics.resampling import cell_means
from localjudge.statistics.sign_flip import tested_means
from localjudge.statistics.system_means import column_means
from localjudge.statistics.system_order import NO_DIFFERENCE, SIGNIFICANCE_LEVEL
from localjudge.system.quantities import p_in_words

ALPHA = 0.05
MOST = 10_000_000
"""Largest number of instructions that is searched for."""


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one column, on the instructions where both runs have a score.

    Attributes:
        old: the mean of OLD; all instructions have the same weight.
        new: the mean of NEW.
        difference: NEW minus OLD. The interval and `p` are adjusted for all columns: the interval excludes 0
            exactly if `p` is below 0.05.
        p: its p-value; None without an interval.
        sign_p: without an interval, the p-value of the exact sign test over instructions, times the number of
            columns (Bonferroni); None with one.
        detectable: the change that runs like these find in 80 % of cases; None without an interval.
        rose: number of instructions with a higher mean in NEW.
        fell: number of instructions with a lower mean in NEW.
        equal: number of instructions with the same mean in both runs.
    """

    old: float
    new: float
    difference: Estimate
    p: float | None
    sign_p: float | None
    detectable: float | None
    rose: int
    fell: int
    equal: int

    @property
    def is_significant(self) -> bool:
        return self.p is not None and self.p < SIGNIFICANCE_LEVEL

    @property
    def direction(self) -> str:
        """Which way the mean moved."""
        return "rose" if (self.difference.value or 0) > 0 else "fell"

    @property
    def moved(self) -> str:
        """On how many instructions the mean rose or fell: "fell on 3 and rose on 1 of 40"."""
        counts = sorted({"rose": self.rose, "fell": self.fell}.items(), key=lambda count: -count[1])
        verbs = [f"{verb} on {count:,}" for verb, count in counts if count]
        return f"{' and '.join(verbs)} of {self.rose + self.fell + self.equal:,}"

    @property
    def sign_test(self) -> str:
        """The p-value of the sign test, in words; only without an interval."""
        return p_in_words(1.0 if self.sign_p is None else self.sign_p)


def tested_changes(old: Floats, new: Floats, width: Floats, flips: int, seed: int) -> list[Change]:
    """Return the changes of k columns, adjusted for all of them.

    Args:
        old: the mean of each column on each instruction in OLD, [instructions, k]; NaN without one.
        new: the same in NEW.
        width: the width of the scale of each column, [k].
        flips: number of flips of the test and of the intervals.
        seed: seed of the flips.
    """
    moved, count = new - old, len(width)
    tested = tested_means(moved, -width, width, flips, seed)
    rose, fell = (moved > NO_DIFFERENCE).sum(axis=0), (moved < -NO_DIFFERENCE).sum(axis=0)
    equal = (np.abs(moved) <= NO_DIFFERENCE).sum(axis=0)
    columns = (
        column_means(old).value,
        column_means(new).value,
        tested.adjusted(),
        tested.detectable(),
        rose,
        fell,
        equal,
    )
    differences = tested.simultaneous(-width, width).estimates()
    return [
        Change(
            old=was,
            new=now,
            difference=difference,
            p=p if math.isfinite(p) else None,
            sign_p=None if math.isfinite(p) else min(1.0, count * sign_test(up, down)),
            detectable=detectable if math.isfinite(detectable) else None,
            rose=up,
            fell=down,
            equal=same,
        )
        for difference, was, now, p, detectable, up, down, same in zip(
            differences, *(column.tolist() for column in columns), strict=True
        )
    ]


def paired_variance(values: Floats, group: Integers, system: Integers) -> tuple[float, int] | None:
    """Return the variance of the difference of two systems on an instruction, the mean of all pairs of systems.

    It is that of means of as many rows as the systems have on an instruction. With it comes the smallest number
    of instructions that two of these systems share. None if no two systems share two instructions.

    Args:
        values: the score of each row, [n].
        group: the instruction of each row, [n].
        system: the system of each row, [n].
    """
    groups, systems = int(group.max()) + 1, int(system.max()) + 1
    means = cell_means(values[:, None], group.astype(np.int64) * systems + system, groups * systems)
    pairs = combinations(means.reshape(groups, systems).T, 2)
    differences = [difference[np.isfinite(difference)] for difference in (one - other for one, other in pairs)]
    shared = [difference for difference in differences if len(difference) > 1]
    if not shared:
        return None
    return float(np.mean([difference.var(ddof=1) for difference in shared])), min(map(len, shared))


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
    not_above, below = nct.cdf([critical, -critical], freedom, shift)
    # SciPy's result is NaN for some that are nearly 0, far from the shift.
    return float(1 - np.nan_to_num(not_above) + np.nan_to_num(below))


def instructions_needed(difference: float, variance: float, wanted: float = 0.8, tests: int = 1) -> int | None:
    """Return the smallest number of instructions with a power, at least 5; None for more than `MOST`.

    Args:
        difference: as for `power`.
        variance: as for `power`.
        wanted: the power.
        tests: as for `power`.
    """
    return (
        smallest_number(lambda count: power(difference, variance, count, tests) >= wanted)
        if variance > 0
        else 5
    )


def needed_in_words(number: int | None) -> str:
    return f"more than {MOST:,}" if number is None else f"{number:,}"


def smallest_number(is_enough: Callable[[int], Any]) -> int | None:
    """Return the smallest sufficient number from 5 on, by bisection: all numbers above it must suffice, too."""
    low, high = 4, 5
    while not is_enough(high):
        if high == MOST:
            return None
        low, high = high, min(2 * high, MOST)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
