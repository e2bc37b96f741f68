"""Tables of a ranking by means; they fit a terminal of 100 characters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise

from localjudge.report.gate_tables import gate_details, gate_parts
from localjudge.report.ranking_lines import (
    adjustment,
    comparison_lines,
    left_out_rows,
    possible_ranks,
    ranking_notes,
    unranked_systems,
)
from localjudge.report.tables import Cell, Findings, Table, estimates_by_name
from localjudge.rubrics.score_column import is_share
from localjudge.statistics import Estimate
from localjudge.studies.conditions import Condition
from localjudge.studies.rank import Ranking, SystemRank
from localjudge.system.quantities import p_value

_SHARES_OF = {
    "integer": "the judge's answers",
    "expected": "the judge's probabilities",
    "calibrated": "calibrated probabilities",
}
"""What the share of a label is computed from, by the kind of scores."""
_ALL_PAIRS = 6
"""Largest number of systems of which every pair is listed; of more, only the neighbours in their order."""
_ADJUSTED_FOR_TAGS = "Significant differences are adjusted for all tags and all pairs of systems."


def ranking_findings(ranking: Ranking, conditions: Sequence[Condition] = ()) -> Findings:
    """Return the results of the tests in words, a gate, and tables of the systems and of the tags.

    The details are the other columns, the means by the human score, on the same instructions and at equal
    length, and the differences of the systems.
    """
    deciding = ranking.columns[-1]
    has_several_systems = len(ranking.systems) > 1
    has_tests = not ranking.without_intervals or ranking.basis == "human"

    answer = list(unranked_systems(ranking.lost))
    if has_several_systems and has_tests:
        answer += comparison_lines(ranking)
    elif has_several_systems:
        answer.append(f"Differences are not tested: {ranking.without_intervals}")
    answer += left_out_rows(ranking.lost, deciding)

    main = gate_parts(conditions)
    main.append(_systems_table(ranking))
    if ranking.by_tag is not None:
        main.append(estimates_by_name(ranking.by_tag))
        main.append(_ADJUSTED_FOR_TAGS)

    details = gate_details(conditions)
    details |= _other_columns(ranking)
    details |= _other_means(ranking)
    if has_several_systems:
        title = f"Differences in {deciding}"
        if has_tests:
            title += f", with 95 % intervals{adjustment(ranking)}"
        details[f"differences in {deciding}"] = [_differences_table(title, ranking)]
    return Findings(answer, main, details, notices=ranking.notices, notes=ranking_notes(ranking))


def _systems_table(ranking: Ranking) -> Table:
    """Return the systems in the column that decides, with the means that decide their order and their ranks."""
    column = ranking.columns[-1]
    if is_share(column):
        title = f"Shares of {column} by system, from {_SHARES_OF[ranking.of]}"
    else:
        title = f"Mean {ranking.of} scores, each instruction with the same weight"
    if not ranking.without_intervals:
        title += ", with 95 % intervals"

    has_human_means = any(_is_known(system.human, column) for system in ranking.systems)
    has_common_means = any(_is_known(system.same_instructions, column) for system in ranking.systems)
    columns = ["system", column]
    if has_human_means:
        columns.append("human")
    if has_common_means:
        columns.append("same\ninstructions")
    columns += ["possible\nranks", "mean length\n(characters)", "rows", "instructions"]

    rows: list[list[Cell]] = []
    for system in ranking.systems:
        row: list[Cell] = [system.name, system.means[column]]
        if has_human_means:
            row.append(_mean(system.human, column))
        if has_common_means:
            row.append(_mean(system.same_instructions, column))
        row.append(possible_ranks(system.ranks[column]))
        row.append(None if system.length is None else round(system.length))
        row.append(system.rows)
        row.append(system.instructions)
        rows.append(row)
    return Table(title, columns, rows)


def _mean(means: Mapping[str, Estimate] | None, column: str) -> Estimate | None:
    """Return a system's mean in a column; None without one."""
    return None if means is None else means.get(column)


def _is_known(means: Mapping[str, Estimate] | None, column: str) -> bool:
    """Return whether a system's mean in a column is known."""
    mean = _mean(means, column)
    return mean is not None and mean.value is not None


def _other_columns(ranking: Ranking) -> dict[str, list[Table | str]]:
    """Return the table of the columns that do not decide, by what it is; nothing without such columns."""
    columns = ranking.columns[:-1]
    if not columns:
        return {}
    title = "Aspects"
    if all(is_share(column) for column in ranking.columns):
        title = "Shares of the other labels"
    means_by_system = {system.name: system.means for system in ranking.systems}
    return {title.lower(): [_means_table(title, columns, means_by_system)]}


def _other_means(ranking: Ranking) -> dict[str, list[Table | str]]:
    """Return the tables of the means that are not the judge's alone, by what they are; of those that exist."""
    details: dict[str, list[Table | str]] = {}

    human = {system.name: system.human for system in ranking.systems}
    if _has_means(human):
        title = "Mean human scores, prediction-powered"
        details["mean human scores"] = [_means_table(title, ranking.columns, human)]

    same_instructions = {system.name: system.same_instructions for system in ranking.systems}
    if _has_means(same_instructions):
        title = "Means on the same instructions, by the additive model"
        details["means on the same instructions"] = [_means_table(title, ranking.columns, same_instructions)]

    length_held = {system.name: system.length_held for system in ranking.systems}
    if _has_means(length_held):
        title = "Means at equal length"
        details["means at equal length"] = [_means_table(title, ranking.columns, length_held)]
    return details


def _has_means(means_by_system: Mapping[str, Mapping[str, Estimate] | None]) -> bool:
    """Return whether the mean of a system is known in any column."""
    for means in means_by_system.values():
        if means is not None and any(mean.value is not None for mean in means.values()):
            return True
    return False


def _means_table(
    title: str, columns: Sequence[str], means_by_system: Mapping[str, Mapping[str, Estimate] | None]
) -> Table:
    """Return a row for each system, with its mean in each column."""
    rows: list[list[Cell]] = []
    for system, means in means_by_system.items():
        row: list[Cell] = [system]
        row += [_mean(means, column) for column in columns]
        rows.append(row)
    return Table(title, ["system"] + list(columns), rows)


def _differences_table(title: str, ranking: Ranking) -> Table:
    """Return the differences of the systems in the column that decides; the better system comes first."""
    pairs_of_systems: Iterator[tuple[SystemRank, SystemRank]]
    if len(ranking.systems) <= _ALL_PAIRS:
        pairs_of_systems = combinations(ranking.systems, 2)
    else:
        pairs_of_systems = pairwise(ranking.systems)
    rows: list[list[Cell]] = []
    for better, worse in pairs_of_systems:
        pair = ranking.compared(better, worse)
        rows.append(
            [
                f"{pair.first} minus {pair.second}",
                pair.difference,
                p_value(pair.p),
                pair.wins,
                pair.ties,
                pair.losses,
                pair.instructions,
            ]
        )
    return Table(title, ["difference", "value", "p", "higher", "equal", "lower", "instructions"], rows)
