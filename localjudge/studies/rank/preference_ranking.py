"""Compare systems by a judge's preferences: win rates, strengths, length held equal, and contradictions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from localjudge.arrays import Floats, Integers
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
from localjudge.statistics.resampling import RESAMPLES, Studentised
from localjudge.statistics.system_order import NO_DIFFERENCE, SIGNIFICANCE_LEVEL, SystemOrder
from localjudge.studies.rank.deciding_column import chosen_column
from localjudge.studies.rank.rows_of_systems import LostRows, lost_rows, rows_of_systems


@dataclass(frozen=True, slots=True)
class PreferenceRanking:
    """The comparison of systems by the preferences of a judge.

    Attributes:
        by: the aspect whose order of the systems decides.
        is_default: whether nobody named it.
        aspects: the order of the systems in each aspect.
        unnamed_pairs: number of pairs that do not name both systems, and are left out.
        lost: the systems with pairs that failed, and their win rates if they had lost or won these.
        notices: the notices of the runs.
    """

    by: str
    is_default: bool
    aspects: Mapping[str, PreferenceOrder]
    unnamed_pairs: int
    lost: tuple[LostRows, ...]
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

    Attributes:
        systems: the systems, from the best to the worst of each component.
        pairs: the comparison of each two systems.
        groups: the sets of systems whose strengths do not differ significantly.
        untested: the pairs of comparable systems whose difference of strengths has no p-value, and why.
        components: the sets of systems that are compared with each other, directly or through other systems.
        detectable: the difference of strengths that such runs find in 80 % of cases, between any two systems
            without a significant one.
        length: the change of the log-odds per unit of log(1 + characters); None if lengths are not known, or
            their effect cannot be told from that of the systems.
        position: the win rate of the response shown first.
        has_both_orders: whether pairs were judged in both orders; if not, `position` includes the systems'
            difference.
        consistency: the share of pairs without a tie whose orders name the same response.
        unlimited: whether the likelihood has no maximum (`localjudge.statistics.bradley_terry.Strengths`).
        unlimited_at_equal_length: whether it has none with length held equal.
        instructions: number of instructions with pairs of two systems.
        pairs_of_one_system: number of pairs of two responses of one system; they count for the position only.
    """

    systems: tuple[PreferredSystem, ...]
    pairs: tuple[SystemPair, ...]
    groups: tuple[tuple[str, ...], ...]
    untested: tuple[tuple[str, str, str], ...]
    components: tuple[tuple[str, ...], ...]
    detectable: float | None
    length: Estimate | None
    position: Estimate
    has_both_orders: bool
    consistency: Estimate
    unlimited: bool
    unlimited_at_equal_length: bool
    instructions: int
    pairs_of_one_system: int


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
    aspects = list(preferences)
    decides = chosen_column(by, aspects, default=aspects[0])
    lost = lost_rows(rows_of_systems(pairs), column=aspects.index(decides), ends=(0.0, 1.0))
    _, notices_on_names = pairs.names.names()
    return PreferenceRanking(
        by=decides,
        is_default=by is None,
        aspects={name: rank_preferences(preferences[name], resamples, seed=seed) for name in aspects},
        unnamed_pairs=len(pairs) - len(preferences[decides].first),
        lost=tuple(lost),
        notices=tuple(pairs.notices) + tuple(notices_on_names),
    )


