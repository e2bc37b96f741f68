"""What limits a mean: the answers that were sampled for a row differ, and so do the instructions."""

from __future__ import annotations

from collections import defaultdict
from math import sqrt
from statistics import fmean, stdev

from localjudge.records import Judgement, Outcome


class SampleSpread:
    """The spread of expected scores between samples and between instructions, over the outcomes that are added.

    Args:
        samples: number of answers for each row.
    """

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._squares: defaultdict[str, list[float]] = defaultdict(list)
        self._means: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of a prompt."""
        if isinstance(outcome, Judgement):
            for aspect, spread in outcome.spread.items():
                self._squares[aspect].append(spread**2)
                self._means[aspect][str(outcome.group)].append(outcome.expected[aspect])

    @property
    def lines(self) -> list[str]:
        """A line for each aspect, with standard deviations of one expected score."""
        found = []
        for aspect, squares in self._squares.items():
            within, means = sqrt(fmean(squares)), [fmean(each) for each in self._means[aspect].values()]
            between = f", {stdev(means):.2f} between instructions" if len(means) > 1 else ""
            found.append(
                f"spread of {aspect}: {within:.2f} between samples{between}; the mean of {self._samples} "
                f"samples is off by {within / sqrt(self._samples):.2f}"
            )
        return found
