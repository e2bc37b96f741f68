"""Terminal tables of a ranking by means; they fit a width of 100 characters.

Each value has its 95 % interval below it. An en dash means that a value is undefined.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, pairwise

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from localjudge.analysis.ranking import Ranking, SystemRank, adjustment, compared, comparison_lines, p_value
from localjudge.analysis.statistics import UNDEFINED_SIGN, Estimate
from localjudge.cli.tables.table_parts import (
    headed,
    note_lines,
    plain_table,
    spaced,
    stacked,
    title_line,
)
from localjudge.rubrics.score_column import heading, is_share

_SHARES_OF = {
    "integer": "the judge's answers",
    "expected": "the judge's probabilities",
    "calibrated": "calibrated probabilities",
}
_ALL_PAIRS = 6
"""Largest number of systems of which every pair is listed; of more, only the neighbours in their order."""


def ranking_tables(ranking: Ranking) -> Group:
    """Return tables of the systems' means and of their differences.

    The means are by the judge, by the human score, and adjusted for length. The last lines name the systems
    that do not differ significantly and those that are not tested, and compare the two best.
    """
    last, untested = ranking.columns[-1], ranking.of == "calibrated"
    main = plain_table("system", heading(last), "rank", "win rate", "length", "rows", "instructions")
    for system in ranking.systems:
        best, worst = system.ranks[last]
        wins = system.win_rate[last]
        main.add_row(
            system.name,
            stacked(system.means[last]),
            str(best) if best == worst else f"{best}-{worst}",
            UNDEFINED_SIGN if wins is None else f"{wins:.0%}",
            UNDEFINED_SIGN if system.length is None else f"{system.length:.0f}",
            str(system.rows),
            str(system.instructions),
        )
    parts: list[RenderableType] = [
        title_line(
            f"Shares of {last} by system, from {_SHARES_OF[ranking.of]}"
            + ", with 95 % intervals" * (not untested)
            if is_share(last)
            else f"Mean {ranking.of} scores of the systems" + ", with 95 % intervals" * (not untested),
            ranking.notices,
        ),
        main,
    ]
    if len(ranking.columns) > 1:
        means = plain_table("system", *map(heading, ranking.columns[:-1]))
        for system in ranking.systems:
            means.add_row(*_named(system, {name: system.means[name] for name in ranking.columns[:-1]}))
        others = "Shares of the other labels" if all(map(is_share, ranking.columns)) else "Aspects"
        parts += [title_line(others, ranking.notices), means]
    for title, kind in (
        ("Mean human scores, prediction-powered", "human"),
        ("Means on the same instructions, by the additive model", "same_instructions"),
        ("Means at equal length", "length_held"),
    ):
        estimates = [getattr(system, kind) for system in ranking.systems]
        if any(one.value is not None for each in estimates if each for one in each.values()):
            parts.append(title_line(title, ranking.notices))
            table = plain_table("system", *map(heading, ranking.columns))
            for system, each in zip(ranking.systems, estimates, strict=True):
                table.add_row(*_named(system, each))
            parts.append(table)
    if len(ranking.systems) > 1:
        without = untested and ranking.basis == "judge"
        title = f"Differences in {last}" + f", with 95 % intervals{adjustment(ranking)}" * (not without)
        parts += [title_line(title, ranking.notices), _differences(ranking)]
        parts += (
            [Text("Differences of calibrated scores are not tested: they have no intervals.")]
            if without
            else map(Text, comparison_lines(ranking))
        )
    return headed(ranking.notices, *spaced(parts), *note_lines(ranking.notes))


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
