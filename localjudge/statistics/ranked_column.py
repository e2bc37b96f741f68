"""The statistics of all systems in one column of scores, and the comparison of each pair of systems."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from localjudge.arrays import Floats, Integers
from localjudge.statistics import UNDEFINED, Estimate
from localjudge.statistics.confidence_sequence import ConfidenceSequence
from localjudge.statistics.resampling import studentise
from localjudge.statistics.system_means import (
    LabelledRows,
    SystemRows,
    column_means,
    connected_systems,
    instruction_means,
    means_at_equal_length,
    means_on_same_instructions,
)
from localjudge.statistics.system_order import NO_DIFFERENCE, SystemOrder


@dataclass(frozen=True, slots=True)
class Pair:
    """The comparison of two systems on the instructions that both answered.

    `difference` is the mean of `first` minus the mean of `second` on these instructions, and `p` its p-value.
    The interval and `p` are adjusted for all pairs of the column: the interval excludes 0 exactly if `p` is
    below 0.05. With labels, they refer to the prediction-powered means. `wins`, `losses` and `ties` are numbers
    of instructions, by the judge's scores; a difference within the rounding error is a tie.
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

    def turned(self) -> Pair:
        """Return the same comparison with the systems in the other order."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            difference=self.difference.negative(),
            wins=self.losses,
            losses=self.wins,
        )


class RankedColumn:
    """The statistics of all systems in one column: an aspect, the share of a label, or the overall mean.

    Args:
        rows: the rows of all systems.
        name: the name of the column.
        values: the score of each row, [rows].
        ends: the lowest and the highest score.
        characters: the length of each row's candidate, [rows]; None if the effect of length is not wanted.
        human: the labels of some rows; None without any.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
        untested: why the scores have no intervals; empty if they have.
        is_sample: the instructions are the first of all, in random order: intervals hold at every look.
    """

    def __init__(
        self,
        rows: SystemRows,
        name: str,
        values: Floats,
        ends: tuple[int, int],
        characters: Floats | None,
        human: LabelledRows | None,
        resamples: int,
        seed: int,
        untested: str = "",
        is_sample: bool = False,
    ) -> None:
        self.name = name
        count = len(rows.systems)
        own = 0 if untested or is_sample else resamples
        cells = instruction_means(rows, values)
        answered = np.isfinite(cells)
        self.means = studentise(column_means(cells), *ends, resamples=own, seed=seed).estimates()
        if is_sample:
            self.means = ConfidenceSequence(cells, *ends).estimates()
        self.component = connected_systems(cells)
        same = means_on_same_instructions(cells)
        self.held = studentise(same, *ends, resamples=own, seed=seed).estimates()
        self.level = same.value
        self.human = [UNDEFINED] * count
        if human is not None:
            of_people = human.means(rows, values)
            self.human = studentise(of_people, *ends, resamples=resamples, seed=seed).estimates()
        self.length_held = means_at_equal_length(rows, values, ends, characters, own, seed)
        first, second = np.array(list(combinations(range(count), 2)), dtype=np.int32).reshape(-1, 2).T
        reach = ends[1] - ends[0]
        if human is None:
            paired = column_means(cells[:, first] - cells[:, second])
        elif answered[answered.any(axis=1)].all():
            paired, self.level = of_people.contrast(first, second), of_people.value
        else:
            paired = human.differences(rows, values, answered)
            self.level = _levels(paired.value, first, second, answered)
        drawn = own if human is None else resamples
        tested = studentise(paired, -reach, reach, symmetric=True, resamples=drawn, seed=seed)
        differences, p = tested.simultaneous(-reach, reach).estimates(), tested.adjusted()
        if is_sample:
            sequence = ConfidenceSequence(cells[:, first] - cells[:, second], -reach, reach, together=True)
            differences, p = sequence.estimates(), sequence.p
        self.pairs: list[Pair] = []
        wins = np.zeros((count, 2))
        for place, (a, b, difference) in enumerate(zip(first, second, differences, strict=True)):
            between = cells[:, a] - cells[:, b]
            between = between[np.isfinite(between)]
            won, lost = int((between > NO_DIFFERENCE).sum()), int((between < -NO_DIFFERENCE).sum())
            tied = len(between) - won - lost
            wins[a] += won + tied / 2, len(between)
            wins[b] += lost + tied / 2, len(between)
            self.pairs.append(
                Pair(
                    first=rows.systems[a],
                    second=rows.systems[b],
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
        lacking = "no instruction has both" if human is None else "too few common instructions have labels"
        why = [untested or (lacking if each.value is None else each.why) for each in differences]
        self.order = SystemOrder(rows.systems, first, second, paired.value, p, tested.detectable(), why)


def _levels(difference: Floats, first: Integers, second: Integers, answered: NDArray[np.bool_]) -> Floats:
    """Return the levels whose differences are nearest to those of the pairs, [systems]; NaN if unknown.

    Each pair has the weight of its common instructions (weighted least squares).

    Args:
        difference: the first system's advantage, [pairs]; NaN if it is not known.
        first: the first system of each pair, [pairs].
        second: the second system of each pair, [pairs].
        answered: whether each system answered each instruction, [groups, systems].
    """
    systems = np.arange(answered.shape[1])
    design = (first[:, None] == systems).astype(np.float64) - (second[:, None] == systems)
    weights = (answered[:, first] & answered[:, second]).sum(axis=0) * np.isfinite(difference)
    left = np.linalg.pinv(design.T @ (design * weights[:, None]), hermitian=True)
    levels = left @ design.T @ (weights * np.nan_to_num(difference))
    return np.where(np.abs(design).T @ weights > 0, levels, np.nan)
