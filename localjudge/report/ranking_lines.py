"""Sentences on a ranking: what the tests of the differences say, and remarks on the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from localjudge.records.outcome_columns import OVERALL
from localjudge.statistics import two_decimals
from localjudge.statistics.ranked_column import Pair
from localjudge.statistics.system_order import NO_DIFFERENCE, SIGNIFICANCE_LEVEL, differences_in_words
from localjudge.studies.rank import Ranking
from localjudge.studies.rank.deciding_column import DecidingColumn
from localjudge.studies.rank.rows_of_systems import LostRows
from localjudge.system.quantities import counted, p_in_words

_MOST_CONTRADICTIONS = 5
"""Largest number of pairs against the order that are named."""
BY_CHOOSES_ANOTHER = "; rank --by chooses another"
"""The end of a note on the aspect or column that decides by default."""


def comparison_lines(ranking: Ranking) -> Iterator[str]:
    """Yield the results of the tests in the main column, a line each; the last is for the two best systems."""
    last = ranking.columns[-1]
    basis = "human" if ranking.basis == "human" else "judge's"
    if len(ranking.systems) > 2 or not ranking.untested[last]:  # of two, the last line says why
        yield from differences_in_words(
            f"in the {basis} scores ({last})",
            ranking.groups[last],
            ranking.untested[last],
            ranking.detectable[last],
        )
    for pair in ranking.contradictions[:_MOST_CONTRADICTIONS]:
        yield f"Against the order of the systems: {_sentence(ranking, pair)}"
    unnamed = len(ranking.contradictions) - _MOST_CONTRADICTIONS
    if unnamed > 0:
        yield f"Against the order of the systems: {counted(unnamed, 'more pair')}"
    best, second = ranking.systems[:2]
    pair = ranking.compared(best, second)
    if pair.difference.value is not None and pair.difference.value < 0:
        pair = pair.turned()
    if pair not in ranking.contradictions:
        yield _sentence(ranking, pair)


def adjustment(ranking: Ranking) -> str:
    """Return for how many pairs the intervals and p-values are adjusted; empty for one pair."""
    pairs = _pairs_of_systems(ranking)
    return f" and p adjusted for {pairs} pairs" if pairs > 1 else ""


def _pairs_of_systems(ranking: Ranking) -> int:
    return len(ranking.systems) * (len(ranking.systems) - 1) // 2


def _sentence(ranking: Ranking, pair: Pair) -> str:
    """Return in one sentence whether the first system of a pair is higher, by the tested difference."""
    first = pair.first
    second = pair.second
    difference = pair.difference
    if not pair.instructions or difference.value is None:
        return (
            f"{first} and {second} have no instruction in common, so nothing is known about their difference."
        )
    subject = f"On {counted(pair.instructions, 'instruction')}, {first}"
    column = f"the human scores ({pair.column})" if ranking.basis == "human" else pair.column
    is_tested = pair.p is not None
    is_equal_everywhere = pair.wins + pair.losses == 0
    if abs(difference.value) <= NO_DIFFERENCE and (is_tested or is_equal_everywhere):
        return f"{subject} and {second} have equal means in {column}."

    figures = f"{difference.value:.2f}"
    if difference.low is not None and difference.high is not None:
        figures += f", 95 % interval {difference.low:.2f} to {difference.high:.2f}"
    if pair.p is None:
        why = difference.why if difference.why else ranking.without_intervals
        untested = f"an untested difference in means ({first} minus {second}: {figures})"
        return f"{subject} and {second} have {untested}, because {why}{_sign_test(ranking, pair)}."
    figures += f", {p_in_words(pair.p)}"
    pairs = _pairs_of_systems(ranking)
    if pairs > 1:
        figures += f", both adjusted for {pairs} pairs"
    if pair.p >= SIGNIFICANCE_LEVEL:
        minus = f"{first} minus {second}: {figures}"
        return f"{subject} and {second} have no significant difference in {column} ({minus})."
    return f"{subject} is significantly higher than {second} in {column} (by {figures})."


def _sign_test(ranking: Ranking, pair: Pair) -> str:
    """Return the exact sign test of a pair, for the end of a sentence; empty without one."""
    if pair.sign_p is None:
        return ""
    pairs = _pairs_of_systems(ranking)
    adjusted = f" adjusted for {pairs} pairs:" if pairs > 1 else ""
    test = f"exact sign test{adjusted} {p_in_words(pair.sign_p)}"
    return f"; {pair.first} is higher on {pair.wins:,} and lower on {pair.losses:,} ({test})"


def unranked_systems(lost: Sequence[LostRows]) -> Iterator[str]:
    """Yield which systems have no score."""
    for system in lost:
        if system.lost == system.rows:
            yield f"{system.system} has no score: all of its {system.rows:,} failed, so it is not ranked."


def left_out_rows(lost: Sequence[LostRows], column: str) -> Iterator[str]:
    """Yield how many rows of the other systems have no score, and what their means in a column could be."""
    systems = []
    for system in lost:
        if system.lost == system.rows:
            continue
        lowest = two_decimals(system.if_lowest)
        highest = two_decimals(system.if_highest)
        count = f"{system.lost:,} of {system.rows:,} of {system.system}"
        systems.append(f"{count} (mean {lowest} to {highest})")
    if systems:
        yield (
            f"Failed, and left out: {', '.join(systems)}. In brackets, the mean of {column} if these had the "
            "lowest or the highest value."
        )


def possible_ranks(ends: tuple[int, int]) -> str:
    """Return the ranks that a system can have: "1", or "2 to 3"."""
    best, worst = ends
    if best == worst:
        return str(best)
    return f"{best} to {worst}"


def ranking_notes(ranking: Ranking) -> list[str]:
    """Return the remarks on a ranking by means."""
    notes: list[str] = []
    if ranking.labels is not None:
        notes += ranking.labels.notes
    notes += ranking.score_notes
    notes += _column_notes(ranking.deciding)
    if ranking.without_intervals:
        notes.append(ranking.without_intervals)
    if ranking.uneven is not None:
        notes.append(ranking.uneven)
    components: dict[int, list[str]] = {}
    for system in ranking.systems:
        components.setdefault(system.component, []).append(system.name)
    notes += component_notes("means", [components[number] for number in sorted(components)])
    if not ranking.is_complete:
        notes.append("labels, and the effect of length, are used only in complete runs")
    notes += _label_notes(ranking)
    return notes


def _column_notes(deciding: DecidingColumn) -> Iterator[str]:
    """Yield which column decides the order of the systems, and why."""
    another = BY_CHOOSES_ANOTHER if deciding.is_default else ""
    ordered = ", ".join(deciding.ordered_aspects)
    if not deciding.ordered_aspects and deciding.is_default:
        yield (
            f"no aspect has an order, so {deciding.name}, the share of the first label, decides the order of "
            f"the systems{another}"
        )
    if len(deciding.weights) > 1:
        weights = [f"{weight:g}" for weight in deciding.weights.values()]
        weighted = f", weighted {' : '.join(weights)}" if len(set(weights)) > 1 else ""
        yield f"{OVERALL} is the mean of the ordered aspects: {', '.join(deciding.weights)}{weighted}"
    elif deciding.ordered_aspects and not deciding.weights:
        yield (
            f"the ordered aspects ({ordered}) have different values, so there is no overall mean; "
            f"{deciding.name} decides the order of the systems{another}"
        )
    if deciding.integer_aspects:
        names = ", ".join(deciding.integer_aspects)
        yield f"{names}: some judgements have no expected scores, so the integers are compared"


def component_notes(what: str, components: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the sets of systems that cannot be compared with each other, if there are several."""
    if len(components) > 1:
        sets = "; ".join(", ".join(systems) for systems in components)
        yield f"{what} are comparable only within each of these sets of systems: {sets}"


def _label_notes(ranking: Ranking) -> Iterator[str]:
    """Yield what the means by the human score require, and which columns have none."""
    if ranking.labels is None:
        return
    drawn = "are a random sample of all rows"
    if ranking.labels.has_unequal_chances:
        drawn = "were drawn with the chances in the label file"
    yield f"human: prediction-powered means; they hold if the labelled rows {drawn}"
    if ranking.labels.columns_without:
        names = ", ".join(ranking.labels.columns_without)
        yield f"no labels of {names}: their ranks follow from the judge's scores"
