"""Compare systems on the same instructions: means with intervals, and significant differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from localjudge.matching.labels import Labels
from localjudge.matching.scores import ScoreKind, Scores, check_one_judge
from localjudge.records.outcome_columns import OVERALL
from localjudge.runs.reader import is_complete
from localjudge.statistics import Estimate
from localjudge.statistics.prediction_powered import LabelledRows
from localjudge.statistics.ranked_column import Pair, RankedColumn
from localjudge.statistics.resampling import RESAMPLES
from localjudge.statistics.system_order import NO_DIFFERENCE
from localjudge.studies.by_system_or_tag import EstimateTable, rank_by_tag
from localjudge.studies.rank.deciding_column import DecidingColumn
from localjudge.studies.rank.rows_of_systems import LostRows, lost_rows, rows_of_systems


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
class LabelUse:
    """How labels are used in a ranking.

    Attributes:
        notes: the notes on the labels.
        has_unequal_chances: whether the labelled rows were drawn with different chances.
        columns_without: the columns without labels, which use the judge's scores.
    """

    notes: Sequence[str]
    has_unequal_chances: bool
    columns_without: Sequence[str]


@dataclass(frozen=True, slots=True)
class Ranking:
    """The comparison of systems, from the best to the worst of each component.

    Attributes:
        columns: the aspects, the shares of labels, and "overall", the mean over the ordered aspects, if these
            are several and have the same values; the last column decides the order of the systems: that of
            their means on the same instructions.
        deciding: why this column decides.
        of: the kind of scores; for "calibrated", `columns` and "overall" include only the calibrated aspects.
        basis: "judge", or "human" with labels: the scores whose differences decide the ranks, the pairs and the
            groups in the last column. (A column without labels uses the judge's scores.)
        systems: the systems, from the best to the worst of each component.
        pairs: the comparison of each two systems in each column.
        groups: by column, the sets of systems without a significant difference.
        untested: by column, the pairs of systems whose difference has no p-value, and why, also because they
            share no instruction.
        detectable: by column, the difference that such runs find in 80 % of cases, between any two systems
            without a significant one.
        contradictions: the pairs of the last column whose tested difference has the other sign than the order
            of the systems; `first` is the higher one.
        without_intervals: the reason why the judge's scores have no intervals; empty if they have.
        is_complete: whether all runs are complete; if not, labels and lengths are not used.
        labels: how labels are used; None without labels.
        uneven: the note on systems that answered different instructions; None if they did not.
        by_tag: the systems by the criteria with each tag; None without tags.
        lost: the systems with rows without a score, and their means if these rows had any score.
        score_notes: the notes on the scores.
        notices: the notices of the runs.
    """

    columns: tuple[str, ...]
    deciding: DecidingColumn
    of: str
    basis: str
    systems: tuple[SystemRank, ...]
    pairs: tuple[Pair, ...]
    groups: Mapping[str, tuple[tuple[str, ...], ...]]
    untested: Mapping[str, tuple[tuple[str, str, str], ...]]
    detectable: Mapping[str, float | None]
    contradictions: tuple[Pair, ...]
    without_intervals: str
    is_complete: bool
    labels: LabelUse | None
    uneven: str | None
    by_tag: EstimateTable | None
    lost: tuple[LostRows, ...]
    score_notes: tuple[str, ...]
    notices: tuple[str, ...]

    def compared(self, better: SystemRank, worse: SystemRank) -> Pair:
        """Return the comparison of two systems in the column that decides, in this order."""
        for pair in self.pairs:
            if pair.column != self.columns[-1]:
                continue
            if (pair.first, pair.second) == (better.name, worse.name):
                return pair
            if (pair.first, pair.second) == (worse.name, better.name):
                return pair.turned()
        raise KeyError(f"{better.name}, {worse.name}")


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
    incomplete = _incomplete_runs(scores)
    if incomplete:
        scores = _without_intervals(scores, incomplete)
        labels = None
    kind = scores.best if of is None else of
    table = scores.table(kind)
    deciding = DecidingColumn.of(scores, kind, by)
    columns = tuple(name for name in table if name != deciding.name) + (deciding.name,)
    human = {} if labels is None else _labelled_rows(labels, scores, columns)

    ranked: list[RankedColumn] = []
    for name in columns:
        values, ends = table[name]
        ranked.append(
            RankedColumn(
                scores,
                name,
                values=values,
                ends=ends,
                characters=scores.length,
                human=human.get(name),
                resamples=resamples,
                seed=seed,
                untested=scores.untested,
            )
        )
    last = ranked[-1]
    order = _best_first(last, scores.systems)
    uneven = scores.uneven
    systems = [
        _system_rank(system, scores, ranked=ranked, is_uneven=uneven is not None, has_labels=labels is not None)
        for system in order
    ]

    by_tag = None
    if scores.by_tag is not None and by is None and not incomplete:
        tag_scores, tags = scores.by_tag
        by_tag = rank_by_tag(tag_scores, tags, of=kind, resamples=resamples, seed=seed)
    _, deciding_ends = table[deciding.name]
    lost = lost_rows(rows_of_systems(scores, kind), column=list(table).index(deciding.name), ends=deciding_ends)
    pairs: list[Pair] = []
    for column in ranked:
        pairs += column.pairs
    return Ranking(
        columns=columns,
        deciding=deciding,
        of="calibrated" if scores.calibrated and kind == "expected" else kind,
        basis="human" if deciding.name in human else "judge",
        systems=tuple(systems),
        pairs=tuple(pairs),
        groups={column.name: column.order.groups(order) for column in ranked},
        untested={column.name: column.order.untested for column in ranked},
        detectable={column.name: column.order.detectable for column in ranked},
        contradictions=tuple(_contradictions(last.pairs, [system.name for system in systems])),
        without_intervals=scores.untested,
        is_complete=not incomplete,
        labels=None if labels is None else _label_use(labels, human, columns),
        uneven=uneven,
        by_tag=by_tag,
        lost=tuple(lost),
        score_notes=scores.notes,
        notices=scores.notices,
    )


def _incomplete_runs(scores: Scores) -> list[Path]:
    """Return the runs that are not complete; none for calibrated scores, which have no intervals anyway."""
    if scores.calibrated:
        return []
    return [run for run in scores.folders if not is_complete(run)]


def _without_intervals(scores: Scores, incomplete: Sequence[Path]) -> Scores:
    """Return the scores of incomplete runs, without intervals and lengths."""
    runs = ", ".join(map(str, incomplete))
    why = (
        f"{runs}: not complete, and the rows that finish first are not a random sample; the same score command "
        "continues it"
    )
    return replace(scores, untested=why, lengths=np.full_like(scores.lengths, np.nan))


def _best_first(column: RankedColumn, systems: Sequence[str]) -> list[int]:
    """Return the numbers of the systems, from the best to the worst of each component, and by name if equal."""
    level = np.nan_to_num(column.level.round(9), nan=-np.inf)

    def order_key(system: int) -> tuple[int, float, str]:
        return int(column.component[system]), -float(level[system]), systems[system]

    return sorted(range(len(systems)), key=order_key)


def _system_rank(
    system: int, scores: Scores, *, ranked: Sequence[RankedColumn], is_uneven: bool, has_labels: bool
) -> SystemRank:
    """Return the statistics of one system in all columns."""
    is_of_system = scores.system == system
    length = None
    if scores.length is not None and is_of_system.any():
        length = float(scores.length[is_of_system].mean())
    same_instructions = None
    if is_uneven:
        same_instructions = {column.name: column.held[system] for column in ranked}
    length_held = None
    if scores.length is not None:
        length_held = {column.name: column.length_held[system] for column in ranked}
    human = None
    if has_labels:
        human = {column.name: column.human[system] for column in ranked}
    return SystemRank(
        name=scores.systems[system],
        rows=int(is_of_system.sum()),
        instructions=len(np.unique(scores.group[is_of_system])),
        length=length,
        component=int(ranked[-1].component[system]) + 1,
        means={column.name: column.means[system] for column in ranked},
        same_instructions=same_instructions,
        ranks={column.name: column.order.ranks[system] for column in ranked},
        length_held=length_held,
        human=human,
    )


def _contradictions(pairs: Sequence[Pair], best_first: Sequence[str]) -> list[Pair]:
    """Return the pairs whose tested difference is against the order of the systems, the higher one first."""
    position = {system: number for number, system in enumerate(best_first)}
    contradictions = []
    for pair in pairs:
        in_order = pair if position[pair.first] < position[pair.second] else pair.turned()
        difference = in_order.difference.value
        if pair.p is not None and difference is not None and difference < -NO_DIFFERENCE:
            contradictions.append(in_order.turned())
    return contradictions


def _labelled_rows(labels: Labels, scores: Scores, columns: Sequence[str]) -> dict[str, LabelledRows]:
    """Return the labelled rows of each column that has labels.

    The column "overall" uses the rows with a label of every aspect.
    """
    means = {name: labels.means(name) for name in labels.aspects}
    ordered_aspects = {column.name for column in scores.columns if column.weight}
    if OVERALL in columns and ordered_aspects.issubset(labels.aspects):
        table = np.zeros((len(scores.ids), len(scores.columns)))
        for index, column in enumerate(scores.columns):
            if column.weight:
                rows, label = means[column.name]
                table[:, index] = np.nan
                table[rows, index] = label
        overall = scores.overall(table)
        rows_with_all = np.flatnonzero(~np.isnan(overall)).astype(np.int32)
        means[OVERALL] = (rows_with_all, overall[rows_with_all])
    return {name: LabelledRows(rows, label, labels.chances(rows)) for name, (rows, label) in means.items()}


def _label_use(labels: Labels, human: Mapping[str, LabelledRows], columns: Sequence[str]) -> LabelUse:
    """Return how labels are used; `human` has the labelled rows of each column with labels."""
    return LabelUse(
        notes=labels.notes,
        has_unequal_chances=any(np.ptp(labelled.chance) > 0 for labelled in human.values()),
        columns_without=[name for name in columns if name not in human],
    )
