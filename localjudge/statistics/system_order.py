"""The order of systems that the tests of their differences establish, by scores or by preferences.

It has the ranks of each system that are not excluded, the systems without a significant difference, and the
differences that cannot be tested.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

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
        is_significant = p < SIGNIFICANCE_LEVEL  # [pairs]
        is_better = np.zeros((count, count), dtype=np.bool_)  # the row's system than the column's
        is_better[first, second] = is_significant & (difference > 0)
        is_better[second, first] = is_significant & (difference < 0)
        self.ranks = []
        for system in range(count):
            above = int(is_better[:, system].sum())
            below = int(is_better[system].sum())
            self.ranks.append((1 + above, count - below))

        are_equal = np.array([reason == EQUAL_EVERYWHERE for reason in why], dtype=np.bool_)
        is_tested = np.isfinite(p) | (are_equal & (np.abs(difference) <= NO_DIFFERENCE))  # [pairs]
        self._is_together = ~(is_better | is_better.T)  # [systems, systems]
        self._is_together[first, second] &= is_tested
        self._is_together[second, first] &= is_tested
        untested = []
        for pair in np.flatnonzero(~is_tested).tolist():
            reason = why[pair] if why[pair] else NOT_DEFINED
            untested.append((systems[first[pair]], systems[second[pair]], reason))
        self.untested = tuple(untested)

        is_missed = (p >= SIGNIFICANCE_LEVEL) & np.isfinite(detectable)
        self.detectable = float(detectable[is_missed].max()) if is_missed.any() else None

    def groups(self, order: Sequence[int]) -> tuple[tuple[str, ...], ...]:
        """Return the largest sets of systems without a significant difference between any two, best first.

        Systems whose difference is not tested are in no set together.
        """
        rank = {system: number for number, system in enumerate(order)}
        ranks_of_sets = []
        for members in _cliques(self._is_together):
            ranks_of_sets.append(sorted(rank[member] for member in members))
        groups = []
        for ranks in sorted(ranks_of_sets):
            groups.append(tuple(self._systems[order[number]] for number in ranks))
        return tuple(groups)


def differences_in_words(
    where: str,
    groups: Sequence[Sequence[str]],
    untested: Sequence[tuple[str, str, str]],
    detectable: float | None = None,
) -> Iterator[str]:
    """Yield a line on the systems that do not differ significantly, and one on each reason of untested pairs.

    Args:
        where: what is compared, such as "in strength".
        groups: the sets of systems without a significant difference.
        untested: the pairs of systems with a difference that is not tested, and why.
        detectable: the difference that such samples find in 80 % of cases, if it is known.
    """
    together = [", ".join(group) for group in groups if len(group) > 1]
    if together:
        within = f" within each of {len(together)} groups" if len(together) > 1 else ""
        power = ""
        if detectable:
            power = f" (of such runs, 80 % find a true difference of {detectable:.2f})"
        yield f"No significant difference {where}{within}: {'; '.join(together)}{power}"
    elif not untested:
        yield f"All systems differ significantly {where}"
    pairs_by_reason: dict[str, list[str]] = {}
    for first, second, reason in untested:
        pairs_by_reason.setdefault(reason, []).append(f"{first} and {second}")
    for reason, pairs in pairs_by_reason.items():
        names = pairs[:_MOST_NAMED]
        unnamed = len(pairs) - len(names)
        if unnamed:
            names.append(counted(unnamed, "more pair"))
        yield f"Unknown whether a difference {where} is significant, because {reason}: {'; '.join(names)}"


def _cliques(joined: Flags) -> set[frozenset[int]]:
    """Return the maximal cliques of a graph, from those among its first nodes."""
    cliques: set[frozenset[int]] = set()
    for node, joins in enumerate(joined):
        neighbours = frozenset(np.flatnonzero(joins).tolist())
        extended = {(clique & neighbours) | {node} for clique in cliques}
        cliques = _maximal(cliques | extended | {frozenset([node])})
    return cliques


def _maximal(sets: set[frozenset[int]]) -> set[frozenset[int]]:
    """Return the sets that are in no other one."""
    maximal = set()
    for members in sets:
        if not any(members < other for other in sets):
            maximal.add(members)
    return maximal
