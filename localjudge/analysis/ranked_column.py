"""The statistics of all systems in one column of scores, and the comparison of each pair of systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from localjudge.analysis.interval import UNDEFINED, Estimate
from localjudge.analysis.length_effect import means_at_equal_length
from localjudge.analysis.measured_texts import Measures
from localjudge.analysis.resampling import studentise
from localjudge.analysis.scores import Floats, Integers, Scores
from localjudge.analysis.system_means import human_means, instruction_means, judge_means, paired_differences

SIGNIFICANCE_LEVEL = 0.05
"""A difference between two systems is significant if its adjusted p is below this level."""


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
        self.name, self._scores = name, scores
        count = len(scores.systems)
        judged = judge_means(scores, values)
        self.means = studentise(judged, *ends, resamples=resamples, seed=seed).estimates()
        self.deciding = judged
        self.human = [UNDEFINED] * count
        if human is not None:
            self.deciding = human_means(scores, values, *human)
            self.human = studentise(self.deciding, *ends, resamples=resamples, seed=seed).estimates()
        self.length_held, self.length_explains = means_at_equal_length(
            scores, values, ends, measures, resamples, seed
        )
        first, second = np.array(list(combinations(range(count), 2)), dtype=np.int32).reshape(-1, 2).T
        cells = instruction_means(scores, values)
        reach = ends[1] - ends[0]
        paired = (
            paired_differences(cells, first, second) if human is None else self.deciding.contrast(first, second)
        )
        tested = studentise(paired, -reach, reach, symmetric=True, resamples=resamples, seed=seed)
        p = tested.adjusted()
        self.pairs: list[Pair] = []
        self._differ = np.zeros((count, count), dtype=np.bool_)
        wins = np.zeros((count, 2))
        better = np.zeros((count, count), dtype=np.bool_)
        for place, (a, b, difference) in enumerate(zip(first, second, tested.estimates(), strict=True)):
            between = cells[:, a] - cells[:, b]
            between = between[np.isfinite(between)]
            won, lost = int((between > 0).sum()), int((between < 0).sum())
            tied = len(between) - won - lost
            wins[a] += won + tied / 2, len(between)
            wins[b] += lost + tied / 2, len(between)
            differ = p[place] < SIGNIFICANCE_LEVEL
            self._differ[a, b] = self._differ[b, a] = differ
            better[a, b], better[b, a] = differ and paired.value[place] > 0, differ and paired.value[place] < 0
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
        self.ranks = [
            (1 + int(better[:, system].sum()), count - int(better[system].sum())) for system in range(count)
        ]

    def groups(self, order: Sequence[int]) -> tuple[tuple[str, ...], ...]:
        """Return the largest sets of systems without a significant difference between any two, best first."""
        place = {system: number for number, system in enumerate(order)}
        sets = [sorted(members, key=place.__getitem__) for members in _cliques(~self._differ)]
        sets.sort(key=lambda members: [place[member] for member in members])
        return tuple(tuple(self._scores.systems[member] for member in members) for members in sets)


def _cliques(joined: NDArray[np.bool_]) -> list[set[int]]:
    """Return the maximal cliques of a graph (Bron & Kerbosch 1973, with pivots)."""
    near = [set(np.flatnonzero(row).tolist()) - {place} for place, row in enumerate(joined)]
    found: list[set[int]] = []

    def grow(chosen: set[int], open_: set[int], shut: set[int]) -> None:
        if not open_ and not shut:
            found.append(chosen)
            return
        pivot = max(open_ | shut, key=lambda node: len(near[node] & open_))
        for node in sorted(open_ - near[pivot]):
            grow(chosen | {node}, open_ & near[node], shut & near[node])
            open_ = open_ - {node}
            shut = shut | {node}

    grow(set(), set(range(len(near))), set())
    return found
