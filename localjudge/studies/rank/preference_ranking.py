"""Compare systems by a judge's preferences: win rates, strengths, length held equal, and contradictions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from localjudge.errors import UsageError
from localjudge.matching.judged_rows import JudgedPairs
from localjudge.matching.scores import check_one_judge
from localjudge.statistics import Estimate, sign_test
from localjudge.statistics.bradley_terry import Strengths, fit_at_equal_length, fit_strengths
from localjudge.statistics.preferences import (
    InstructionCounts,
    PositionEffect,
    Preferences,
    direct_win_rates,
    instruction_counts,
    system_win_rates,
)
from localjudge.statistics.resampling import MIN_INSTRUCTIONS, RESAMPLES
from localjudge.statistics.system_order import NO_DIFFERENCE, SIGNIFICANCE_LEVEL, SystemOrder, sets_in_words
from localjudge.studies.rank import chosen_column
from localjudge.studies.rank.rows_of_systems import LostRows, lost_rows, rows_of_systems


@dataclass(frozen=True, slots=True)
class PreferenceRanking:
    """The comparison of systems by the preferences of a judge.

    `aspects` has the order of the systems in each aspect; that in the aspect `by` decides. `lost` has the
    systems with pairs that failed, and their win rates if they had lost or won these.
    """

    by: str
    aspects: Mapping[str, PreferenceOrder]
    lost: tuple[LostRows, ...]
    notes: tuple[str, ...]
    notices: tuple[str, ...]


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
    """The comparison of two systems in one aspect.

    Attributes:
        first: the system with the greater strength.
        second: the other system.
        pairs: number of pairs of their responses.
        win_rate: the share of these that `first` wins; undefined if the two were not compared directly.
        difference: the difference of the strengths. Its interval and `p` are adjusted for all pairs of systems.
        p: the p-value of the difference; None if it cannot be tested.
        wins: number of instructions on which the judge prefers `first` on average, of those where the two were
            compared directly.
        ties: number of those on which it prefers neither.
        losses: number of those on which it prefers `second`.
        sign_p: without an interval of the difference, or with one that is open at an end, the p-value of the
            exact sign test of `wins` and `losses`, times the number of pairs of systems (Bonferroni). None with
            two ends, and if the two were not compared directly.
        significant: whether the difference is significant, `p` below 0.05; None if it cannot be tested.
        contradicts: whether the weaker system wins more often, significantly or not.
        contradiction_p: the p-value of that win rate, adjusted for all pairs of systems; None without a
            contradiction, and if it cannot be tested.
        contradiction_significant: whether `contradiction_p` is below 0.05; None if there is none.
    """

    first: str
    second: str
    pairs: int
    win_rate: Estimate
    difference: Estimate
    p: float | None
    wins: int
    ties: int
    losses: int
    sign_p: float | None
    significant: bool | None
    contradicts: bool
    contradiction_p: float | None
    contradiction_significant: bool | None


@dataclass(frozen=True, slots=True)
class PreferenceOrder:
    """The order of the systems in one aspect, from the best to the worst.

    `groups` has the sets of systems whose strengths do not differ significantly, and `untested` the pairs of
    comparable systems whose difference of strengths has no p-value, and why. `detectable` is the difference of
    strengths that such runs find in 80 % of cases, between any two systems without a significant one.
    `length` is the change of the log-odds per unit of log(1 + characters); None if lengths are not known.
    `position` is the win rate of the response shown first, and `consistency` the share of pairs without a tie
    whose orders name the same response.
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
    decides = chosen_column(by, [*preferences], next(iter(preferences)))
    orders = {name: rank_preferences(each, resamples, seed) for name, each in preferences.items()}
    notes = []
    if by is None and len(orders) > 1:
        notes.append(
            f"{decides}, the first aspect, decides the order of the systems; rank --by chooses another"
        )
    if unnamed := len(pairs) - len(preferences[decides].first):
        notes.append(f"{unnamed} pairs that do not name both systems are excluded")
    notes += orders[decides].notes
    lost = lost_rows(rows_of_systems(pairs), [*orders].index(decides), (0.0, 1.0))
    notices = (*pairs.notices, *pairs.names.names()[1])
    return PreferenceRanking(decides, orders, tuple(lost), tuple(notes), notices)


def preferences_of(pairs: JudgedPairs) -> dict[str, Preferences]:
    """Return the preferences of the pairs that name both systems, in each aspect.

    Raises:
        UsageError: the runs' judges differ, or no pair names two systems.
    """
    check_one_judge(pairs.folders, pairs.manifests)
    named = [place for place, systems in enumerate(pairs.systems) if None not in systems]
    if all(first == second for first, second in (pairs.systems[place] for place in named)):
        raise UsageError(
            f"{pairs.where}: no pair names two systems, which rank compares; name their "
            "columns with --column system_a=COLUMN and --column system_b=COLUMN when you judge"
        )
    names, _ = pairs.names.names()
    compared = [[names[pairs.run[place], system] for system in pairs.systems[place]] for place in named]
    order, places = np.unique(np.array(compared), return_inverse=True)
    first, second = places.reshape(-1, 2).astype(np.int32).T
    lengths = np.log1p(pairs.lengths[named])
    return {
        name: Preferences(
            systems=tuple(order.tolist()),
            first=first,
            second=second,
            group=np.unique(pairs.group[named], return_inverse=True)[1].astype(np.int32),
            preference=verdicts.preference[named, 0],
            shown_first=verdicts.shown_first[named],
            agree=verdicts.same_response[named],
            length_difference=lengths[:, 0] - lengths[:, 1],
        )
        for name, verdicts in pairs.aspects.items()
    }


