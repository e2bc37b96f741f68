"""The sample of rows that people label, with the chance that each had to be in it.

The unit is the instruction: all its rows are in the sample, or none. The sample is drawn by systematic sampling
from a random order with unequal chances (Madow, 1949), so each instruction has exactly its own chance. People
label the instructions in random order; whenever they stop, what they have labelled is a random part of the
sample, and each row's chance is known up to a factor that all rows share.
"""

from __future__ import annotations

import numpy as np

from localjudge.arrays import Floats, Integers

_ROUNDING = 1e-9


def chances(weights: Floats, sizes: Integers, rows: int | None) -> Floats:
    """Return the chance of each instruction to be in the sample, above 0 and at most 1, [g].

    Args:
        weights: the chances are proportional to these positive weights, capped at 1, [g].
        sizes: the number of rows of each instruction, [g].
        rows: the number of rows that are expected in the sample; None for all.
    """
    found: Floats = np.ones(len(weights))
    if rows is None or rows >= sizes.sum():
        return found
    certain = np.zeros(len(weights), dtype=np.bool_)
    while True:
        rest = rows - sizes[certain].sum()
        found = np.where(certain, 1.0, weights * rest / (weights * sizes)[~certain].sum())
        if not (found > 1).any():
            return found
        certain |= found > 1


def draw(chance: Floats, random: np.random.Generator) -> Integers:
    """Return the instructions of a sample in random order.

    Args:
        chance: the chance of each instruction, [g].
        random: the source of randomness.
    """
    order, start = random.permutation(len(chance)), random.random()
    if np.ptp(chance) == 0:  # the first ones, so that a larger sample contains a smaller one
        return order[: int(chance.sum() + start + _ROUNDING)].astype(np.int64)
    ends = np.cumsum(chance[order]) - start
    # An instruction is drawn if a whole number lies on its part of the line.
    drawn = np.floor(ends) > np.floor(ends - chance[order])
    chosen: Integers = random.permutation(order[drawn | (chance[order] >= 1)]).astype(np.int64)
    return chosen
