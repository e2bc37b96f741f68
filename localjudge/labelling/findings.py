"""Statistics of the labels so far, for an annotator who asks: means, agreement with the judge, no systems.

The intervals hold at every look (confidence sequences over instructions in the order of their first labels).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from localjudge.rubrics.aspect import Aspect
from localjudge.statistics import Estimate
from localjudge.statistics.confidence_sequence import ConfidenceSequence

BATCH = 10
"""Findings refresh after this many labels."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One person's labels of one row.

    Attributes:
        group: the number of its instruction.
        values: the label of each aspect; of a pair a, tie or b.
        verdicts: the judge's, in the same form; empty if it is not known.
    """

    group: int
    values: Mapping[str, Any]
    verdicts: Mapping[str, Any]


def findings(answers: Sequence[Answer], aspects: Mapping[str, Aspect]) -> dict[str, Any]:
    """Return the findings of all whole batches of answers.

    Args:
        answers: the answers, in their order.
        aspects: the aspects of the rubric.

    Returns:
        The number of labelled rows, about how many more would halve the intervals, and for each aspect its mean
        label, if it has numbers, and the share of labels that equal the judge's verdict, if it is known.
    """
    whole = answers[: len(answers) // BATCH * BATCH]
    # An interval's width falls with the root of the number of labels.
    return {
        "labelled": len(whole),
        "halved": 3 * len(whole),
        "aspects": [
            {"name": name, "mean": _mean(whole, name, aspect), "agreement": _agreement(whole, name)}
            for name, aspect in aspects.items()
        ],
    }


def _mean(answers: Sequence[Answer], name: str, aspect: Aspect) -> dict[str, float | None] | None:
    if aspect.numbers is None or aspect.preference is not None:
        return None
    numbers = aspect.numbers
    ends = min(numbers.values()), max(numbers.values())
    return _sequence([(each.group, numbers[each.values[name]]) for each in answers], *ends)


def _agreement(answers: Sequence[Answer], name: str) -> dict[str, float | None] | None:
    known = [each for each in answers if name in each.verdicts]
    return _sequence([(each.group, float(each.values[name] == each.verdicts[name])) for each in known], 0, 1)


def _sequence(values: Sequence[tuple[int, float]], low: float, high: float) -> dict[str, float | None] | None:
    """Return the mean over instructions with its interval; None without a value."""
    by_group: dict[int, list[float]] = {}
    for group, value in values:
        by_group.setdefault(group, []).append(value)
    if not by_group:
        return None
    means = np.array([[sum(own) / len(own)] for own in by_group.values()])
    found: Estimate = ConfidenceSequence(means, low, high).estimates()[0]
    return found.as_dict()
