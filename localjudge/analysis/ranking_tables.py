"""Terminal tables of a ranking by means; they fit a width of 100 characters.

Each value has its 95 % interval below it. An en dash means that a value is undefined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from localjudge.analysis.interval import Estimate
from localjudge.analysis.ranked_column import Pair
from localjudge.analysis.ranking import Ranking, SystemRank
from localjudge.analysis.system_order import NO_DIFFERENCE, SIGNIFICANCE_LEVEL, differences_in_words
from localjudge.analysis.table_parts import (
    UNDEFINED_SIGN,
    note_lines,
    plain_table,
    spaced,
    stacked,
    title_line,
    two_decimals,
)
from localjudge.rubrics.score_column import heading, is_share
from localjudge.runs.notices import headed
from localjudge.system.quantities import counted

_SHARES_OF = {
    "integer": "the judge's answers",
    "expected": "the judge's probabilities",
    "calibrated": "calibrated probabilities",
}
_ALL_PAIRS = 6
"""Largest number of systems of which every pair is listed; of more, only the neighbours in their order."""

_MOST_CONTRADICTIONS = 5
"""Largest number of pairs against the order that are named."""


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
            if kind == "length_held":
                explained = [two_decimals(ranking.length_explains[column]) for column in ranking.columns]
                table.add_section()
                table.add_row("R² of length", *explained)
            parts.append(table)
    if len(ranking.systems) > 1:
        without = untested and ranking.basis == "judge"
        title = f"Differences in {last}" + f", with 95 % intervals{_adjustment(ranking)}" * (not without)
        parts += [title_line(title, ranking.notices), _differences(ranking)]
        parts += (
            [Text("Differences of calibrated scores are not tested: they have no intervals.")]
            if without
            else map(Text, comparison_lines(ranking))
        )
    return headed(ranking.notices, *spaced(parts), *note_lines(ranking.notes))


def comparison_lines(ranking: Ranking) -> Iterator[str]:
    """Yield what the tests of the column that decides say, a line each; the last is on the two best."""
    last = ranking.columns[-1]
    basis = "human" if ranking.basis == "human" else "judge's"
    yield from differences_in_words(
        f"in the {basis} scores ({last})", ranking.groups[last], ranking.untested[last]
    )
    for pair in ranking.contradictions[:_MOST_CONTRADICTIONS]:
        yield f"Against the order of the systems: {_sentence(ranking, pair)}"
    if (more := len(ranking.contradictions) - _MOST_CONTRADICTIONS) > 0:
        yield f"Against the order of the systems: {counted(more, 'more pair')}"
    pair = _compared(ranking, *ranking.systems[:2])
    higher = pair if (pair.difference.value or 0) >= 0 else pair.turned()
    if higher not in ranking.contradictions:
        yield _sentence(ranking, higher)


def _adjustment(ranking: Ranking) -> str:
    """Return for how many pairs the intervals and p-values are adjusted; empty for one pair."""
    pairs = len(ranking.systems) * (len(ranking.systems) - 1) // 2
    return f" and p adjusted for {pairs} pairs" if pairs > 1 else ""


def _differences(ranking: Ranking) -> Table:
    """Return the differences of the systems in the column that decides; the better system comes first."""
    every = len(ranking.systems) <= _ALL_PAIRS
    listed = combinations(ranking.systems, 2) if every else pairwise(ranking.systems)
    table = plain_table("difference", "value", "p", "higher", "equal", "lower", "instructions")
    for better, worse in listed:
        pair = _compared(ranking, better, worse)
        counts = (pair.wins, pair.ties, pair.losses, pair.instructions)
        table.add_row(
            f"{better.name} minus {worse.name}", stacked(pair.difference), _p(pair.p), *map(str, counts)
        )
    return table


def _compared(ranking: Ranking, better: SystemRank, worse: SystemRank) -> Pair:
    """Return the comparison of two systems in the column that decides, in this order."""
    names = {better.name, worse.name}
    column = ranking.columns[-1]
    pair = next(each for each in ranking.pairs if each.column == column and {each.first, each.second} == names)
    return pair if pair.first == better.name else pair.turned()


def _sentence(ranking: Ranking, pair: Pair) -> str:
    """Return in one sentence whether the first system of a pair is higher, by the tested difference."""
    one, other, difference = pair.first, pair.second, pair.difference
    on = f"On {counted(pair.instructions, 'instruction')}, {one}"
    if not pair.instructions or difference.value is None:
        return f"{one} and {other} have no instruction in common, so nothing is known about their difference."
    figures = f"{one} minus {other}: {difference.value:.2f}"
    if difference.low is not None and difference.high is not None:
        figures += f", 95 % interval {difference.low:.2f} to {difference.high:.2f}"
    if abs(difference.value) <= NO_DIFFERENCE:
        return f"{on} and {other} have equal means in {pair.column}."
    if pair.p is None:
        return f"{on} and {other} cannot be compared significantly ({figures})."
    figures += f", p {'' if pair.p < 0.001 else '= '}{_p(pair.p)}"
    figures += _adjustment(ranking).replace(" and p", ", both")
    if pair.p >= SIGNIFICANCE_LEVEL:
        return f"{on} and {other} have no significant difference in {pair.column} ({figures})."
    return f"{on} is significantly higher than {other} in {pair.column} ({figures})."


def _p(value: float | None) -> str:
    """Return a p-value without its leading zero: .17, .047, .003, < .001."""
    if value is None:
        return UNDEFINED_SIGN
    if value < 0.001:
        return "< .001"
    return f"{value:.{2 if value >= 0.1 else 3}f}".removeprefix("0")


def _named(system: SystemRank, means: Mapping[str, Estimate] | None) -> list[Text | str]:
    return [system.name, *(stacked(each) for each in (means or {}).values())]
