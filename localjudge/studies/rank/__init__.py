"""Compare systems on the same instructions: means with intervals, and significant differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from localjudge.errors import UsageError
from localjudge.matching.labels import Labels
from localjudge.matching.scores import ScoreKind, Scores, check_one_judge
from localjudge.records.outcome_columns import OVERALL
from localjudge.rubrics.score_column import averaged, deciding
from localjudge.runs.reader import is_complete
from localjudge.statistics import Estimate
from localjudge.statistics.prediction_powered import LabelledRows
from localjudge.statistics.ranked_column import Pair, RankedColumn
from localjudge.statistics.resampling import RESAMPLES
from localjudge.statistics.system_order import (
    NO_DIFFERENCE,
    SIGNIFICANCE_LEVEL,
    differences_in_words,
    sets_in_words,
)
from localjudge.studies.by_system_or_tag import EstimateTable, rank_by_tag
from localjudge.studies.rank.rows_of_systems import LostRows, lost_rows, rows_of_systems
from localjudge.system.quantities import counted, p_in_words


@dataclass(frozen=True, slots=True)
class SystemRank:
    """The statistics of one system; the keys of the mappings are the columns.

    `means` weight the instructions of the system equally. `same_instructions` has its means on all instructions
    of its component, by the additive model of instructions and systems; None if each system answered each
    instruction. `component` numbers the sets of systems that share instructions, directly or through other
    systems, from 1. `ranks` has the best and the worst rank that the paired comparisons do not exclude.
    `length` is the mean length of its candidates in characters. `length_held`
    has the means at equal length, and `human` the prediction-powered means of the human score.
    """

    name: str
    rows: int
    instructions: int
    length: float | None
    component: int
    means: Mapping[str, Estimate]
    same_instructions: Mapping[str, Estimate] | None
    ranks: Mapping[str, tuple[int, int]]
    length_held: Mapping[str, Estimate] | None
    human: Mapping[str, Estimate] | None


@dataclass(frozen=True, slots=True)
class Ranking:
    """The comparison of systems, from the best to the worst of each component.

    `columns` has the aspects, the shares of labels, and "overall", the mean over the ordered aspects, if these
    are several and have the same values; the last column decides the order of the systems: that of their means
    on the same instructions. `of` is the kind of scores; for "calibrated", `columns` and "overall" include only
    the calibrated aspects. `basis` is "judge", or "human" with labels: the scores whose differences decide the
    ranks, the pairs and the groups in the last column. (A column without labels uses the judge's scores.)
    `groups` has the sets of systems without a significant difference, and `untested` the pairs of systems whose
    difference has no p-value, and why, also because they share no instruction. `detectable` has the difference
    that such runs find in 80 % of cases, between any two systems without a significant one.
    `contradictions` has the pairs of the last column whose tested difference has the other sign than the order
    of the systems; `first` is the higher one. `without_intervals` is the reason why the judge's scores have no
    intervals; empty if they have. `by_tag` has the systems by the criteria with each tag; None without tags.
    `lost` has the systems with rows without a score, and their means if these rows had any score.
    """

    columns: tuple[str, ...]
    of: str
    basis: str
    systems: tuple[SystemRank, ...]
    pairs: tuple[Pair, ...]
    groups: Mapping[str, tuple[tuple[str, ...], ...]]
    untested: Mapping[str, tuple[tuple[str, str, str], ...]]
    detectable: Mapping[str, float | None]
    contradictions: tuple[Pair, ...]
    without_intervals: str
    by_tag: EstimateTable | None
    lost: tuple[LostRows, ...]
    notes: tuple[str, ...]
    notices: tuple[str, ...]


def rank(
    scores: Scores,
    labels: Labels | None = None,
    of: ScoreKind | None = None,
    by: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Ranking:
    """Compare the systems of a judge's runs.

    Args:
        scores: the scores of all systems.
        labels: labels of a random sample of the rows, for prediction-powered means.
        of: the kind of scores; by default the expected scores if all rows have them.
        by: the column that decides the order of the systems; by default "overall", or the first ordered
            aspect, or the share of the first label.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.

    Raises:
        UsageError: expected scores are requested but some row has none; there is no such column; or the runs
            have several judges.
    """
    check_one_judge(scores.folders, scores.manifests)
    incomplete = [] if scores.calibrated else [run for run in scores.folders if not is_complete(run)]
    if incomplete:
        why = (
            f"{', '.join(map(str, incomplete))}: not complete, and the rows that finish first are not a random "
            "sample; the same score command continues it"
        )
        scores, labels = replace(scores, untested=why, lengths=np.full_like(scores.lengths, np.nan)), None
    of = of or scores.best
    table = scores.table(of)
    decides = chosen_column(by, [*table], deciding_column(scores, [*table]))
    columns = (*(name for name in table if name != decides), decides)
    human = _labelled(labels, scores, columns) if labels else {}
    draws = resamples, seed
    ranked = [
        RankedColumn(scores, name, *table[name], scores.length, human.get(name), *draws, scores.untested)
        for name in columns
    ]
    last, rows = ranked[-1], [scores.system == system for system in range(len(scores.systems))]
    keys = zip(last.component, -np.nan_to_num(last.level.round(9), nan=-np.inf), scores.systems, strict=True)
    order = [system for system, _ in sorted(enumerate(keys), key=lambda key: key[1])]
    place = {scores.systems[system]: number for number, system in enumerate(order)}
    ordered = (pair if place[pair.first] < place[pair.second] else pair.turned() for pair in last.pairs)

    def by_column(statistic: str, system: int) -> dict[str, Any]:
        return {column.name: getattr(column, statistic)[system] for column in ranked}

    systems = tuple(
        SystemRank(
            name=scores.systems[system],
            rows=int(rows[system].sum()),
            instructions=len(np.unique(scores.group[rows[system]])),
            length=None
            if scores.length is None or not rows[system].any()
            else float(scores.length[rows[system]].mean()),
            component=int(last.component[system]) + 1,
            means=by_column("means", system),
            same_instructions=by_column("held", system) if scores.uneven else None,
            ranks={column.name: column.order.ranks[system] for column in ranked},
            length_held=None if scores.length is None else by_column("length_held", system),
            human=by_column("human", system) if labels else None,
        )
        for system in order
    )
    notes = [*(labels.notes if labels else ()), *scores.notes, *_notes_on_columns(scores, columns, of, by)]
    notes += [scores.untested] * bool(scores.untested)
    notes += [scores.uneven] if scores.uneven else []
    notes += sets_in_words("means", [system.name for system in systems], last.component[order])
    if incomplete:
        notes.append("labels, and the effect of length, are used only in complete runs")
    if labels:
        uneven = any(np.ptp(labelled.chance) > 0 for labelled in human.values())
        drawn = "were drawn with the chances in the label file" if uneven else "are a random sample of all rows"
        notes.append(f"human: prediction-powered means; they hold if the labelled rows {drawn}")
        if lacking := [name for name in columns if name not in human]:
            notes.append(f"no labels of {', '.join(lacking)}: their ranks follow from the judge's scores")
    return Ranking(
        columns=columns,
        of="calibrated" if scores.calibrated and of == "expected" else of,
        basis="human" if decides in human else "judge",
        systems=systems,
        pairs=tuple(pair for column in ranked for pair in column.pairs),
        groups={column.name: column.order.groups(order) for column in ranked},
        untested={column.name: column.order.untested for column in ranked},
        detectable={column.name: column.order.detectable for column in ranked},
        contradictions=tuple(
            pair.turned()
            for pair in ordered
            if pair.p is not None and (pair.difference.value or 0) < -NO_DIFFERENCE
        ),
        without_intervals=scores.untested,
        by_tag=rank_by_tag(*scores.by_tag, of, *draws) if scores.by_tag and not by and not incomplete else None,
        lost=tuple(lost_rows(rows_of_systems(scores, of), [*table].index(decides), table[decides][1])),
        notes=tuple(notes),
        notices=scores.notices,
    )


def _notes_on_columns(scores: Scores, columns: Sequence[str], of: ScoreKind, by: str | None) -> Iterator[str]:
    """Yield which column decides the order of the systems, and why; the last of `columns` does."""
    decides, averages = columns[-1], averaged(scores.columns)
    ordered = [column.name for column in scores.columns if column.weight]
    another = "; rank --by chooses another" * (by is None)
    if by is None and not ordered:
        yield (
            f"no aspect has an order, so {decides}, the share of the first label, decides the order of the "
            f"systems{another}"
        )
    if OVERALL in columns:
        weights = [f"{column.weight:g}" for column in averages]
        weighted = f", weighted {' : '.join(weights)}" * (len({*weights}) > 1)
        names = ", ".join(column.name for column in averages)
        yield f"overall is the mean of the ordered aspects: {names}{weighted}"
    elif not averages and ordered:
        yield (
            f"the ordered aspects ({', '.join(ordered)}) have different values, so there is no overall mean; "
            f"{decides} decides the order of the systems{another}"
        )
    integers = [name for name in scores.aspects if name in scores.without_expected]
    if of == "expected" and not scores.calibrated and integers:
        yield f"{', '.join(integers)}: some judgements have no expected scores, so the integers are compared"


def chosen_column(by: str | None, columns: Sequence[str], default: str) -> str:
    """Return the column that is named, or the default.

    Raises:
        UsageError: there is no such column.
    """
    if by is not None and by not in columns:
        raise UsageError(f"`by` {by}: give one of {', '.join(columns)}")
    return by or default


def deciding_column(scores: Scores, columns: Sequence[str]) -> str:
    """Return the column that decides the order of the systems if none is named."""
    if OVERALL in columns:
        return OVERALL
    return next((column.name for column in deciding(scores.columns)), columns[0])


def _labelled(labels: Labels, scores: Scores, columns: Sequence[str]) -> dict[str, LabelledRows]:
    """Return the labelled rows of each column that has labels.

    The column "overall" uses the rows with a label of every aspect.
    """
    means = {name: labels.means(name) for name in labels.aspects}
    if OVERALL in columns and set(labels.aspects) >= {each.name for each in scores.columns if each.weight}:
        table = np.zeros((len(scores.ids), len(scores.columns)))
        for place, column in enumerate(scores.columns):
            if column.weight:
                rows, label = means[column.name]
                table[:, place] = np.nan
                table[rows, place] = label
        mean = scores.overall(table)
        whole = np.flatnonzero(~np.isnan(mean)).astype(np.int32)
        means[OVERALL] = whole, mean[whole]
    return {name: LabelledRows(rows, label, labels.chances(rows)) for name, (rows, label) in means.items()}


_MOST_CONTRADICTIONS = 5
"""Largest number of pairs against the order that are named."""


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
    where = f"the human scores ({pair.column})" if ranking.basis == "human" else pair.column
    minus, figures = f"{one} minus {other}: ", f"{difference.value:.2f}"
    if difference.low is not None and difference.high is not None:
        figures += f", 95 % interval {difference.low:.2f} to {difference.high:.2f}"
    if abs(difference.value) <= NO_DIFFERENCE and (pair.p is not None or not pair.wins + pair.losses):
        return f"{on} and {other} have equal means in {where}."
    if pair.p is None:
        why = difference.why or ranking.without_intervals
        by_signs = ""
        if pair.sign_p is not None:
            adjusted = f"{adjustment(ranking).removeprefix(' and p')}:" if adjustment(ranking) else ""
            signs = f"exact sign test{adjusted} {p_in_words(pair.sign_p)}"
            by_signs = f"; {one} is higher on {pair.wins:,} and lower on {pair.losses:,} ({signs})"
        untested = f"an untested difference in means ({minus}{figures})"
        return f"{on} and {other} have {untested}, because {why}{by_signs}."
    figures += f", {p_in_words(pair.p)}"
    figures += adjustment(ranking).replace(" and p", ", both")
    if pair.p >= SIGNIFICANCE_LEVEL:
        return f"{on} and {other} have no significant difference in {where} ({minus}{figures})."
    return f"{on} is significantly higher than {other} in {where} (by {figures})."
