"""The confidence from which on a judge's verdicts agree with people at a rate: a threshold, tested on labels.

A verdict is kept if the judge's confidence reaches a threshold at which, with a stated probability, the rows
with kept verdicts agree with people at the rate that was asked. The thresholds are tested from high to low on
the labelled rows, by the exact binomial test, until one fails (fixed-sequence testing; Jung, Brahman & Choi,
"Trust or Escalate", arXiv:2407.18370). Which thresholds are tested follows from the confidences and the
instructions alone: the first keeps `FIRST` of the labelled rows, and at least so many that the test can pass,
and the last keeps all.

The rows are counted: those that are kept, those that must agree, and those that are tested. Rows of an
instruction are alike, so n of them in G instructions count in the test as fewer independent rows: as the number
whose share has the same variance, and at most n² / (n₁² + … + n_G²), which is G if all have as many rows.
`benchmarks/escalation.py` measures how often agreement falls below the target, and what share is kept.
"""

from __future__ import annotations

import math

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.statistics.jackknife import effective_rows

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
    """Return as how many independent rows the first, the first two … and all of these rows count, at most.

    Args:
        group: the instruction of each row, [n].

    Returns:
        The square of the number of rows over the sum of its squares by instruction (Kish 1965), [n].
    """
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    before = np.empty(len(group))  # the rows of the same instruction before each row
    before[order] = np.arange(len(group)) - np.repeat(starts, np.diff(starts, append=len(group)))
    rows: Floats = np.arange(1, len(group) + 1) ** 2 / np.cumsum(2 * before + 1)
    return rows


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
    from scipy.special import betainc

    order = np.argsort(-confidence, kind="stable")
    ranked, right, instruction = confidence[order], agreed[order], group[order]
    independent, lowest = independent_rows(instruction), None
    enough = np.flatnonzero(independent >= fewest_labels(rate, error) - _ROUNDING) + 1
    enough = enough[enough >= FIRST * len(order) - _ROUNDING]
    if not len(enough):
        return None
    for count in np.unique(np.linspace(enough[0], len(order), STEPS).astype(int)).tolist():
        kept = int(np.searchsorted(-ranked, -ranked[count - 1], side="right"))
        share, rows = effective_rows(right[:kept], instruction[:kept])
        rows = min(rows, float(independent[kept - 1]))
        # The probability of so many agreeing rows or more: binomial, also for numbers that are not whole.
        if share <= 0 or betainc(share * rows, (1 - share) * rows + 1, rate) > error:
            break
        lowest = float(ranked[kept - 1])
    return lowest
