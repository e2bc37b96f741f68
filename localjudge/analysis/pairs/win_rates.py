"""Shares of wins in a judge's preferences: of systems, of pairs of systems, and of the place in the prompt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localjudge.analysis.matching.scores import Floats, Integers
from localjudge.analysis.pairs.preferences import Preferences
from localjudge.analysis.statistics.interval import UNDEFINED, Estimate
from localjudge.analysis.statistics.jackknife import Shares, exact_share


def system_win_rates(preferences: Preferences) -> Shares:
    """Return each system's share of wins against all others, from pairs of different systems, [systems]."""
    return Shares.of(
        np.concatenate([preferences.preference, 1 - preferences.preference]),
        np.concatenate([preferences.first, preferences.second]),
        len(preferences.systems),
        np.tile(preferences.group, 2),
    )


def direct_win_rates(preferences: Preferences, first: Integers, second: Integers) -> Shares:
    """Return the share of wins in each pair of systems, from pairs of different systems, [pairs].

    Args:
        preferences: the preferences.
        first: the index of each pair's first system, whose wins count, [pairs].
        second: the index of the second system, [pairs]; no two systems twice.
    """
    count = len(preferences.systems)
    pair = np.full((count, count), -1)
    pair[first, second] = pair[second, first] = np.arange(len(first))
    in_order = np.zeros((count, count), dtype=np.bool_)
    in_order[first, second] = True
    here = preferences.take(pair[preferences.first, preferences.second] >= 0)
    at = here.first, here.second
    wins = np.where(in_order[at], here.preference, 1 - here.preference)
    return Shares.of(wins, pair[at], len(first), here.group)


@dataclass(frozen=True, slots=True)
class PositionEffect:
    """The effect of the place in the prompt.

    `share` is the win rate of the response shown first; one half if the place has no effect. `first` and
    `second` have each system's win rate in that place, and `consistency` is the share of the decided pairs
    in which both orders name the same response. If no pair has both orders, `share` includes the systems'
    difference.
    """

    share: Estimate
    first: tuple[Estimate, ...]  # [systems]
    second: tuple[Estimate, ...]  # [systems]
    consistency: Estimate
    has_both_orders: bool

    @classmethod
    def of(cls, preferences: Preferences) -> PositionEffect:
        """Measure the effect on the pairs that have both orders, or on all pairs if none has."""
        both = np.logical_and.reduce(np.isfinite(preferences.shown_first), axis=1)
        here = preferences.take(both) if both.any() else preferences
        wins = here.shown_first.T.ravel()
        first = np.concatenate([here.first, here.second])
        second = np.concatenate([here.second, here.first])
        group = np.tile(here.group, 2)
        judged = np.isfinite(wins)

        def share(values: Floats, part: Integers, parts: int) -> tuple[Estimate, ...]:
            shares = Shares.of(values[judged], part[judged], parts, group[judged])
            return tuple(shares.estimates())

        known = np.isfinite(here.agree)
        return cls(
            share=share(wins, np.zeros_like(first), 1)[0],
            first=share(wins, first, len(here.systems)),
            second=share(1 - wins, second, len(here.systems)),
            consistency=exact_share(here.agree[known] == 1, here.group[known]) if known.any() else UNDEFINED,
            has_both_orders=bool(both.any()),
        )
