"""A judge's preferences between systems as columns, one row for each pair of responses, and shares of wins."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from localjudge.arrays import Floats, Integers, RowArrays
from localjudge.statistics import Estimate
from localjudge.statistics.exact_shares import exact_share
from localjudge.statistics.log_odds import Shares
from localjudge.statistics.system_order import NO_DIFFERENCE


@dataclass(frozen=True, slots=True)
class Preferences(RowArrays):
    """The preferences of n pairs of responses in one aspect. The responses of a pair answer one instruction.

    `preference` is the probability that the input's first response is better, averaged over both orders.
    `shown_first` is the probability that the response shown first wins, in the input's order and in the other.
    `agree` is 1 if both orders name the same response and 0 if they name different ones. `length_difference`
    is log(1 + characters) of the first response minus log(1 + characters) of the second. An order that was not
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
        sorted_pairs = self.take(np.argsort(self.group, kind="stable"))
        _, group = np.unique(sorted_pairs.group, return_inverse=True)
        return replace(sorted_pairs, group=group)

    def components(self) -> Integers:
        """Return the number of each system's component, [systems].

        The systems of one component are compared with each other, directly or through other systems. Nothing
        is known about the order of systems of different components.
        """
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        count = len(self.systems)
        entries = (np.ones(len(self.first)), (self.first, self.second))
        comparisons = csr_array(entries, shape=(count, count))
        _, component = connected_components(comparisons, directed=False)
        components: Integers = component
        return components


def system_win_rates(preferences: Preferences) -> Shares:
    """Return each system's share of wins against all others, from pairs of different systems, [systems]."""
    return Shares.from_values(
        np.concatenate([preferences.preference, 1 - preferences.preference]),
        np.concatenate([preferences.first, preferences.second]),
        parts=len(preferences.systems),
        group=np.tile(preferences.group, 2),
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
    direct = _direct_wins(preferences, first, second=second)
    return Shares.from_values(direct.value, direct.pair, parts=len(first), group=direct.group)


def instruction_counts(preferences: Preferences, first: Integers, second: Integers) -> InstructionCounts:
    """Count the instructions that each pair's first system wins, ties and loses, [pairs].

    Args:
        preferences, first, second: as for `direct_win_rates`.
    """
    direct = _direct_wins(preferences, first, second=second)
    pairs = len(first)
    # A cell has the comparisons of one pair of systems on one instruction.
    cells, cell = np.unique(direct.group.astype(np.int64) * pairs + direct.pair, return_inverse=True)
    cell_pair = cells % pairs  # [cells]
    totals = np.bincount(cell, direct.value, minlength=len(cells))
    means = totals / np.bincount(cell, minlength=len(cells))
    is_won = means > 0.5 + NO_DIFFERENCE
    is_lost = means < 0.5 - NO_DIFFERENCE
    is_tied = ~is_won & ~is_lost
    return InstructionCounts(
        wins=_counts_of_pairs(cell_pair[is_won], pairs),
        ties=_counts_of_pairs(cell_pair[is_tied], pairs),
        losses=_counts_of_pairs(cell_pair[is_lost], pairs),
    )


def _counts_of_pairs(pair: Integers, pairs: int) -> Integers:
    """Return how often each pair of systems occurs, [pairs]."""
    counts: Integers = np.bincount(pair, minlength=pairs).astype(np.int32)
    return counts


def _direct_wins(preferences: Preferences, first: Integers, second: Integers) -> DirectWins:
    """Return the preferences for the first system of each pair of systems, wherever its response stands.

    The arguments are as for `direct_win_rates`.
    """
    count = len(preferences.systems)
    pair = np.full((count, count), -1)  # the number of the pair of two systems; -1 for other systems
    pair[first, second] = np.arange(len(first))
    pair[second, first] = np.arange(len(first))
    is_in_order = np.zeros((count, count), dtype=np.bool_)
    is_in_order[first, second] = True
    direct = preferences.take(pair[preferences.first, preferences.second] >= 0)
    value = np.where(is_in_order[direct.first, direct.second], direct.preference, 1 - direct.preference)
    return DirectWins(value, pair[direct.first, direct.second].astype(np.int32), group=direct.group)


@dataclass(frozen=True, slots=True)
class PositionEffect:
    """The effect of the position in the prompt.

    `share` is the win rate of the response shown first; one half if the position has no effect. `first` and
    `second` have each system's win rate in that position, and `consistency` is the share of the pairs without
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
        has_both = np.logical_and.reduce(np.isfinite(preferences.shown_first), axis=1)  # [n]
        measured = preferences.take(has_both) if has_both.any() else preferences
        wins = measured.shown_first.T.ravel()  # [2 n]: the input's order, then the other
        is_judged = np.isfinite(wins)
        wins = wins[is_judged]
        shown_first = np.concatenate([measured.first, measured.second])[is_judged]
        shown_second = np.concatenate([measured.second, measured.first])[is_judged]
        group = np.tile(measured.group, 2)[is_judged]
        systems = len(measured.systems)
        share = Shares.from_values(wins, np.zeros_like(shown_first), parts=1, group=group)
        wins_as_first = Shares.from_values(wins, shown_first, parts=systems, group=group)
        wins_as_second = Shares.from_values(1 - wins, shown_second, parts=systems, group=group)
        has_verdicts = np.isfinite(measured.agree)
        return cls(
            share=share.estimates()[0],
            first=tuple(wins_as_first.estimates()),
            second=tuple(wins_as_second.estimates()),
            consistency=exact_share(measured.agree[has_verdicts] == 1, measured.group[has_verdicts]),
            has_both_orders=bool(has_both.any()),
        )
