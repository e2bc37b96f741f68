"""Terminal tables of a ranking by preferences; with up to twelve systems they fit a width of 80 characters.

Each value has its 95 % interval below it. An en dash means that a value is undefined.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from localjudge.analysis.pairs.preference_notes import cycles_in_words
from localjudge.analysis.pairs.preference_ranking import PreferenceOrder, PreferenceRanking
from localjudge.analysis.ranking.system_order import differences_in_words
from localjudge.analysis.statistics import UNDEFINED_SIGN, Estimate
from localjudge.cli.tables.table_parts import (
    headed,
    note_lines,
    plain_table,
    spaced,
    stacked,
    title_line,
)
from localjudge.system.quantities import counted

_WITH_INTERVALS = 6
"""Largest number of systems whose matrix of win rates has intervals."""

_WIDEST_MATRIX = 12
"""Largest number of systems whose matrix of win rates is printed."""

_MOST_LINES = 5
"""Largest number of significant contradictions that are printed."""


def preference_tables(ranking: PreferenceRanking) -> Group:
    """Return tables of the aspect that decides (strengths, win rates, equal length), and of all aspects."""
    found, by = ranking.aspects[ranking.by], ranking.by
    parts: list[RenderableType] = [title_line(f"Preferences in {by}", ranking.notices), _main(found)]
    if 2 < len(found.systems) <= _WIDEST_MATRIX:
        name = f"Win rates in {by}: the system of the row against that of the column"
        parts += [title_line(name, ranking.notices), _matrix(found)]
    if found.length is not None:
        parts += [title_line(f"At equal length, {by}", ranking.notices), _at_equal_length(found)]
    parts += [Text(line) for line in _lines(found, by)]
    if len(ranking.aspects) > 1:
        parts += [title_line("Win rates in all aspects", ranking.notices), _aspects(ranking)]
    return headed(ranking.notices, *spaced(parts), *note_lines(ranking.notes))


def _main(found: PreferenceOrder) -> Table:
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


def _lines(found: PreferenceOrder, by: str) -> Iterator[str]:
    """Yield what the tables do not say, a line each."""
    agree = found.consistency
    both = f"; both orders name the same response in {agree.in_words()} of the pairs without a tie"
    both *= agree.value is not None
    yield f"Position: the first place has a win rate of {found.position.in_words()}{both}"
    if found.length is not None:
        twice = Estimate(*(None if end is None else _twice(end) for end in _ends(found.length)))
        yield f"Length: a response twice as long has its odds of winning multiplied by {twice.in_words()}"
    yield from differences_in_words(f"in strength ({by})", found.groups, found.untested)
    against = [pair for pair in found.pairs if pair.contradicts]
    significant = [pair for pair in against if pair.significant]
    untested = sum(pair.significant is None for pair in against)
    if against:
        yield (
            f"Against the order of strengths: {len(against)} of {counted(len(found.pairs), 'pair')} of "
            f"systems, {len(significant) or 'none'} of them significantly"
            + (f", {untested} not tested" if untested else "")
        )
    for pair in significant[:_MOST_LINES]:
        yield f"{pair.second} wins {_other_side(pair.win_rate).in_words()} of its comparisons with {pair.first}"
    yield from cycles_in_words(found.cycles, found.significant_cycles)


def _ends(estimate: Estimate) -> tuple[float | None, ...]:
    return estimate.value, estimate.low, estimate.high


def _twice(coefficient: float) -> float:
    """Return the factor of the odds for a response of twice the length; beyond 10^6 it is only large."""
    return math.exp(min(coefficient * math.log(2), 6 * math.log(10)))
