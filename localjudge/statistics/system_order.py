"""Which system is significantly better, by scores or by preferences: the order of systems as far as two of them
at a time establish it, ranks that are not excluded, systems that do not differ, differences that cannot be
tested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.statistics import EQUAL_EVERYWHERE, NOT_DEFINED, UNDEFINED, Estimate, sign_test
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
from localjudge.system.quantities import counted

SIGNIFICANCE_LEVEL = 0.05
"""A difference between two systems is significant if its adjusted p is below this level."""

NO_DIFFERENCE = 1e-9
"""A difference up to this size is a rounding error of 0."""

_MOST_NAMED = 5
"""Largest number of pairs without a test that are named."""


class SystemOrder:
    """The significant differences between systems.

    Args:
        systems: the names of the systems.
        first: the index of the first system of each pair, [pairs].
        second: the index of the second system, [pairs].
        difference: the first system's advantage, [pairs]; NaN if the systems are not compared.
        p: its p-value, adjusted for all pairs, [pairs]; NaN if it cannot be computed.
        detectable: the difference of each pair that is found in 80 % of such samples, [pairs]; NaN likewise.
        why: why a pair has no p-value, [pairs]; empty if it has one.

    Attributes:
        ranks: the best and the worst rank of each system that the differences do not exclude.
        detectable: the difference that is found in 80 % of such samples between any two systems without a
            significant difference; None if there are none, or none has an interval.
        untested: the pairs of systems whose difference has no p-value, or is not known, each with the reason.
            Two systems that are equal on all instructions are not among them.
    """

    def __init__(
        self,
        systems: Sequence[str],
        first: Integers,
        second: Integers,
        difference: Floats,
        p: Floats,
        detectable: Floats,
        why: Sequence[str],
    ) -> None:
        self._systems = systems
        count = len(systems)
        better = np.zeros((count, count), dtype=np.bool_)
        better[first, second] = (p < SIGNIFICANCE_LEVEL) & (difference > 0)
        better[second, first] = (p < SIGNIFICANCE_LEVEL) & (difference < 0)
        self._joined = ~(better | better.T)
        equal = np.array([each == EQUAL_EVERYWHERE for each in why], dtype=np.bool_)
        tested = np.isfinite(p) | (equal & (np.abs(difference) <= NO_DIFFERENCE))
        self._joined[first, second] &= tested
        self._joined[second, first] &= tested
        self.untested = tuple(
            (systems[first[place]], systems[second[place]], why[place] or NOT_DEFINED)
            for place in np.flatnonzero(~tested).tolist()
        )
        missed = detectable[(p >= SIGNIFICANCE_LEVEL) & np.isfinite(detectable)]
        self.detectable = float(missed.max()) if len(missed) else None
        self.ranks = [
            (1 + int(better[:, system].sum()), count - int(better[system].sum())) for system in range(count)
        ]

    def groups(self, order: Sequence[int]) -> tuple[tuple[str, ...], ...]:
        """Return the largest sets of systems without a significant difference between any two, best first.

        Systems whose difference is not tested are in no set together.
        """
        place = {system: number for number, system in enumerate(order)}
        sets = [sorted(members, key=place.__getitem__) for members in _cliques(self._joined)]
        sets.sort(key=lambda members: [place[member] for member in members])
        return tuple(tuple(self._systems[member] for member in members) for members in sets)


def differences_in_words(
    where: str,
    groups: Sequence[Sequence[str]],
    untested: Sequence[tuple[str, str, str]],
    detectable: float | None = None,
) -> Iterator[str]:
    """Yield a line on the systems that do not differ significantly, and one on those that are not tested, for
    each reason.

    Args:
        where: what is compared, such as "in strength".
        groups: the sets of systems without a significant difference.
        untested: the pairs of systems with a difference that is not tested, and why.
        detectable: the difference that such samples find in 80 % of cases, if it is known.
    """
    together = [", ".join(group) for group in groups if len(group) > 1]
    if together:
        power = f" (of such runs, 80 % find a true difference of {detectable or 0:.2f})" * bool(detectable)
        each = f" within each of {len(together)} groups" * (len(together) > 1)
        yield f"No significant difference {where}{each}: {'; '.join(together)}{power}"
    elif not untested:
        yield f"All systems differ significantly {where}"
    for reason in dict.fromkeys(why for *_, why in untested):
        named = [f"{first} and {second}" for first, second, why in untested if why == reason]
        more = len(named) - _MOST_NAMED
        named = [*named[:_MOST_NAMED], *[counted(more, "more pair")] * (more > 0)]
        yield f"Unknown whether a difference {where} is significant, because {reason}: {'; '.join(named)}"


def _cliques(joined: Flags) -> set[frozenset[int]]:
    """Return the maximal cliques of a graph, from those among its first nodes."""
    cliques: set[frozenset[int]] = set()
    for node, joins in enumerate(joined):
        near = frozenset(np.flatnonzero(joins).tolist())
        cliques |= {clique & near | {node} for clique in cliques} | {frozenset([node])}
        cliques = {each for each in cliques if not any(each < other for other in cliques)}
    return cliques


@dataclass(frozen=True, slots=True)
class Pair:
    """The comparison of two systems on the instructions that both answered.

    `difference` is the mean of `first` minus the mean of `second` on these instructions, and `p` its p-value.
    The interval and `p` are adjusted for all pairs of the column: the interval excludes 0 exactly if `p` is
    below 0.05. With labels, they refer to the prediction-powered means. `wins`, `losses` and `ties` are numbers
    of instructions, by the judge's scores; a difference within the rounding error is a tie. `sign_p` is the
    p-value of the exact sign test of `wins` and `losses`, times the number of pairs (Bonferroni); None
    with `p`, with labels, and for scores that have no intervals.
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
    sign_p: float | None

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
    ) -> None:
        self.name = name
        count, reach = len(rows.systems), ends[1] - ends[0]
        of_judge = 0 if untested else resamples
        cells = instruction_means(rows, values)
        answered = np.isfinite(cells)
        same = means_on_same_instructions(cells)
        self.means, self.held = (
            studentise(means, *ends, resamples=of_judge, seed=seed).estimates()
            for means in (column_means(cells), same)
        )
        self.component, self.level, self.human = connected_systems(cells), same.value, [UNDEFINED] * count
        self.length_held = means_at_equal_length(rows, values, ends, characters, of_judge, seed)
        first, second = np.array(list(combinations(range(count), 2)), dtype=np.int32).reshape(-1, 2).T
        between = cells[:, first] - cells[:, second]
        if human is None:
            paired = column_means(between)
        else:
            of_people = human.means(rows, values)
            self.human = studentise(of_people, *ends, resamples=resamples, seed=seed).estimates()
            if answered[answered.any(axis=1)].all():
                paired, self.level = of_people.contrast(first, second), of_people.value
            else:
                paired = human.differences(rows, values, answered)
                self.level = _levels(paired.value, first, second, answered)
        drawn = of_judge if human is None else resamples
        tested = studentise(paired, -reach, reach, symmetric=True, resamples=drawn, seed=seed)
        differences, p = tested.simultaneous(-reach, reach).estimates(), tested.adjusted()
        wins, losses = (between > NO_DIFFERENCE).sum(axis=0), (between < -NO_DIFFERENCE).sum(axis=0)
        common = np.isfinite(between).sum(axis=0)
        has_sign_test = human is None and not untested
        columns = (common, differences, p, wins, losses)
        self.pairs = [
            Pair(
                first=rows.systems[a],
                second=rows.systems[b],
                column=name,
                instructions=int(instructions),
                difference=difference,
                p=float(chance) if np.isfinite(chance) else None,
                wins=int(won),
                losses=int(lost),
                ties=int(instructions - won - lost),
                sign_p=(
                    min(1.0, len(first) * sign_test(int(won), int(lost)))
                    if has_sign_test and instructions and not np.isfinite(chance)
                    else None
                ),
            )
            for a, b, instructions, difference, chance, won, lost in zip(first, second, *columns, strict=True)
        ]
        lacking = "no instruction has both" if human is None else "too few common instructions have labels"
        why = [untested or (lacking if each.value is None else each.why) for each in differences]
        self.order = SystemOrder(rows.systems, first, second, paired.value, p, tested.detectable(), why)


def _levels(difference: Floats, first: Integers, second: Integers, answered: Flags) -> Floats:
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