def preferences_of(pairs: JudgedPairs) -> dict[str, Preferences]:
    """Return the preferences of the pairs that name both systems, in each aspect.

    Raises:
        UsageError: the runs' judges differ, or no pair names two systems.
    """
    check_one_judge(pairs.folders, pairs.manifests)
    table_names, _ = pairs.names.names()
    named: list[int] = []
    systems_of_pairs: list[tuple[str, str]] = []
    compares_systems = False
    for row, systems in enumerate(pairs.systems):
        first, second = systems
        if first is None or second is None:
            continue
        if first != second:
            compares_systems = True
        run = int(pairs.run[row])
        named.append(row)
        systems_of_pairs.append((table_names[run, first], table_names[run, second]))
    if not compares_systems:
        raise UsageError(
            f"{pairs.where}: no pair names two systems, which rank compares; name their "
            "columns with --column system_a=COLUMN and --column system_b=COLUMN when you judge"
        )
    names, numbers = np.unique(np.array(systems_of_pairs), return_inverse=True)
    first_system, second_system = numbers.reshape(-1, 2).astype(np.int32).T
    _, group = np.unique(pairs.group[named], return_inverse=True)
    log_lengths = np.log1p(pairs.lengths[named])
    return {
        aspect: Preferences(
            systems=tuple(names.tolist()),
            first=first_system,
            second=second_system,
            group=group.astype(np.int32),
            preference=verdicts.preference[named, 0],
            shown_first=verdicts.shown_first[named],
            agree=verdicts.same_response[named],
            length_difference=log_lengths[:, 0] - log_lengths[:, 1],
        )
        for aspect, verdicts in pairs.aspects.items()
    }


def rank_preferences(preferences: Preferences, resamples: int = RESAMPLES, seed: int = 0) -> PreferenceOrder:
    """Compare the systems of a judge's preferences in one aspect.

    Args:
        preferences: the preferences, with at least one pair of different systems.
        resamples: number of draws for the adjusted p-values.
        seed: seed of the draws.
    """
    between = preferences.between
    names = between.systems
    component = between.components()
    position = PositionEffect.from_preferences(preferences)
    strengths = fit_strengths(between)
    at_equal_length = fit_at_equal_length(between)

    first, second = _stronger_first(strengths.value)
    differences = strengths.differences(first, second).tested(resamples, seed).simultaneous()
    p_values = differences.adjusted()
    established = SystemOrder(
        names,
        first,
        second=second,
        difference=differences.value,
        p=p_values,
        detectable=differences.detectable(),
        why=differences.why,
    )
    best_first = sorted(
        range(len(names)), key=lambda system: (component[system], -strengths.value[system], names[system])
    )
    component_of = dict(zip(names, component.tolist(), strict=True))
    untested = [pair for pair in established.untested if component_of[pair[0]] == component_of[pair[1]]]
    systems = _preferred_systems(
        between,
        strengths=strengths,
        at_equal_length=at_equal_length,
        position=position,
        ranks=established.ranks,
        component=component,
    )
    pairs = _system_pairs(
        between,
        first=first,
        second=second,
        differences=differences,
        p_values=p_values,
        resamples=resamples,
        seed=seed,
    )
    return PreferenceOrder(
        systems=tuple(systems[system] for system in best_first),
        pairs=tuple(pairs),
        groups=established.groups(best_first),
        untested=tuple(untested),
        components=_sets(names, component),
        detectable=established.detectable,
        length=None if at_equal_length is None else at_equal_length.coefficient().estimates()[0],
        position=position.share,
        has_both_orders=position.has_both_orders,
        consistency=position.consistency,
        unlimited=strengths.unlimited,
        unlimited_at_equal_length=at_equal_length is not None and at_equal_length.unlimited,
        instructions=len(np.unique(between.group)),
        pairs_of_one_system=len(preferences.first) - len(between.first),
    )


def _stronger_first(strength: Floats) -> tuple[Integers, Integers]:
    """Return the stronger and the weaker system of each pair of systems, both [pairs]."""
    first, second = np.array(list(combinations(range(len(strength)), 2))).reshape(-1, 2).T
    is_weaker = strength[first] < strength[second]
    return np.where(is_weaker, second, first), np.where(is_weaker, first, second)


def _sets(names: Sequence[str], component: Integers) -> tuple[tuple[str, ...], ...]:
    """Return the systems of each component; `component` has the number of each system's, [systems]."""
    members: list[list[str]] = [[] for _ in range(int(component.max()) + 1)]
    for name, number in zip(names, component.tolist(), strict=True):
        members[number].append(name)
    return tuple(tuple(systems) for systems in members)


