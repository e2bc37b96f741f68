"""Terminal tables of a ranking by means or by preferences; those of means fit a width of 100 characters.

Each value has its 95 % interval below it. An en dash means that a value is undefined.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from localjudge.analysis.pairs.preference_notes import cycles_in_words
from localjudge.analysis.pairs.preference_ranking import PreferenceOrder, PreferenceRanking
from localjudge.analysis.ranking import Ranking, SystemRank, adjustment, compared, comparison_lines, p_value
from localjudge.analysis.ranking.system_order import differences_in_words
from localjudge.analysis.statistics import UNDEFINED, UNDEFINED_SIGN, Estimate
from localjudge.cli.tables.table_parts import answered, plain_table, stacked, title_line
from localjudge.rubrics.score_column import heading, is_share

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
_WITH_INTERVALS = 6
"""Largest number of systems whose matrix of win rates has intervals."""
_WIDEST_MATRIX = 12
"""Largest number of systems whose matrix of win rates is printed."""
_MOST_LINES = 5
"""Largest number of significant contradictions that are printed."""


def ranking_tables(ranking: Ranking, all_tables: bool = False) -> Group:
    """Return what the tests say, and a table of the systems in the column that decides.

    The details are the other columns, the means by the human score, on the same instructions and at equal
    length, and the differences of the systems.
    """
    last, untested = ranking.columns[-1], bool(ranking.without_intervals)
    without = untested and ranking.basis == "judge"
    answer: list[str] = []
    if len(ranking.systems) > 1:
        answer = (
            [f"Differences are not tested: {ranking.without_intervals}"]
            if without
            else [*comparison_lines(ranking)]
        )
    title = (
        f"Shares of {last} by system, from {_SHARES_OF[ranking.of]}"
        if is_share(last)
        else f"Mean {ranking.of} scores of the systems"
    )
    title += ", with 95 % intervals" * (not untested)
    details: dict[str, list[RenderableType]] = {}
    if len(ranking.columns) > 1:
        means = plain_table("system", *map(heading, ranking.columns[:-1]))
        for system in ranking.systems:
            means.add_row(*_named(system, {name: system.means[name] for name in ranking.columns[:-1]}))
        others = "Shares of the other labels" if all(map(is_share, ranking.columns)) else "Aspects"
        details[others.lower()] = [title_line(others, ranking.notices), means]
    for name, kind in _OTHER_MEANS:
        if _has_means(ranking, kind):
            table = plain_table("system", *map(heading, ranking.columns))
            for system in ranking.systems:
                table.add_row(*_named(system, getattr(system, kind)))
            details[name[0].lower() + name[1:].partition(",")[0]] = [title_line(name, ranking.notices), table]
    if len(ranking.systems) > 1:
        differences = f"Differences in {last}" + f", with 95 % intervals{adjustment(ranking)}" * (not without)
        details[f"differences in {last}"] = [title_line(differences, ranking.notices), _differences(ranking)]
    return answered(
        answer,
        [title_line(title, ranking.notices), _systems(ranking)],
        details,
        all_tables=all_tables,
        notices=ranking.notices,
        notes=ranking.notes,
    )


def _systems(ranking: Ranking) -> Table:
    """Return the systems in the column that decides, with the means that decide their order and their ranks."""
    last = ranking.columns[-1]
    deciding = {"human": "human", "same_instructions": "same instr."}
    others = {name: kind for kind, name in deciding.items() if _has_means(ranking, kind, last)}
    table = plain_table("system", heading(last), *others, "rank", "win rate", "length", "rows", "instructions")
    for system in ranking.systems:
        best, worst = system.ranks[last]
        wins = system.win_rate[last]
        table.add_row(
            system.name,
            stacked(system.means[last]),
            *(stacked((getattr(system, kind) or {}).get(last, UNDEFINED)) for kind in others.values()),
            str(best) if best == worst else f"{best}-{worst}",
            UNDEFINED_SIGN if wins is None else f"{wins:.0%}",
            UNDEFINED_SIGN if system.length is None else f"{system.length:.0f}",
            str(system.rows),
            str(system.instructions),
        )
    return table


def _has_means(ranking: Ranking, kind: str, column: str | None = None) -> bool:
    """Return whether a system has a mean of this kind, in this column or in any."""
    return any(
        each.value is not None
        for system in ranking.systems
        for name, each in (getattr(system, kind) or {}).items()
        if column in (None, name)
    )


def _differences(ranking: Ranking) -> Table:
    """Return the differences of the systems in the column that decides; the better system comes first."""
    every = len(ranking.systems) <= _ALL_PAIRS
    listed = combinations(ranking.systems, 2) if every else pairwise(ranking.systems)
    table = plain_table("difference", "value", "p", "higher", "equal", "lower", "instructions")
    for better, worse in listed:
        pair = compared(ranking, better, worse)
        counts = (pair.wins, pair.ties, pair.losses, pair.instructions)
        table.add_row(
            f"{better.name} minus {worse.name}", stacked(pair.difference), p_value(pair.p), *map(str, counts)
        )
    return table


def _named(system: SystemRank, means: Mapping[str, Estimate] | None) -> list[Text | str]:
    return [system.name, *(stacked(each) for each in (means or {}).values())]


def preference_tables(ranking: PreferenceRanking, all_tables: bool = False) -> Group:
    """Return what the tests say of the aspect that decides, and a table of its strengths and win rates.

    The details are the win rates of each two systems, the effects of place and length, and all aspects. With up
    to twelve systems, the tables fit a width of 80 characters.
    """
    found, by = ranking.aspects[ranking.by], ranking.by
    details: dict[str, list[RenderableType]] = {"effect of the position": [Text(_position(found))]}
    if 2 < len(found.systems) <= _WIDEST_MATRIX:
        name = f"Win rates in {by}: the system of the row against that of the column"
        details["win rates of each two systems"] = [title_line(name, ranking.notices), _matrix(found)]
    if found.length is not None:
        title = title_line(f"At equal length, {by}", ranking.notices)
        twice = Estimate(*(None if end is None else _twice(end) for end in _ends(found.length)))
        effect = f"A response twice as long has its odds of winning multiplied by {twice.in_words()}"
        details["effect of length"] = [title, _at_equal_length(found), Text(effect)]
    if len(ranking.aspects) > 1:
        title = title_line("Win rates in all aspects", ranking.notices)
        details["win rates in all aspects"] = [title, _aspects(ranking)]
    return answered(
        _preference_lines(found, by),
        [title_line(f"Preferences in {by}", ranking.notices), _strengths(found)],
        details,
        all_tables=all_tables,
        notices=ranking.notices,
        notes=ranking.notes,
    )


def _strengths(found: PreferenceOrder) -> Table:
    table = plain_table("system", "strength", "rank", "win rate", "shown\n1st", "shown\n2nd", "pairs", "instr.")
    for system in found.systems:
        best, worst = system.ranks
        estimates = (system.win_rate, system.shown_first, system.shown_second)
        table.add_row(
            system.name,
            stacked(system.strength),
            str(best) if best == worst else f"{best}-{worst}",
            *map(stacked, estimates),
            str(system.pairs),
            str(system.instructions),
        )
    return table


def _matrix(found: PreferenceOrder) -> Table:
    names = [system.name for system in found.systems]
    rates: dict[tuple[str, str], Estimate] = {}
    for pair in found.pairs:
        rates[pair.first, pair.second] = pair.win_rate
        rates[pair.second, pair.first] = _other_side(pair.win_rate)
    table = plain_table("system", *(str(number) for number in range(1, len(names) + 1)))
    for number, name in enumerate(names, 1):
        cells = (rates.get((name, other), Estimate()) for other in names)
        if len(names) <= _WITH_INTERVALS:
            row = [stacked(cell) for cell in cells]
        else:
            row = [UNDEFINED_SIGN if cell.value is None else f"{cell.value:.0%}" for cell in cells]
        row[number - 1] = ""
        table.add_row(f"{number} {name}", *row)
    return table


def _other_side(rate: Estimate) -> Estimate:
    """Return the win rate of the other system of a pair."""
    value, low, high = (None if end is None else 1 - end for end in (rate.value, rate.high, rate.low))
    return Estimate(value, low, high)


def _at_equal_length(found: PreferenceOrder) -> Table:
    table = plain_table("system", "strength", "win rate")
    for system in found.systems:
        table.add_row(
            system.name,
            stacked(system.strength_at_equal_length or Estimate()),
            stacked(system.win_rate_at_equal_length or Estimate()),
        )
    return table


def _aspects(ranking: PreferenceRanking) -> Table:
    table = plain_table("system", *ranking.aspects)
    rates = {
        aspect: {system.name: system.win_rate for system in found.systems}
        for aspect, found in ranking.aspects.items()
    }
    for system in ranking.aspects[ranking.by].systems:
        table.add_row(system.name, *(stacked(rates[aspect][system.name]) for aspect in ranking.aspects))
    table.add_section()
    for name, statistic in (("first place", "position"), ("same response", "consistency")):
        table.add_row(name, *(stacked(getattr(found, statistic)) for found in ranking.aspects.values()))
    return table


def _preference_lines(found: PreferenceOrder, by: str) -> Iterator[str]:
    """Yield what the tests of the strengths and win rates say, a line each."""
    yield from differences_in_words(f"in strength ({by})", found.groups, found.untested, found.detectable)
    against = [pair for pair in found.pairs if pair.contradicts and pair.significant]
    for pair in against[:_MOST_LINES]:
        rate = _other_side(pair.win_rate).in_words()
        yield f"Against the order of strengths: {pair.second} wins {rate} of its comparisons with {pair.first}"
    yield from cycles_in_words(found.cycles, found.significant_cycles)


def _position(found: PreferenceOrder) -> str:
    """Return the effect of the place in the prompt in words."""
    agree = found.consistency
    both = f"; both orders name the same response in {agree.in_words()} of the pairs without a tie"
    both *= agree.value is not None
    return f"Position: the first place has a win rate of {found.position.in_words()}{both}"


def _ends(estimate: Estimate) -> tuple[float | None, ...]:
    return estimate.value, estimate.low, estimate.high


def _twice(coefficient: float) -> float:
    """Return the factor of the odds for a response of twice the length; beyond 10^6 it is only large."""
    return math.exp(min(coefficient * math.log(2), 6 * math.log(10)))
