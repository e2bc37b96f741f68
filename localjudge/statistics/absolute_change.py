"""How far numbers move from one judging of the same rows to the next: the mean change and a bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Floats, Integers
from localjudge.statistics import UNDEFINED, Estimate
from localjudge.statistics.resampling import MIN_INSTRUCTIONS, mean_estimate

COVERED = 0.95
"""The probability with which a further row of the same kind moves no further than the bound."""

_DIGITS = 6
"""Decimal places of changes: more than the numbers of a run have."""
NOTHING_MOVED = "nothing changed"
FEW_MOVED = f"it changed on fewer than {MIN_INSTRUCTIONS} instructions"


@dataclass(frozen=True, slots=True)
class AbsoluteChange:
    """How far the numbers of rows moved.

    Attributes:
        mean: the mean absolute change, with its 95 % interval over instructions. It has none if fewer than five
            instructions changed, nor if the changes are so small that one large change, which the sample does
            not have, would move the mean out of it (`localjudge.statistics.resampling`).
        largest: the largest absolute change; None without rows.
        bound: the order statistic of the absolute changes that a further row of the same kind exceeds with a
            probability of at most 5 %, whatever their distribution. None for fewer than 19 rows, which have no
            such bound.
        rows: number of rows.
        within: number of rows that moved by at most `bound`; 0 without one.
    """

    mean: Estimate
    largest: float | None
    bound: float | None
    rows: int
    within: int


def absolute_change(first: Floats, again: Floats, group: Integers, width: float) -> AbsoluteChange:
    """Return how far numbers moved.

    The bound is that of split conformal prediction (Vovk et al. 2005): the rank of a further exchangeable row
    among n + 1 is uniform.

    Args:
        first: the number of each row, [n].
        again: its number when it was judged again, [n].
        group: the instruction of each row, [n].
        width: the width of the scale, which no change exceeds.
    """
    changes: Floats = np.round(np.abs(again - first), _DIGITS).astype(np.float64)
    rows = len(changes)
    if not rows:
        return AbsoluteChange(mean=UNDEFINED, largest=None, bound=None, rows=0, within=0)
    rank = math.ceil(COVERED * (rows + 1))
    bound = None
    within = 0
    if rank <= rows:
        bound = float(np.sort(changes)[rank - 1])
        within = int((changes <= bound).sum())
    return AbsoluteChange(
        mean=_mean(changes, group, width=width),
        largest=float(changes.max()),
        bound=bound,
        rows=rows,
        within=within,
    )


def _mean(changes: Floats, group: Integers, width: float) -> Estimate:
    """Return the mean of changes, with an interval if enough instructions changed."""
    has_moved = changes > 0
    instructions = len(np.unique(group[has_moved]))
    if instructions == 0:
        return Estimate.from_floats(0.0, why=NOTHING_MOVED)
    if instructions < MIN_INSTRUCTIONS:
        return Estimate.from_floats(float(changes.mean()), why=FEW_MOVED)
    return mean_estimate(changes, group, lowest=0.0, highest=width)
