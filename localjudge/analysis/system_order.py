"""The order of systems as far as pairs establish it: ranks not excluded, and systems that do not differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localjudge.analysis.scores import Floats, Integers

SIGNIFICANCE_LEVEL = 0.05
"""A difference between two systems is significant if its adjusted p is below this level."""


class SystemOrder:
    """The significant differences between systems.

    Args:
        systems: the names of the systems.
        first: the index of the first system of each pair, [pairs].
        second: the index of the second system, [pairs].
        difference: the first system's advantage, [pairs].
        p: its p-value, adjusted for all pairs, [pairs]; NaN if there is none.
        comparable: whether anything is known about the difference, [pairs]; by default all pairs. Systems of
            which nothing is known are in no group together.

    Attributes:
        ranks: the best and the worst rank of each system that the differences do not exclude.
    """

    def __init__(
        self,
        systems: Sequence[str],
        first: Integers,
        second: Integers,
        difference: Floats,
        p: Floats,
        comparable: NDArray[np.bool_] | None = None,
    ) -> None:
        self._systems = systems
        count = len(systems)
        better = np.zeros((count, count), dtype=np.bool_)
        better[first, second] = (p < SIGNIFICANCE_LEVEL) & (difference > 0)
        better[second, first] = (p < SIGNIFICANCE_LEVEL) & (difference < 0)
        self._joined = ~(better | better.T)
        if comparable is not None:
            self._joined[first, second] &= comparable
            self._joined[second, first] &= comparable
        self.ranks = [
            (1 + int(better[:, system].sum()), count - int(better[system].sum())) for system in range(count)
        ]

    def groups(self, order: Sequence[int]) -> tuple[tuple[str, ...], ...]:
        """Return the largest sets of systems without a significant difference between any two, best first."""
        place = {system: number for number, system in enumerate(order)}
        sets = [sorted(members, key=place.__getitem__) for members in _cliques(self._joined)]
        sets.sort(key=lambda members: [place[member] for member in members])
        return tuple(tuple(self._systems[member] for member in members) for members in sets)


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
