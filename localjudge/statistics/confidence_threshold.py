"""The confidence from which on a judge's verdicts agree with people at a rate: a threshold, tested on labels.

A verdict is kept if the judge's confidence reaches a threshold at which, with a stated probability, the rows
with kept verdicts agree with people at the rate that was asked. The thresholds are tested from high to low on
the labelled rows, by the exact binomial test, until one fails (fixed-sequence testing; Jung, Brahman & Choi,
"Trust or Escalate", arXiv:2407.18370). Which thresholds are tested follows from the confidences and the
instructions alone: the first keeps `FIRST` of the labelled rows, or more if the test needs more to pass, and
the last keeps all.

The rows are counted: those that are kept, those that must agree, and those that are tested. Rows of an
instruction are alike, so the test counts n of them in G instructions as fewer independent rows: the number
whose share has the same variance, and at most n² / (n₁² + … + n_G²), which is G if all have as many rows.
`benchmarks/escalation.py` measures how often agreement falls below the target, and what share is kept.
"""

from __future__ import annotations

import math

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.statistics.exact_shares import effective_rows

FIRST = 0.3
"""Share of the labelled rows that the first threshold keeps."""
STEPS = 10
"""Number of thresholds."""
ERROR = 0.025
"""Largest probability that the kept verdicts of a judge agree at a lower rate; of two judges, 0.05."""
_ROUNDING = 1e-9


def fewest_labels(rate: float, error: float = ERROR) -> int:
    """Return the smallest number of labels that can show the rate, if all of them agree.

    They are of different instructions.
    """
    return math.ceil(math.log(error) / math.log(rate))


def independent_rows(group: Integers) -> Floats:
    """Return the largest effective number of the first row, the first two rows … and all rows, [n].

    It is the square of the number of rows over the sum of its squares by instruction (Kish 1965).

    Args:
        group: the instruction of each row, [n].
    """
    count = len(group)
    order = np.argsort(group, kind="stable")
    # [G]: where each instruction begins in the order
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    sizes = np.diff(starts, append=count)  # [G]
    earlier = np.empty(count)  # [n]: the earlier rows of the same instruction
    earlier[order] = np.arange(count) - np.repeat(starts, sizes)
    # One more row of an instruction with m rows adds (m + 1)² - m² to the sum of squares.
    squares = np.cumsum(2 * earlier + 1)
    independent: Floats = np.arange(1, count + 1) ** 2 / squares
    return independent


def threshold(
    confidence: Floats, agreed: Flags, group: Integers, rate: float, error: float = ERROR
) -> float | None:
    """Return the lowest threshold that passes; None if the first fails.

    Args:
        confidence: the confidence of each labelled verdict, [n].
        agreed: whether it agrees with the label, [n].
        group: its instruction, [n].
        rate: the share of rows with kept verdicts that must agree.
        error: the largest probability that the share is lower.
    """

    order = np.argsort(-confidence, kind="stable")
    descending = confidence[order]
    agreed = agreed[order]
    group = group[order]
    independent = independent_rows(group)  # [n]
    counts = _tested_counts(independent, rate=rate, error=error)
    lowest = None
    for count in counts:
        # All verdicts with the confidence of the last one are kept with it.
        kept = int(np.searchsorted(-descending, -descending[count - 1], side="right"))
        share, effective = effective_rows(agreed[:kept], group[:kept])
        rows = min(effective, float(independent[kept - 1]))
        if _agreement_p(share, rows, rate=rate) > error:
            break
        lowest = float(descending[kept - 1])
    return lowest


def _tested_counts(independent: Floats, rate: float, error: float) -> list[int]:
    """Return how many of the rows with the highest confidence each threshold keeps, ascending.

    Args:
        independent: as how many independent rows the first, the first two … rows count, [n].
        rate, error: as for `threshold`.
    """
    rows = len(independent)
    counts = np.arange(1, rows + 1)
    can_pass = independent >= fewest_labels(rate, error) - _ROUNDING
    is_large = counts >= FIRST * rows - _ROUNDING
    possible = counts[can_pass & is_large]
    if not len(possible):
        return []
    steps = np.linspace(possible[0], rows, STEPS).astype(int)
    numbers: list[int] = np.unique(steps).tolist()
    return numbers


def _agreement_p(share: float, rows: float, rate: float) -> float:
    """Return the binomial probability that at least this share of the rows agrees if rows agree at the rate.

    The number of rows need not be whole.
    """
    from scipy.special import betainc

    if share <= 0:
        return 1.0
    agreeing = share * rows
    return float(betainc(agreeing, (1 - share) * rows + 1, rate))
