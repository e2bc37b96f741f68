"""Tables of a ranking by preferences; with up to twelve systems, they fit a terminal of 80 characters."""

from __future__ import annotations

from collections.abc import Sequence

from localjudge.report.gate_tables import gate_details, gate_parts
from localjudge.report.preference_lines import length_line, position_line, preference_lines, preference_notes
from localjudge.report.ranking_lines import left_out_rows, possible_ranks, unranked_systems
from localjudge.report.tables import Cell, Findings, Table
from localjudge.statistics import UNDEFINED, Estimate
from localjudge.studies.conditions import Condition
from localjudge.studies.rank.preference_ranking import PreferenceOrder, PreferenceRanking

_WITH_INTERVALS = 6
"""Largest number of systems whose matrix of win rates has intervals."""
_WIDEST_MATRIX = 12
"""Largest number of systems whose matrix of win rates is printed."""


def preference_findings(ranking: PreferenceRanking, conditions: Sequence[Condition] = ()) -> Findings:
    """Return the results of the tests in the main aspect in words, a gate, and its strengths and win rates.

    The details are the win rates of each two systems, the effects of position and length, and all aspects.
    """
    aspect = ranking.by
    order = ranking.aspects[aspect]
    answer = list(unranked_systems(ranking.lost))
    answer += preference_lines(order, aspect)
    answer += left_out_rows(ranking.lost, aspect)

    main = gate_parts(conditions)
    main.append(_systems_table(order, aspect))

    details = gate_details(conditions)
    details["effect of the position"] = [position_line(order)]
    if 2 < len(order.systems) <= _WIDEST_MATRIX:
        details["win rates of each two systems"] = [_matrix(order, aspect)]
    if order.length is not None:
        details["effect of length"] = [_table_at_equal_length(order, aspect), length_line(order.length)]
    if len(ranking.aspects) > 1:
        details["win rates in all aspects"] = [_aspects_table(ranking)]
    return Findings(answer, main, details, notices=ranking.notices, notes=preference_notes(ranking))


def _systems_table(order: PreferenceOrder, aspect: str) -> Table:
    """Return the strength, the ranks and the win rates of each system in an aspect."""
    strength = "strength\n(log-odds)"
    columns = [
        "system",
        strength,
        "possible\nranks",
        "win rate",
        "win rate,\nshown 1st",
        "win rate,\nshown 2nd",
        "pairs",
        "instructions",
    ]
    rows: list[list[Cell]] = []
    for system in order.systems:
        rows.append(
            [
                system.name,
                system.strength,
                possible_ranks(system.ranks),
                system.win_rate,
                system.shown_first,
                system.shown_second,
                system.pairs,
                system.instructions,
            ]
        )
    return Table(f"Preferences in {aspect}", columns, rows, apart=[strength])


def _matrix(order: PreferenceOrder, aspect: str) -> Table:
    """Return the win rate of each system against each other one; the columns have the numbers of the rows."""
    win_rates = _win_rates_of_pairs(order)
    names = [system.name for system in order.systems]
    columns = ["system"]
    rows: list[list[Cell]] = []
    for number, name in enumerate(names, start=1):
        columns.append(str(number))
        row: list[Cell] = [f"{number} {name}"]
        for opponent in names:
            if opponent == name:
                row.append("")
                continue
            win_rate = win_rates.get((name, opponent), UNDEFINED)
            if len(names) <= _WITH_INTERVALS:
                row.append(win_rate)
            else:
                row.append(None if win_rate.value is None else f"{win_rate.value:.0%}")
        rows.append(row)
    title = f"Win rates in {aspect}: the system of the row against that of the column"
    return Table(title, columns, rows)


def _win_rates_of_pairs(order: PreferenceOrder) -> dict[tuple[str, str], Estimate]:
    """Return the win rate of each system against each other one."""
    win_rates: dict[tuple[str, str], Estimate] = {}
    for pair in order.pairs:
        win_rates[pair.first, pair.second] = pair.win_rate
        win_rates[pair.second, pair.first] = pair.win_rate.complement()
    return win_rates


def _table_at_equal_length(order: PreferenceOrder, aspect: str) -> Table:
    """Return the strength and the win rate of each system if all responses had the same length."""
    rows: list[list[Cell]] = []
    for system in order.systems:
        rows.append([system.name, system.strength_at_equal_length, system.win_rate_at_equal_length])
    title = f"At equal length, {aspect}"
    return Table(title, ["system", "strength", "win rate"], rows, apart=["strength"])


def _aspects_table(ranking: PreferenceRanking) -> Table:
    """Return the win rate of each system in each aspect, and below them the effects of the position."""
    orders = ranking.aspects.values()
    win_rates_of_aspects = [_win_rates_of_systems(order) for order in orders]
    rows: list[list[Cell]] = []
    for system in ranking.aspects[ranking.by].systems:
        row: list[Cell] = [system.name]
        row += [win_rates[system.name] for win_rates in win_rates_of_aspects]
        rows.append(row)

    position: list[Cell] = ["first place"]
    position += [order.position for order in orders]
    consistency: list[Cell] = ["same response"]
    consistency += [order.consistency for order in orders]
    columns = ["system"] + list(ranking.aspects)
    return Table("Win rates in all aspects", columns, rows, totals=[position, consistency])


def _win_rates_of_systems(order: PreferenceOrder) -> dict[str, Estimate]:
    """Return the win rate of each system in an aspect."""
    return {system.name: system.win_rate for system in order.systems}
