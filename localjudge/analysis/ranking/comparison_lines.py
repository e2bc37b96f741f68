"""What the tests of a ranking say, in sentences, each made from the tested difference."""

from __future__ import annotations

from collections.abc import Iterator

from localjudge.analysis.ranking.ranked_column import Pair
from localjudge.analysis.ranking.ranking import Ranking, SystemRank
from localjudge.analysis.ranking.system_order import NO_DIFFERENCE, SIGNIFICANCE_LEVEL, differences_in_words
from localjudge.analysis.statistics.interval import UNDEFINED_SIGN
from localjudge.system.quantities import counted

_MOST_CONTRADICTIONS = 5
"""Largest number of pairs against the order that are named."""


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
    pair = compared(ranking, *ranking.systems[:2])
    higher = pair if (pair.difference.value or 0) >= 0 else pair.turned()
    if higher not in ranking.contradictions:
        yield _sentence(ranking, higher)


def adjustment(ranking: Ranking) -> str:
    """Return for how many pairs the intervals and p-values are adjusted; empty for one pair."""
    pairs = len(ranking.systems) * (len(ranking.systems) - 1) // 2
    return f" and p adjusted for {pairs} pairs" if pairs > 1 else ""


def compared(ranking: Ranking, better: SystemRank, worse: SystemRank) -> Pair:
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
    figures += f", p {'' if pair.p < 0.001 else '= '}{p_value(pair.p)}"
    figures += adjustment(ranking).replace(" and p", ", both")
    if pair.p >= SIGNIFICANCE_LEVEL:
        return f"{on} and {other} have no significant difference in {pair.column} ({figures})."
    return f"{on} is significantly higher than {other} in {pair.column} ({figures})."


def p_value(value: float | None) -> str:
    """Return a p-value without its leading zero: .17, .047, .003, < .001."""
    if value is None:
        return UNDEFINED_SIGN
    if value < 0.001:
        return "< .001"
    return f"{value:.{2 if value >= 0.1 else 3}f}".removeprefix("0")