def _preferred_systems(
    between: Preferences,
    *,
    strengths: Strengths,
    at_equal_length: Strengths | None,
    position: PositionEffect,
    ranks: Sequence[tuple[int, int]],
    component: Integers,
) -> list[PreferredSystem]:
    """Return the statistics of each system.

    Args:
        between: the preferences between two systems.
        strengths: the strengths.
        at_equal_length: the strengths with length held equal; None if they are not known.
        position: the effect of the place in the prompt.
        ranks: the best and the worst rank of each system.
        component: the number of each system's component, from 0, [systems].
    """
    names = between.systems
    win_rates = system_win_rates(between).estimates()
    values = strengths.strengths().estimates()
    win_rates_at_equal_length: Sequence[Estimate | None] = [None] * len(names)
    values_at_equal_length: Sequence[Estimate | None] = [None] * len(names)
    if at_equal_length is not None:
        win_rates_at_equal_length = at_equal_length.win_rates().estimates()
        values_at_equal_length = at_equal_length.strengths().estimates()
    systems = []
    for system, name in enumerate(names):
        is_of_system = (between.first == system) | (between.second == system)
        systems.append(
            PreferredSystem(
                name=name,
                pairs=int(is_of_system.sum()),
                instructions=len(np.unique(between.group[is_of_system])),
                win_rate=win_rates[system],
                strength=values[system],
                ranks=ranks[system],
                component=int(component[system]) + 1,
                win_rate_at_equal_length=win_rates_at_equal_length[system],
                strength_at_equal_length=values_at_equal_length[system],
                shown_first=position.first[system],
                shown_second=position.second[system],
            )
        )
    return systems


def _system_pairs(
    between: Preferences,
    *,
    first: Integers,
    second: Integers,
    differences: Studentised,
    p_values: Floats,
    resamples: int,
    seed: int,
) -> list[SystemPair]:
    """Return the comparison of each two systems.

    Args:
        between: the preferences between two systems.
        first: the stronger system of each pair of systems, [pairs].
        second: the weaker one, [pairs].
        differences: the differences of their strengths.
        p_values: the p-values of these, [pairs]; NaN for one that cannot be tested.
        resamples: number of draws for the adjusted p-values of contradictions.
        seed: seed of the draws.
    """
    direct = direct_win_rates(between, first, second)
    win_rates = direct.estimates()
    is_contradicted = (differences.value > NO_DIFFERENCE) & (direct.value < 0.5 - NO_DIFFERENCE)
    contradiction_p = np.where(is_contradicted, direct.log_odds.tested(resamples, seed).adjusted(), np.nan)
    counts = instruction_counts(between, first, second)
    pairs = []
    for pair, difference in enumerate(differences.estimates()):
        pairs.append(
            SystemPair(
                first=between.systems[first[pair]],
                second=between.systems[second[pair]],
                pairs=int(direct.rows[pair]),
                win_rate=win_rates[pair],
                difference=difference,
                p=_finite(p_values[pair]),
                wins=int(counts.wins[pair]),
                ties=int(counts.ties[pair]),
                losses=int(counts.losses[pair]),
                sign_p=_sign_p(difference, counts, pair=pair),
                significant=_is_significant(p_values[pair]),
                contradicts=bool(is_contradicted[pair]),
                contradiction_p=_finite(contradiction_p[pair]),
                contradiction_significant=_is_significant(contradiction_p[pair]),
            )
        )
    return pairs


def _sign_p(difference: Estimate, counts: InstructionCounts, *, pair: int) -> float | None:
    """Return the adjusted p-value of the exact sign test of a pair of systems whose interval lacks an end."""
    if difference.low is not None and difference.high is not None:
        return None
    wins = int(counts.wins[pair])
    losses = int(counts.losses[pair])
    if wins + losses + int(counts.ties[pair]) == 0:
        return None
    return min(1.0, len(counts.wins) * sign_test(wins, losses))


def _finite(p: float) -> float | None:
    """Return a p-value; None if it cannot be computed."""
    return float(p) if math.isfinite(p) else None


def _is_significant(p: float) -> bool | None:
    """Return whether a p-value is significant; None if it cannot be computed."""
    return bool(p < SIGNIFICANCE_LEVEL) if math.isfinite(p) else None
