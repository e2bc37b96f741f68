"""The paired test of a change, its power, and how many instructions it needs.

The test of `compare` is the sign-flip test (`sign_flip`). Its power, and the power of the tests of `rank`, is
computed as that of Student's t for the paired differences of two systems, one for each instruction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from localjudge.arrays import Floats, Integers
from localjudge.statistics import Estimate, sign_test
from localjudge.statistics.resampling import MIN_INSTRUCTIONS, cell_means
from localjudge.statistics.sign_flip import tested_means
from localjudge.statistics.system_means import column_means
from localjudge.statistics.system_order import NO_DIFFERENCE, SIGNIFICANCE_LEVEL
from localjudge.system.quantities import p_in_words

ALPHA = 0.05
"""The level of the tests."""
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
        """Whether the mean changed significantly."""
        return self.p is not None and self.p < SIGNIFICANCE_LEVEL

    @property
    def direction(self) -> str:
        """Which way the mean moved."""
        if self.difference.value is not None and self.difference.value > 0:
            return "rose"
        return "fell"

    @property
    def moved(self) -> str:
        """On how many instructions the mean rose or fell: "fell on 3 and rose on 1 of 40"."""
        verbs = []
        if self.rose:
            verbs.append(f"rose on {self.rose:,}")
        if self.fell:
            verbs.append(f"fell on {self.fell:,}")
        if self.fell > self.rose:
            verbs.reverse()
        instructions = self.rose + self.fell + self.equal
        return f"{' and '.join(verbs)} of {instructions:,}"

    @property
    def sign_test(self) -> str:
        """The p-value of the sign test, in words; only without an interval."""
        if self.sign_p is None:
            return p_in_words(1.0)
        return p_in_words(self.sign_p)


def tested_changes(old: Floats, new: Floats, width: Floats, flips: int, seed: int) -> list[Change]:
    """Return the changes of k columns, adjusted for all of them.

    Args:
        old: the mean of each column on each instruction in OLD, [instructions, k]; NaN without one.
        new: the same in NEW.
        width: the width of the scale of each column, [k].
        flips: number of flips of the test and of the intervals.
        seed: seed of the flips.
    """
    change = new - old  # [instructions, k]
    tested = tested_means(change, lowest=-width, highest=width, flips=flips, seed=seed)
    differences = tested.simultaneous(-width, width).estimates()
    p_values = tested.adjusted()  # [k], as are all below
    detectable = tested.detectable()
    old_means = column_means(old).value
    new_means = column_means(new).value
    rose = (change > NO_DIFFERENCE).sum(axis=0)
    fell = (change < -NO_DIFFERENCE).sum(axis=0)
    equal = (np.abs(change) <= NO_DIFFERENCE).sum(axis=0)
    changes = []
    for column, difference in enumerate(differences):
        p = _number_or_none(p_values[column])
        sign_p = None
        if p is None:
            p_of_signs = sign_test(int(rose[column]), int(fell[column]))
            sign_p = min(1.0, len(differences) * p_of_signs)
        changes.append(
            Change(
                old=float(old_means[column]),
                new=float(new_means[column]),
                difference=difference,
                p=p,
                sign_p=sign_p,
                detectable=_number_or_none(detectable[column]),
                rose=int(rose[column]),
                fell=int(fell[column]),
                equal=int(equal[column]),
            )
        )
    return changes


def _number_or_none(number: float) -> float | None:
    """Return a number; None if it is not finite."""
    return float(number) if math.isfinite(number) else None


def paired_variance(values: Floats, group: Integers, system: Integers) -> tuple[float, int] | None:
    """Return the variance of the difference of two systems on an instruction, averaged over pairs of systems.

    A difference is between the means of the rows that the systems have on an instruction. The second value is
    the smallest number of instructions that two of these systems share. None if no two systems share two
    instructions.

    Args:
        values: the score of each row, [n].
        group: the instruction of each row, [n].
        system: the system of each row, [n].
    """
    groups = int(group.max()) + 1
    systems = int(system.max()) + 1
    cell = group.astype(np.int64) * systems + system
    means = cell_means(values[:, None], cell, cells=groups * systems).reshape(groups, systems)
    variances = []
    shared = []  # the number of instructions of each pair of systems that shares two or more
    for first, second in combinations(range(systems), 2):
        differences = means[:, first] - means[:, second]
        differences = differences[np.isfinite(differences)]
        if len(differences) > 1:
            variances.append(differences.var(ddof=1))
            shared.append(len(differences))
    if not shared:
        return None
    return float(np.mean(variances)), min(shared)


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
    critical_t = t.ppf(1 - ALPHA / tests / 2, freedom)
    shift = abs(difference) * math.sqrt(instructions / variance)
    probabilities = nct.cdf([critical_t, -critical_t], freedom, shift)
    # SciPy's result is NaN for some that are nearly 0, far from the shift.
    not_above, below = np.nan_to_num(probabilities)
    return float(1 - not_above + below)


def instructions_needed(difference: float, variance: float, wanted: float = 0.8, tests: int = 1) -> int | None:
    """Return the smallest number of instructions with a power, at least 5; None for more than `MOST`.

    Args:
        difference: as for `power`.
        variance: as for `power`.
        wanted: the power.
        tests: as for `power`.
    """
    if variance <= 0:
        return MIN_INSTRUCTIONS

    def is_enough(instructions: int) -> bool:
        return power(difference, variance, instructions=instructions, tests=tests) >= wanted

    return smallest_number(is_enough)


def needed_in_words(number: int | None) -> str:
    """Return a number of instructions as text; None is more than `MOST`."""
    if number is None:
        return f"more than {MOST:,}"
    return f"{number:,}"


def smallest_number(is_enough: Callable[[int], bool]) -> int | None:
    """Return the smallest sufficient number from 5 on, by bisection: all numbers above it must suffice, too."""
    too_small = MIN_INSTRUCTIONS - 1
    enough = MIN_INSTRUCTIONS
    while not is_enough(enough):
        if enough == MOST:
            return None
        too_small = enough
        enough = min(2 * enough, MOST)
    while enough - too_small > 1:
        middle = (too_small + enough) // 2
        if is_enough(middle):
            enough = middle
        else:
            too_small = middle
    return enough