def rank_preferences(preferences: Preferences, resamples: int = RESAMPLES, seed: int = 0) -> PreferenceOrder:
    """Compare the systems of a judge's preferences in one aspect.

    Args:
        preferences: the preferences, with at least one pair of different systems.
        resamples: number of draws for the adjusted p-values.
        seed: seed of the draws.
    """
    position, between = PositionEffect.from_preferences(preferences), preferences.between
    names, component, count = between.systems, between.components(), len(between.systems)
    strengths, held = fit_strengths(between), fit_at_equal_length(between)
    first, second = np.array(list(combinations(range(count), 2))).reshape(-1, 2).T
    weaker = strengths.value[first] < strengths.value[second]
    first, second = np.where(weaker, second, first), np.where(weaker, first, second)
    tested = strengths.differences(first, second).tested(resamples, seed).simultaneous()
    p = tested.adjusted()
    established = SystemOrder(names, first, second, tested.value, p, tested.detectable(), tested.why)
    direct = direct_win_rates(between, first, second)
    contradicts = (tested.value > NO_DIFFERENCE) & (direct.value < 0.5 - NO_DIFFERENCE)
    direct_p = direct.log_odds.tested(resamples, seed).adjusted()
    contradiction_p = np.where(contradicts, direct_p, np.nan)
    order = sorted(range(count), key=lambda s: (component[s], -strengths.value[s], names[s]))
    rates, values = system_win_rates(between).estimates(), strengths.strengths().estimates()
    held_rates = [None] * count if held is None else held.win_rates().estimates()
    held_values = [None] * count if held is None else held.strengths().estimates()
    of_system = [(between.first == number) | (between.second == number) for number in range(count)]
    systems = tuple(
        PreferredSystem(
            name=names[number],
            pairs=int(of_system[number].sum()),
            instructions=len(np.unique(between.group[of_system[number]])),
            win_rate=rates[number],
            strength=values[number],
            ranks=established.ranks[number],
            component=int(component[number]) + 1,
            win_rate_at_equal_length=held_rates[number],
            strength_at_equal_length=held_values[number],
            shown_first=position.first[number],
            shown_second=position.second[number],
        )
        for number in order
    )
    counts = instruction_counts(between, first, second)
    columns = (first, second, direct.estimates(), tested.estimates())
    pairs = tuple(
        SystemPair(
            first=names[stronger],
            second=names[other],
            pairs=int(direct.rows[place]),
            win_rate=rate,
            difference=difference,
            p=_known(p[place]),
            wins=int(counts.wins[place]),
            ties=int(counts.ties[place]),
            losses=int(counts.losses[place]),
            sign_p=_sign_p(difference, counts, place),
            significant=_is_significant(p[place]),
            contradicts=bool(contradicts[place]),
            contradiction_p=_known(contradiction_p[place]),
            contradiction_significant=_is_significant(contradiction_p[place]),
        )
        for place, (stronger, other, rate, difference) in enumerate(zip(*columns, strict=True))
    )
    length = None if held is None else held.coefficient().estimates()[0]
    return PreferenceOrder(
        systems=systems,
        pairs=pairs,
        groups=established.groups(order),
        untested=tuple(
            (one, other, why)
            for one, other, why in established.untested
            if component[names.index(one)] == component[names.index(other)]
        ),
        detectable=established.detectable,
        length=length,
        position=position.share,
        consistency=position.consistency,
        unlimited=strengths.unlimited,
        notes=tuple(_notes(preferences, strengths, held, position)),
    )


def _sign_p(difference: Estimate, counts: InstructionCounts, place: int) -> float | None:
    """Return the adjusted p-value of the exact sign test of a pair of systems whose interval lacks an end."""
    if difference.low is not None and difference.high is not None:
        return None
    wins, losses = int(counts.wins[place]), int(counts.losses[place])
    if wins + losses + int(counts.ties[place]) == 0:
        return None
    return min(1.0, len(counts.wins) * sign_test(wins, losses))


def _known(p: float) -> float | None:
    """Return a p-value; None if it cannot be computed."""
    return float(p) if math.isfinite(p) else None


def _is_significant(p: float) -> bool | None:
    """Return whether a p-value is significant; None if it cannot be computed."""
    return bool(p < SIGNIFICANCE_LEVEL) if math.isfinite(p) else None


def _notes(
    preferences: Preferences, strengths: Strengths, held: Strengths | None, position: PositionEffect
) -> Iterator[str]:
    """Yield the notes on the order of the systems in one aspect.

    Args:
        preferences: the preferences.
        strengths: the strengths.
        held: the strengths with length held equal; None if they are not known.
        position: the effect of the place in the prompt.
    """
    between = preferences.between
    if of_one := len(preferences.first) - len(between.first):
        yield f"{of_one} pairs have two responses of one system; they count for the position only"
    yield from sets_in_words("strengths", between.systems, strengths.design.component)
    if strengths.unlimited:
        yield (
            "some systems always win or always lose, so the strengths have no most likely values: the fit "
            "counts one more instruction of ties, and an interval is open where the pairs set no bound"
        )
    elif held is not None and held.unlimited:
        yield (
            "at equal length the strengths have no most likely values, because length decides almost always: "
            "the fit counts one more instruction of ties"
        )
    if len(np.unique(between.group)) < MIN_INSTRUCTIONS:
        yield f"there are no intervals below {MIN_INSTRUCTIONS} instructions"
    if not position.has_both_orders:
        yield (
            "each pair was judged in one order only: the wins of the response shown first include the systems' "
            "difference"
        )
    if held is None:
        yield "the effect of length cannot be told from that of the systems"
