"""Compare systems by a judge's preferences: win rates, strengths, length held equal, and contradictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from localjudge.arrays import Flags, Integers
from localjudge.errors import UsageError
from localjudge.matching.judged_rows import JudgedPairs
from localjudge.records import html_table
from localjudge.statistics import Estimate
from localjudge.statistics.bradley_terry import Strengths, fit_at_equal_length, fit_strengths
from localjudge.statistics.preferences import PositionEffect, Preferences, direct_win_rates, system_win_rates
from localjudge.statistics.resampling import RESAMPLES
from localjudge.statistics.system_order import NO_DIFFERENCE, SIGNIFICANCE_LEVEL, SystemOrder
from localjudge.studies.rank.preference_notes import notes_on_intervals, preference_notes
from localjudge.studies.rank.run_preferences import preferences_of

_STATISTICS = {
    "strength": "the strength",
    "win_rate": "the win rate",
    "shown_first": "the win rate in the first place",
    "shown_second": "the win rate in the second place",
    "strength_at_equal_length": "the strength at equal length",
    "win_rate_at_equal_length": "the win rate at equal length",
}
"""The estimates of a system, by their names in a `PreferredSystem`."""


@dataclass(frozen=True, slots=True)
class PreferenceRanking:
    """The comparison of systems by the preferences of a judge.

    `aspects` has the order of the systems in each aspect; that in the aspect `by` decides.
    """

    by: str
    aspects: Mapping[str, PreferenceOrder]
    notes: tuple[str, ...]
    notices: tuple[str, ...]

    def _repr_html_(self) -> str:
        lines = [
            {"system": each.name, "pairs": each.pairs, "win rate": each.win_rate, "strength": each.strength}
            for each in self.aspects[self.by].systems
        ]
        return html_table(lines, "\n".join([f"{self.by}, with 95 % intervals", *self.notes, *self.notices]))


@dataclass(frozen=True, slots=True)
class PreferredSystem:
    """The statistics of one system in one aspect.

    `win_rate` is the share of its comparisons that it wins; the judge's probability counts, and a tie as half.
    `component` numbers the sets of systems that are compared with each other, from 1. `strength` is in log-odds
    (the model of Bradley and Terry); the mean strength of a component is 0. `ranks` has the best and the worst
    rank that the differences of strengths do not exclude. The statistics
    `at_equal_length` are None if lengths are not known. `shown_first` and `shown_second` are its win rates in
    these places of the prompt.
    """

    name: str
    pairs: int
    instructions: int
    win_rate: Estimate
    strength: Estimate
    ranks: tuple[int, int]
    component: int
    win_rate_at_equal_length: Estimate | None
    strength_at_equal_length: Estimate | None
    shown_first: Estimate
    shown_second: Estimate


@dataclass(frozen=True, slots=True)
class SystemPair:
    """The comparison of two systems in one aspect; `first` has the greater strength.

    `win_rate` is the share of the pairs of responses that `first` wins, undefined if the two were not compared
    directly. `difference` is that of the strengths, and `p` its p-value; both the interval and `p` are adjusted
    for all pairs of systems. `contradicts` is True if the weaker system wins more often, and `significant` if
    that is significant; it is None if that cannot be tested.
    """

    first: str
    second: str
    pairs: int
    win_rate: Estimate
    difference: Estimate
    p: float | None
    contradicts: bool
    significant: bool | None


@dataclass(frozen=True, slots=True)
class PreferenceOrder:
    """The order of the systems in one aspect, from the best to the worst.

    `groups` has the sets of systems whose strengths do not differ significantly, and `untested` the pairs of
    comparable systems whose difference of strengths has no p-value, and why. `detectable` is the difference of
    strengths that such runs find in 80 % of cases, between any two systems without a significant one.
    `length` is the change of the log-odds per unit of log(1 + characters); None if lengths are not known.
    `position` is the win rate of the response shown first, and `consistency` the share of pairs without a tie
    whose orders name the same response.
    `cycles` has systems of which the first beats the second, the second the third, and the third the first;
    `significant_cycles` has those of them in which each of the three win rates is significant.
    `unlimited` is True if the likelihood has no maximum (`localjudge.statistics.bradley_terry.Strengths`).
    """

    systems: tuple[PreferredSystem, ...]
    pairs: tuple[SystemPair, ...]
    groups: tuple[tuple[str, ...], ...]
    untested: tuple[tuple[str, str, str], ...]
    detectable: float | None
    length: Estimate | None
    position: Estimate
    consistency: Estimate
    cycles: tuple[tuple[str, str, str], ...]
    significant_cycles: tuple[tuple[str, str, str], ...]
    unlimited: bool
    notes: tuple[str, ...]


def rank_pairs(
    pairs: JudgedPairs, by: str | None = None, resamples: int = RESAMPLES, seed: int = 0
) -> PreferenceRanking:
    """Compare the systems of a judge's runs that compare responses.

    Args:
        pairs: the judged pairs of the runs; those that do not name both systems are left out.
        by: the aspect that decides the order of the systems; by default the first.
        resamples: number of draws for the adjusted p-values.
        seed: seed of the draws.

    Raises:
        UsageError: there is no such aspect, the runs' judges differ, or no pair names two systems.
    """
    preferences = preferences_of(pairs)
    if by is not None and by not in preferences:
        raise UsageError(f"`by` {by}: give one of {', '.join(preferences)}")
    decides = by or next(iter(preferences))
    orders = {name: rank_preferences(each, resamples, seed) for name, each in preferences.items()}
    notes = []
    if by is None and len(orders) > 1:
        notes.append(
            f"{decides}, the first aspect, decides the order of the systems; rank --by chooses another"
        )
    if pairs.failed:
        notes.append(f"{pairs.failed} failed pairs are excluded")
    if unnamed := len(pairs) - len(preferences[decides].first):
        notes.append(f"{unnamed} pairs that do not name both systems are excluded")
    notes += orders[decides].notes
    if pairs.mass_note:
        notes.append(pairs.mass_note)
    return PreferenceRanking(decides, orders, tuple(notes), (*pairs.notices, *pairs.names.names()[1]))


def rank_preferences(preferences: Preferences, resamples: int = RESAMPLES, seed: int = 0) -> PreferenceOrder:
    """Compare the systems of a judge's preferences in one aspect.

    Args:
        preferences: the preferences, with at least one pair of different systems.
        resamples: number of draws for the adjusted p-values.
        seed: seed of the draws.
    """
    position = PositionEffect.from_preferences(preferences)
    between = preferences.between
    names, component = between.systems, between.components()
    strengths, held = fit_strengths(between), fit_at_equal_length(between)
    first, second = np.array(list(combinations(range(len(names)), 2))).reshape(-1, 2).T
    weaker = strengths.value[first] < strengths.value[second]
    first, second = np.where(weaker, second, first), np.where(weaker, first, second)
    tested = strengths.differences(first, second).tested(resamples, seed).simultaneous()
    p = tested.adjusted()
    established = SystemOrder(names, first, second, tested.value, p, tested.detectable(), tested.why)
    part = dict(zip(names, component.tolist(), strict=True))
    direct = direct_win_rates(between, first, second)
    against = (tested.value > NO_DIFFERENCE) & (direct.value < 0.5 - NO_DIFFERENCE)
    direct_p = direct.log_odds.tested(resamples, seed).adjusted()
    established_win = direct_p < SIGNIFICANCE_LEVEL
    order = sorted(range(len(names)), key=lambda s: (component[s], -strengths.value[s], names[s]))
    systems = _systems(between, strengths, held, position, established)
    length = None if held is None else held.coefficient().estimates()[0]
    pairs = [
        SystemPair(
            first=names[a],
            second=names[b],
            pairs=int(direct.rows[place]),
            win_rate=rate,
            difference=difference,
            p=float(p[place]) if np.isfinite(p[place]) else None,
            contradicts=bool(against[place]),
            significant=None
            if against[place] and np.isnan(direct_p[place])
            else bool(against[place] and established_win[place]),
        )
        for place, (a, b, rate, difference) in enumerate(
            zip(first.tolist(), second.tolist(), direct.estimates(), tested.estimates(), strict=True)
        )
    ]
    of_all = {
        "the effect of length": length,
        "the win rate of the first place": position.share,
        "the share of pairs without a tie whose orders name the same response": position.consistency,
    }
    wins, loses = direct.value > 0.5 + NO_DIFFERENCE, direct.value < 0.5 - NO_DIFFERENCE
    return PreferenceOrder(
        systems=tuple(systems[s] for s in order),
        pairs=tuple(pairs),
        groups=established.groups(order),
        untested=tuple(pair for pair in established.untested if part[pair[0]] == part[pair[1]]),
        detectable=established.detectable,
        length=length,
        position=position.share,
        consistency=position.consistency,
        cycles=_cycles(names, order, (first, second), wins, loses),
        significant_cycles=_cycles(
            names, order, (first, second), wins & established_win, loses & established_win
        ),
        unlimited=strengths.unlimited,
        notes=(
            *preference_notes(preferences, strengths, held, position),
            *notes_on_intervals(between, _estimates([systems[s] for s in order], pairs), of_all),
        ),
    )


def _estimates(
    systems: Sequence[PreferredSystem], pairs: Sequence[SystemPair]
) -> dict[str, dict[str, Estimate | None]]:
    """Return the estimates of each system, and of each pair of more than two systems, by what they are."""
    found = {
        statistic: {system.name: getattr(system, name) for system in systems}
        for name, statistic in _STATISTICS.items()
    }
    if len(systems) > 2:
        found["the win rate between two systems"] = {
            f"{pair.first} against {pair.second}": pair.win_rate for pair in pairs
        }
    return found


def _cycles(
    names: Sequence[str], order: Sequence[int], pairs: tuple[Integers, Integers], wins: Flags, loses: Flags
) -> tuple[tuple[str, str, str], ...]:
    """Return the systems of which each beats the next one, and the third the first.

    Args:
        names: the names of the systems.
        order: their indices, from the best to the worst.
        pairs: the indices of the first and of the second system of each pair, both [pairs].
        wins: whether the first system of a pair beats the second, [pairs].
        loses: whether the second beats the first, [pairs].
    """
    first, second = pairs
    beats = np.zeros((len(names), len(names)), dtype=np.bool_)
    beats[first, second], beats[second, first] = wins, loses
    return tuple(
        (names[a], names[b], names[c])
        for three in combinations(order, 3)
        for a, b, c in (three, (three[0], three[2], three[1]))
        if beats[a, b] and beats[b, c] and beats[c, a]
    )


def _systems(
    between: Preferences,
    strengths: Strengths,
    held: Strengths | None,
    position: PositionEffect,
    established: SystemOrder,
) -> list[PreferredSystem]:
    """Return the statistics of all systems, in the order of their indices."""
    win_rates = system_win_rates(between)
    rates, values = win_rates.estimates(), strengths.strengths().estimates()
    held_rates = None if held is None else held.win_rates().estimates()
    held_values = None if held is None else held.strengths().estimates()
    found = []
    for number, name in enumerate(between.systems):
        own = (between.first == number) | (between.second == number)
        found.append(
            PreferredSystem(
                name=name,
                pairs=int(own.sum()),
                instructions=len(np.unique(between.group[own])),
                win_rate=rates[number],
                strength=values[number],
                ranks=established.ranks[number],
                component=int(strengths.design.component[number]) + 1,
                win_rate_at_equal_length=held_rates[number] if held_rates else None,
                strength_at_equal_length=held_values[number] if held_values else None,
                shown_first=position.first[number],
                shown_second=position.second[number],
            )
        )
    return found
