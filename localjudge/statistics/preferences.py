"""A judge's preferences between systems as columns, one row for each pair of responses, and shares of wins."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from localjudge.arrays import Flags, Floats, Integers, RowArrays
from localjudge.statistics import Estimate
from localjudge.statistics.jackknife import Shares, exact_share
from localjudge.statistics.system_order import NO_DIFFERENCE


@dataclass(frozen=True, slots=True)
class Preferences(RowArrays):
    """The preferences of n pairs of responses in one aspect. The responses of a pair answer one instruction.

    `preference` is the probability that the input's first response is better, averaged over both orders.
    `shown_first` is the probability that the response shown first wins, in the input's order and in the other.
    `agree` is 1 if both orders name the same response and 0 if they name different ones. `length_difference`
    is log(1 + characters) of the first response minus that of the second. An order that was not
    judged is NaN; `agree` is NaN for one order, and if an order says a tie.
    """

    systems: tuple[str, ...]
    first: Integers  # [n]: the index of its system in `systems`
    second: Integers  # [n]
    group: Integers  # [n]: the number of the instruction, from 0
    preference: Floats  # [n]
    shown_first: Floats  # [n, 2]
    agree: Floats  # [n]
    length_difference: Floats  # [n]

    @property
    def groups(self) -> int:
        """Number of instructions."""
        return int(self.group.max()) + 1 if len(self.group) else 0

    @property
    def between(self) -> Preferences:
        """The pairs of two different systems."""
        return self.take(self.first != self.second)

    def by_instruction(self) -> Preferences:
        """Return the pairs sorted by instruction; the numbers of the instructions have no gaps."""
        order = np.argsort(self.group, kind="stable")
        sorted_pairs = self.take(order)
        _, group = np.unique(sorted_pairs.group, return_inverse=True)
        return replace(sorted_pairs, group=group)

    def components(self) -> Integers:
        """Return the number of each system's component, [systems].

        The systems of one component are compared with each other, directly or through other systems. Nothing
        is known about the order of systems of different components.
        """
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        entries = np.ones(len(self.first)), (self.first, self.second)
        compared = csr_array(entries, shape=(len(self.systems), len(self.systems)))
        numbers: Integers = connected_components(compared, directed=False)[1]
        return numbers


def system_win_rates(preferences: Preferences) -> Shares:
    """Return each system's share of wins against all others, from pairs of different systems, [systems]."""
    return Shares.from_values(
        np.concatenate([preferences.preference, 1 - preferences.preference]),
        np.concatenate([preferences.first, preferences.second]),
        len(preferences.systems),
        np.tile(preferences.group, 2),
    )


@dataclass(frozen=True, slots=True)
class DirectWins:
    """The comparisons of two systems with each other.

    Attributes:
        value: the preference for the first system of the pair of systems, [m].
        pair: the number of the pair of systems, [m].
        group: the number of the instruction, [m].
    """

    value: Floats
    pair: Integers
    group: Integers


@dataclass(frozen=True, slots=True)
class InstructionCounts:
    """The instructions on which the first of two systems is preferred on average, or neither, or the second.

    Attributes:
        wins: number of instructions where the first is preferred, [pairs].
        ties: number of those where neither is, [pairs].
        losses: number of those where the second is, [pairs].
    """

    wins: Integers
    ties: Integers
    losses: Integers


def direct_win_rates(preferences: Preferences, first: Integers, second: Integers) -> Shares:
    """Return the share of wins in each pair of systems, from pairs of different systems, [pairs].

    Args:
        preferences: the preferences.
        first: the index of each pair's first system, whose wins count, [pairs].
        second: the index of the second system, [pairs]; no two systems twice.
    """
    direct = _direct_wins(preferences, first, second)
    return Shares.from_values(direct.value, direct.pair, len(first), direct.group)


def instruction_counts(preferences: Preferences, first: Integers, second: Integers) -> InstructionCounts:
    """Count the instructions that each pair's first system wins, ties and loses, [pairs].

    Args:
        preferences, first, second: as for `direct_win_rates`.
    """
    direct, pairs = _direct_wins(preferences, first, second), len(first)
    # A cell has the comparisons of one pair of systems on one instruction.
    cells, cell = np.unique(direct.group.astype(np.int64) * pairs + direct.pair, return_inverse=True)
    mean = np.bincount(cell, direct.value, minlength=len(cells)) / np.bincount(cell, minlength=len(cells))
    of_pair = cells % pairs

    def count(chosen: Flags) -> Integers:
        counts: Integers = np.bincount(of_pair[chosen], minlength=pairs).astype(np.int32)
        return counts

    is_won, is_lost = mean > 0.5 + NO_DIFFERENCE, mean < 0.5 - NO_DIFFERENCE
    return InstructionCounts(wins=count(is_won), ties=count(~is_won & ~is_lost), losses=count(is_lost))


def _direct_wins(preferences: Preferences, first: Integers, second: Integers) -> DirectWins:
    count = len(preferences.systems)
    pair = np.full((count, count), -1)
    pair[first, second] = pair[second, first] = np.arange(len(first))
    in_order = np.zeros((count, count), dtype=np.bool_)
    in_order[first, second] = True
    here = preferences.take(pair[preferences.first, preferences.second] >= 0)
    at = here.first, here.second
    wins = np.where(in_order[at], here.preference, 1 - here.preference)
    return DirectWins(wins, pair[at].astype(np.int32), here.group)


@dataclass(frozen=True, slots=True)
class PositionEffect:
    """The effect of the place in the prompt.

    `share` is the win rate of the response shown first; one half if the place has no effect. `first` and
    `second` have each system's win rate in that place, and `consistency` is the share of the pairs without
    a tie in which both orders name the same response. If no pair has both orders, `share` includes the systems'
    difference.
    """

    share: Estimate
    first: tuple[Estimate, ...]  # [systems]
    second: tuple[Estimate, ...]  # [systems]
    consistency: Estimate
    has_both_orders: bool

    @classmethod
    def from_preferences(cls, preferences: Preferences) -> PositionEffect:
        """Measure the effect on the pairs that have both orders, or on all pairs if none has."""
        both = np.logical_and.reduce(np.isfinite(preferences.shown_first), axis=1)
        here = preferences.take(both) if both.any() else preferences
        wins = here.shown_first.T.ravel()
        first = np.concatenate([here.first, here.second])
        second = np.concatenate([here.second, here.first])
        group = np.tile(here.group, 2)
        judged = np.isfinite(wins)

        def share(values: Floats, part: Integers, parts: int) -> tuple[Estimate, ...]:
            shares = Shares.from_values(values[judged], part[judged], parts, group[judged])
            return tuple(shares.estimates())

        known = np.isfinite(here.agree)
        return cls(
            share=share(wins, np.zeros_like(first), 1)[0],
            first=share(wins, first, len(here.systems)),
            second=share(1 - wins, second, len(here.systems)),
            consistency=exact_share(here.agree[known] == 1, here.group[known]),
            has_both_orders=bool(both.any()),
        )
