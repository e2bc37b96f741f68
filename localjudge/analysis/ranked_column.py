"""The statistics of all systems in one column of scores, and the comparison of each pair of systems."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from localjudge.analysis.interval import UNDEFINED, Estimate
from localjudge.analysis.length_effect import means_at_equal_length
from localjudge.analysis.measured_texts import Measures
from localjudge.analysis.resampling import studentise
from localjudge.analysis.scores import Floats, Integers, Scores
from localjudge.analysis.system_means import human_means, instruction_means, judge_means, paired_differences
from localjudge.analysis.system_order import SystemOrder


@dataclass(frozen=True, slots=True)
class Pair:
    """The comparison of two systems on the instructions that both answered.

    `difference` is the mean of `first` minus the mean of `second`, and `p` its p-value, adjusted for all pairs
    of the column. With labels, both refer to the prediction-powered means. `wins`, `losses` and `ties` are
    numbers of instructions, by the judge's scores.
    """

    first: str
    second: str
    column: str
    instructions: int
    difference: Estimate
    p: float | None
    wins: int
    losses: int
    ties: int


class RankedColumn:
    """The statistics of all systems in one column: an aspect, the share of a label, or the overall mean."""

    def __init__(
        self,
        scores: Scores,
        name: str,
        values: Floats,
        ends: tuple[int, int],
        measures: Measures | None,
        human: tuple[Integers, Floats] | None,
        resamples: int,
        seed: int,
    ) -> None:
        self.name = name
        count = len(scores.systems)
        judged = judge_means(scores, values)
        # The error of a calibration's map is unknown, so calibrated scores have no intervals of their own.
        own = 0 if scores.calibrated else resamples
        self.means = studentise(judged, *ends, resamples=own, seed=seed).estimates()
        self.deciding = judged
        self.human = [UNDEFINED] * count
        if human is not None:
            self.deciding = human_means(scores, values, *human)
            self.human = studentise(self.deciding, *ends, resamples=resamples, seed=seed).estimates()
        self.length_held, self.length_explains = means_at_equal_length(
            scores, values, ends, measures, own, seed
        )
        first, second = np.array(list(combinations(range(count), 2)), dtype=np.int32).reshape(-1, 2).T
        cells = instruction_means(scores, values)
        reach = ends[1] - ends[0]
        paired = (
            paired_differences(cells, first, second) if human is None else self.deciding.contrast(first, second)
        )
        drawn = own if human is None else resamples
        tested = studentise(paired, -reach, reach, symmetric=True, resamples=drawn, seed=seed)
        p = tested.adjusted()
        self.pairs: list[Pair] = []
        wins = np.zeros((count, 2))
        for place, (a, b, difference) in enumerate(zip(first, second, tested.estimates(), strict=True)):
            between = cells[:, a] - cells[:, b]
            between = between[np.isfinite(between)]
            won, lost = int((between > 0).sum()), int((between < 0).sum())
            tied = len(between) - won - lost
            wins[a] += won + tied / 2, len(between)
            wins[b] += lost + tied / 2, len(between)
            self.pairs.append(
                Pair(
                    first=scores.systems[a],
                    second=scores.systems[b],
                    column=name,
                    instructions=len(between),
                    difference=difference,
                    p=float(p[place]) if np.isfinite(p[place]) else None,
                    wins=won,
                    losses=lost,
                    ties=tied,
                )
            )
        self.win_rates = [float(won / of) if of else None for won, of in wins]
        self.order = SystemOrder(scores.systems, first, second, paired.value, p)
