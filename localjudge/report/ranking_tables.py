"""Tables of a ranking by means or by preferences; those of means fit a terminal of 100 characters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from localjudge.report.gate_tables import gate_details, gate_parts
from localjudge.report.ranking_lines import adjustment, comparison_lines, preference_notes, ranking_notes
from localjudge.report.tables import Cell, Cells, Findings, Table, estimates_by_name
from localjudge.rubrics.score_column import is_share
from localjudge.statistics import UNDEFINED, Estimate, two_decimals
from localjudge.statistics.system_order import differences_in_words
from localjudge.studies.conditions import Condition
from localjudge.studies.rank import Ranking
from localjudge.studies.rank.preference_ranking import PreferenceOrder, PreferenceRanking
from localjudge.studies.rank.rows_of_systems import LostRows
from localjudge.system.quantities import counted, p_in_words, p_value

_SHARES_OF = {
    "integer": "the judge's answers",
    "expected": "the judge's probabilities",
    "calibrated": "calibrated probabilities",
}
_ALL_PAIRS = 6
"""Largest number of systems of which every pair is listed; of more, only the neighbours in their order."""
_OTHER_MEANS = (
    ("Mean human scores, prediction-powered", "human"),
    ("Means on the same instructions, by the additive model", "same_instructions"),
    ("Means at equal length", "length_held"),
)
_OVER_TAGS = "Significant differences are adjusted for all tags and all pairs of systems."
_WITH_INTERVALS = 6
"""Largest number of systems whose matrix of win rates has intervals."""
_WIDEST_MATRIX = 12
"""Largest number of systems whose matrix of win rates is printed."""
_MOST_LINES = 5
"""Largest number of significant contradictions, and of sign tests, that are printed."""


def ranking_findings(ranking: Ranking, conditions: Sequence[Condition] = ()) -> Findings:
    """Return the results of the tests in words, a gate, and tables of the systems and of the tags.

    The details are the other columns, the means by the human score, on the same instructions and at equal
    length, and the differences of the systems.
    """
    last, untested = ranking.columns[-1], bool(ranking.without_intervals)
    without = untested and ranking.basis == "judge"
    several = len(ranking.systems) > 1
    answer = [f"Differences are not tested: {ranking.without_intervals}"] * (several and without)
    answer += comparison_lines(ranking) if several and not without else ()
    details: dict[str, list[Table | str]] = {}
    if others := ranking.columns[:-1]:
        title = "Shares of the other labels" if all(map(is_share, ranking.columns)) else "Aspects"
        means = [(system.name, *map(system.means.get, others)) for system in ranking.systems]
        details[title.lower()] = [Table(title, ("system", *others), means)]
    for title, kind in _OTHER_MEANS:
        if _has_means(ranking, kind):
            means = [
                (system.name, *map((getattr(system, kind) or {}).get, ranking.columns))
                for system in ranking.systems
            ]
            table = Table(title, ("system", *ranking.columns), means)
            details[title[0].lower() + title[1:].partition(",")[0]] = [table]
    if several:
        title = f"Differences in {last}" + f", with 95 % intervals{adjustment(ranking)}" * (not without)
        details[f"differences in {last}"] = [_differences(title, ranking)]
    answer = [*_unranked(ranking.lost), *answer, *_left_out(ranking.lost, last)]
    main: list[Table | str] = [*gate_parts(conditions), _systems(ranking, untested)]
    main += [estimates_by_name(ranking.by_tag), _OVER_TAGS] if ranking.by_tag else []
    return Findings(answer, main, gate_details(conditions) | details, ranking.notices, ranking_notes(ranking))


def _unranked(lost: Sequence[LostRows]) -> Iterator[str]:
    """Yield which systems have no score."""
    for each in lost:
        if each.lost == each.rows:
            yield f"{each.system} has no score: all of its {each.rows:,} failed, so it is not ranked."


def _left_out(lost: Sequence[LostRows], column: str) -> Iterator[str]:
    """Yield how many rows of the other systems have no score, and what this could hide."""
    some = [
        f"{each.lost:,} of {each.rows:,} of {each.system} (mean {two_decimals(each.if_lowest)} to "
        f"{two_decimals(each.if_highest)})"
        for each in lost
        if each.lost < each.rows
    ]
    if some:
        yield (
            f"Failed, and left out: {', '.join(some)}. In brackets, the mean of {column} if these had the "
            "lowest or the highest value."
        )


def _systems(ranking: Ranking, untested: bool) -> Table:
    """Return the systems in the column that decides, with the means that decide their order and their ranks."""
    last = ranking.columns[-1]
    title = (
        f"Shares of {last} by system, from {_SHARES_OF[ranking.of]}"
        if is_share(last)
        else f"Mean {ranking.of} scores, each instruction with the same weight"
    )
    deciding = {"human": "human", "same_instructions": "same\ninstructions"}
    others = {name: kind for kind, name in deciding.items() if _has_means(ranking, kind, last)}
    rows: list[list[Cell]] = []
    for system in ranking.systems:
        means = [(getattr(system, kind) or {}).get(last) for kind in others.values()]
        length = None if system.length is None else round(system.length)
        counts = [length, system.rows, system.instructions]
        rows.append([system.name, system.means[last], *means, ranks(system.ranks[last]), *counts])
    columns = ("system", last, *others, "possible\nranks", "mean length\n(characters)", "rows", "instructions")
    return Table(title + ", with 95 % intervals" * (not untested), columns, rows)


def ranks(ends: tuple[int, int]) -> str:
    """Return the ranks that a system can have: "1", or "2 to 3"."""
    return " to ".join(map(str, dict.fromkeys(ends)))


def _has_means(ranking: Ranking, kind: str, column: str | None = None) -> bool:
    """Return whether a system has a mean of this kind, in this column or in any."""
    return any(
        each.value is not None
        for system in ranking.systems
        for name, each in (getattr(system, kind) or {}).items()
        if column in (None, name)
    )


def _differences(title: str, ranking: Ranking) -> Table:
    """Return the differences of the systems in the column that decides; the better system comes first."""
    every = len(ranking.systems) <= _ALL_PAIRS
    listed = combinations(ranking.systems, 2) if every else pairwise(ranking.systems)
    pairs = [ranking.compared(better, worse) for better, worse in listed]
    rows = [
        (
            f"{pair.first} minus {pair.second}",
            *(pair.difference, p_value(pair.p)),
            *(pair.wins, pair.ties, pair.losses, pair.instructions),
        )
        for pair in pairs
    ]
    return Table(title, ("difference", "value", "p", "higher", "equal", "lower", "instructions"), rows)


def preference_findings(ranking: PreferenceRanking, conditions: Sequence[Condition] = ()) -> Findings:
    """Return the results of the tests in the main aspect in words, a gate, and its strengths and win rates.

    The details are the win rates of each two systems, the effects of place and length, and all aspects. With up
    to twelve systems, the tables fit a width of 80 characters.
    """
    found, by = ranking.aspects[ranking.by], ranking.by
    details: dict[str, list[Table | str]] = {"effect of the position": [_position(found)]}
    if 2 < len(found.systems) <= _WIDEST_MATRIX:
        title = f"Win rates in {by}: the system of the row against that of the column"
        details["win rates of each two systems"] = [_matrix(title, found)]
    if found.length is not None:
        ends = (found.length.value, found.length.low, found.length.high)
        value, low, high = (None if end is None else _twice(end) for end in ends)
        twice = Estimate(value, low, high, found.length.why)
        held = [
            (each.name, each.strength_at_equal_length, each.win_rate_at_equal_length) for each in found.systems
        ]
        title = f"At equal length, {by}"
        table = Table(title, ("system", "strength", "win rate"), held, apart=["strength"])
        effect = f"A response twice as long has its odds of winning multiplied by {_or_why(twice)}"
        details["effect of length"] = [table, effect]
    if len(ranking.aspects) > 1:
        details["win rates in all aspects"] = [_aspects(ranking)]
    rows = [
        (
            *(each.name, each.strength, ranks(each.ranks), each.win_rate),
            *(each.shown_first, each.shown_second, each.pairs, each.instructions),
        )
        for each in found.systems
    ]
    shown = "win rate,\nshown 1st", "win rate,\nshown 2nd"
    strength = "strength\n(log-odds)"
    columns = "system", strength, "possible\nranks", "win rate", *shown, "pairs", "instructions"
    main = [*gate_parts(conditions), Table(f"Preferences in {by}", columns, rows, apart=[strength])]
    answer = [*_unranked(ranking.lost), *_preference_lines(found, by), *_left_out(ranking.lost, by)]
    return Findings(
        answer, main, gate_details(conditions) | details, ranking.notices, preference_notes(ranking)
    )


def win_rates(found: PreferenceOrder) -> dict[tuple[str, str], Estimate]:
    """Return the win rate of each system against each other one."""
    rates = {(pair.first, pair.second): pair.win_rate for pair in found.pairs}
    return rates | {(second, first): rate.complement() for (first, second), rate in rates.items()}


def _matrix(title: str, found: PreferenceOrder) -> Table:
    names, rates = [system.name for system in found.systems], win_rates(found)
    rows: list[list[Cell]] = []
    for number, name in enumerate(names, 1):
        own = [rates.get((name, other), UNDEFINED) for other in names]
        cells: list[Cell] = [*own]
        if len(names) > _WITH_INTERVALS:
            cells = [None if each.value is None else f"{each.value:.0%}" for each in own]
        cells[number - 1] = ""
        rows.append([f"{number} {name}", *cells])
    return Table(title, ("system", *(str(number) for number in range(1, len(names) + 1))), rows)


def _aspects(ranking: PreferenceRanking) -> Table:
    orders = ranking.aspects.values()
    rates = [{system.name: system.win_rate for system in found.systems} for found in orders]
    names = [system.name for system in ranking.aspects[ranking.by].systems]
    rows: list[Cells] = [(name, *(each[name] for each in rates)) for name in names]
    totals: list[Cells] = [
        ("first place", *(found.position for found in orders)),
        ("same response", *(found.consistency for found in orders)),
    ]
    return Table("Win rates in all aspects", ("system", *ranking.aspects), rows, totals)


def _preference_lines(found: PreferenceOrder, by: str) -> Iterator[str]:
    """Yield the results of the tests of strengths and win rates, a line each."""
    yield from differences_in_words(f"in strength ({by})", found.groups, found.untested, found.detectable)
    yield from _sign_test_lines(found)
    against = [pair for pair in found.pairs if pair.contradiction_significant]
    for pair in against[:_MOST_LINES]:
        rate = pair.win_rate.complement().in_words()
        yield f"Against the order of strengths: {pair.second} wins {rate} of its comparisons with {pair.first}"


def _sign_test_lines(found: PreferenceOrder) -> Iterator[str]:
    """Yield the exact sign tests of the pairs of systems whose difference has no interval, or an open one."""
    tested = [pair for pair in found.pairs if pair.sign_p is not None]
    tested.sort(key=lambda pair: pair.p is not None)  # those without another test first
    adjusted = f" adjusted for {len(found.pairs)} pairs" if len(found.pairs) > 1 else ""
    for pair in tested[:_MOST_LINES]:
        instructions = counted(pair.wins + pair.ties + pair.losses, "instruction")
        yield (
            f"Of {instructions}, {pair.first} wins {pair.wins:,} and loses {pair.losses:,} against "
            f"{pair.second} (exact sign test{adjusted}: {p_in_words(pair.sign_p or 0.0)})"
        )
    if len(tested) > _MOST_LINES:
        yield f"--json has the exact sign tests of {counted(len(tested) - _MOST_LINES, 'more pair')}"


def _position(found: PreferenceOrder) -> str:
    """Return the effect of the place in the prompt in words."""
    agree = found.consistency
    both = ""
    if agree.value is not None:
        both = f"; both orders name the same response in {agree.in_words()} of the pairs where each names one"
    return f"Position: the first place has a win rate of {_or_why(found.position)}{both}"


def _or_why(estimate: Estimate) -> str:
    """Return an estimate in words, with the reason if it has no interval."""
    lacks = estimate.ends("") is None and estimate.why
    return estimate.in_words() + (f", no interval: {estimate.why}" if lacks else "")


def _twice(coefficient: float) -> float:
    """Return the factor of the odds for a response of twice the length; beyond 10^6 it is only large."""
    return math.exp(min(coefficient * math.log(2), 6 * math.log(10)))
