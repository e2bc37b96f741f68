"""The order of systems as far as pairs establish it: ranks not excluded, systems that do not differ, and those
whose difference cannot be tested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from localjudge.arrays import Flags, Floats, Integers
from localjudge.statistics import EQUAL_EVERYWHERE, NOT_DEFINED
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
        known = np.isfinite(p) | (equal & (np.abs(difference) <= NO_DIFFERENCE))
        self._joined[first, second] &= known
        self._joined[second, first] &= known
        self.untested = tuple(
            (systems[first[place]], systems[second[place]], why[place] or NOT_DEFINED)
            for place in np.flatnonzero(~known).tolist()
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


def components(joined: Flags) -> Integers:
    """Return the number of each system's component, in the order of their first systems, [k].

    The systems of one component are joined, directly or through other systems.

    Args:
        joined: whether two systems are joined, [k, k]; symmetric.
    """
    _, numbers = np.unique(reached(joined).argmax(axis=1), return_inverse=True)
    return numbers.astype(np.int32)


def reached(joined: Flags) -> Flags:
    """Return whether each system leads to each other one, directly or through others, or is the same, [k, k].

    Args:
        joined: whether each system leads to each other one directly, [k, k].
    """
    known = joined | np.eye(len(joined), dtype=np.bool_)
    while ((further := known @ known) != known).any():
        known = further
    return known


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
        found = "" if detectable is None else f" ({detectable:.2f} would be found in 80 % of such runs)"
        yield f"No significant difference {where}: {'; '.join(together)}{found}"
    elif not untested:
        yield f"All systems differ significantly {where}"
    for reason in dict.fromkeys(why for *_, why in untested):
        named = [f"{first} and {second}" for first, second, why in untested if why == reason]
        more = len(named) - _MOST_NAMED
        named = [*named[:_MOST_NAMED], *[counted(more, "more pair")] * (more > 0)]
        yield f"Unknown whether a difference {where} is significant, because {reason}: {'; '.join(named)}"


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
