"""The sign-flip test of changes on instructions (Fisher 1935): is their mean 0?

If nothing changed on average, and changes are as often up as down, then each change could as well have had the
other sign. The statistic is the sum of the changes, and its p-value the share of flips whose sum is at least as
large. Up to 16 instructions, all flips are computed. Beyond, a fixed set is drawn: it has the changes as they
are, depends on the seed and the order of the instructions, and never on the changes. So the p-value does not
rise when a change rises.

The test assumes that large drops are not rare: if one instruction in twenty fell by 3, and the others rose a
little, most samples of 20 instructions show too few of the drops. `benchmarks/gate.py` measures how often.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from localjudge.arrays import Floats
from localjudge.statistics.resampling import Bound, Studentised, standard_errors
from localjudge.statistics.system_means import column_means

ALL_FLIPS = 16
"""The largest number of instructions of which all flips are computed."""
_BLOCK_SIZE = 4_000_000
"""Largest number of signs in a block."""
_STEP = 2.0**-30
"""Changes are rounded to multiples of this, so that equal sums are exactly equal."""


def rise_p(changes: Floats, flips: int, seed: int) -> Floats:
    """Return the one-sided p-values of the test whether the means of k columns rose, [k].

    Args:
        changes: the change on each instruction, [G, k]; NaN for an instruction that a column does not have.
        flips: number of flips to draw where not all are computed.
        seed: seed of the flips.
    """
    steps = np.nan_to_num(_rounded(changes))  # [G, k]
    sums = _flipped_sums(steps, flips, seed=seed)  # [1 + flips, k]
    observed = sums[0]
    # With each flip, its opposite is computed, too.
    as_large = (sums >= observed).sum(axis=0) + (-sums >= observed).sum(axis=0)  # [k]
    p: Floats = as_large / (2 * len(sums))
    return p


def tested_means(changes: Floats, lowest: Bound, highest: Bound, flips: int, seed: int) -> Studentised:
    """Return the means of k columns of changes, with intervals, and their tests adjusted for all columns.

    The sum is divided by the root of the sum of squares, which no flip changes, so that columns can be compared
    (maxT of Westfall & Young 1993). In the result, it is converted to the t statistic, which rises with it. So
    an interval that is as many standard errors long as the test requires excludes 0 exactly if the test does.

    Args:
        changes: as for `rise_p`.
        lowest: the smallest possible mean.
        highest: the largest possible mean.
        flips: number of flips to draw where not all are computed; 0 for no tests and no intervals.
        seed: seed of the flips.
    """
    changes = _rounded(changes)
    estimates = column_means(changes)
    error, varies = standard_errors(estimates, lowest, highest=highest)
    if flips:
        null_t = _null_t_statistics(changes, estimates.units, flips=flips, seed=seed)
        null_t[:, np.isnan(error)] = 0
    else:
        null_t = np.zeros((0, len(error)))
    no_ends = np.full(len(error), np.nan)
    return Studentised(
        value=estimates.value,
        low=no_ends,
        high=no_ends,
        error=error,
        null_t=null_t,
        units=estimates.units,
        varies=varies,
    )


def _null_t_statistics(changes: Floats, units: Floats, flips: int, seed: int) -> Floats:
    """Return the t statistics of the flipped changes, [flips, k].

    Args:
        changes: as for `rise_p`.
        units: number of instructions of each column, [k].
        flips, seed: as for `tested_means`.
    """
    steps = np.nan_to_num(changes)
    sums = _flipped_sums(steps, flips, seed=seed)[1:]  # [flips, k]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = sums / np.sqrt((steps**2).sum(axis=0))  # [flips, k]; its square is at most `units`
        remainder = np.maximum(units - ratio**2, 0)
        t: Floats = ratio * np.sqrt((units - 1) / remainder)
    return t


def _rounded(changes: Floats) -> Floats:
    """Return changes as multiples of `_STEP`, [G, k]."""
    rounded: Floats = np.round(changes / _STEP) * _STEP
    return rounded


def _flipped_sums(changes: Floats, flips: int, seed: int) -> Floats:
    """Return the sums of k columns: as they are, and with each flip, [1 + flips, k].

    Of each flip and its opposite, one is computed.
    """
    blocks = [signs @ changes for signs in _signs(len(changes), flips, seed=seed)]
    return np.concatenate(blocks)


def _signs(instructions: int, flips: int, seed: int) -> Iterator[Floats]:
    """Yield the signs of each flip, in blocks of [flips, instructions]; the first flip changes no sign."""
    if instructions <= ALL_FLIPS:
        # The binary digits of a flip's number say which changes are flipped; the last one never is.
        numbers = np.arange(2 ** max(instructions - 1, 0))
        is_flipped = numbers[:, None] >> np.arange(instructions) & 1  # [flips, instructions]
        yield 1.0 - 2.0 * is_flipped.astype(np.float64)
        return
    yield np.ones((1, instructions))
    generator = np.random.default_rng(seed)
    block = max(1, _BLOCK_SIZE // instructions)
    for start in range(0, flips, block):
        size = (min(block, flips - start), instructions)
        is_flipped = generator.integers(0, 2, size=size, dtype=np.int8)
        yield 1.0 - 2.0 * is_flipped.astype(np.float64)


def fewest_to_rise(level: float) -> int:
    """Return the smallest number of instructions on which a rise can have a p-value of at most this level."""
    return math.ceil(math.log2(1 / level))
