"""Which of two judges of the same responses agrees better with people, on the rows with labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from localjudge.arrays import Floats, Integers, LabelArray
from localjudge.matching.labels import Labels
from localjudge.matching.scores import Scores
from localjudge.statistics import Estimate
from localjudge.statistics.agreement_statistics import spearman
from localjudge.statistics.jackknife import LeftOut, left_out
from localjudge.statistics.within_instructions import LabelledResponses
from localjudge.studies.compare.compared_rows import ComparedRows
from localjudge.studies.compare.matched_runs import MatchedRuns
from localjudge.studies.compare.system_orders import ComparedSystems, OrderOfSystems, orders_of_systems


class Measure(StrEnum):
    """A measure of the agreement of a judge with labels."""

    IN_ORDER = "in_order"
    """The share of pairs of responses to one instruction in the order of the labels."""
    SPEARMAN = "spearman"
    """Spearman's correlation."""
    ERROR = "mae"
    """The mean absolute error."""
    EXACT = "exact"
    """The share of verdicts that are the label."""


@dataclass(frozen=True, slots=True)
class MeasuredAgreement:
    """The agreement of both judges with labels in one measure.

    Attributes:
        old: that of OLD; None if it is undefined.
        new: that of NEW; None if it is undefined.
        difference: NEW minus OLD, from leaving out each instruction in both. The intervals of all measures of
            all aspects cover together in 95 % of comparisons (Bonferroni).
    """

    old: float | None
    new: float | None
    difference: Estimate


@dataclass(frozen=True, slots=True)
class Labelled:
    """The agreement of both judges with the labels of one aspect, on the same rows.

    Attributes:
        rows: number of rows with labels.
        measures: the agreement in each measure that the aspect has.
        order: the order of the systems by people, and by the judge of OLD and that of NEW, by the names of the
            runs; empty for one system, and for an aspect without an order.
    """

    rows: int
    measures: Mapping[Measure, MeasuredAgreement]
    order: Mapping[str, OrderOfSystems]


def compare_labels(matched: MatchedRuns, labels: Labels, *, resamples: int, seed: int) -> dict[str, Labelled]:
    """Return which of two judges agrees better with labels, in each aspect that has some.

    Args:
        matched: the rows of both runs.
        labels: labels of the rows of both.
        resamples: number of resamples for the order of the systems.
        seed: seed of these, and of the folds that learn which differences of scores count as ties.
    """
    labels_of_aspects = {**labels.marks, **labels.nominal}
    labelled_cells: dict[str, _LabelledCells] = {}
    measured: dict[str, dict[Measure, _MeasuredTwice]] = {}
    for aspect in matched.rows.verdicts:
        if aspect not in labels_of_aspects:
            continue
        cells = _LabelledCells.from_runs(matched, labels_of_aspects[aspect])
        if len(cells.group):
            labelled_cells[aspect] = cells
            measured[aspect] = _measure(cells, matched.rows, aspect=aspect, seed=seed)
    tests = sum(map(len, measured.values()))
    compared: dict[str, Labelled] = {}
    for aspect, cells in labelled_cells.items():
        compared[aspect] = Labelled(
            rows=len(cells.group),
            measures={measure: twice.agreement(tests) for measure, twice in measured[aspect].items()},
            order=_orders_of_people(matched, aspect, cells=cells, resamples=resamples, seed=seed),
        )
    return compared


@dataclass(frozen=True, slots=True)
class _LabelledCells:
    """The n cells whose row has labels in both runs.

    Attributes:
        first_rows: the row of OLD and of NEW in each cell, [n, 2].
        group: the instruction of each cell, [n].
        marks: the labels.
        count: the number of labels of each row of both runs.
    """

    first_rows: Integers
    group: Integers
    marks: LabelArray
    count: Integers

    @classmethod
    def from_runs(cls, matched: MatchedRuns, marks: LabelArray) -> _LabelledCells:
        """Return the cells of two runs that have labels."""
        in_both = matched.cells.in_both
        first_rows = matched.cells.first_rows[in_both]
        group = matched.cells.group[in_both]
        count = np.bincount(marks.row, minlength=matched.rows.scored)
        has_labels = (count[first_rows] > 0).all(axis=1)
        return cls(first_rows[has_labels], group[has_labels], marks=marks, count=count)

    def means(self, values: Floats) -> Floats:
        """Return the mean of a value of each label over the labels of a row, of OLD and of NEW, [2, n]."""
        totals = np.bincount(self.marks.row, values, minlength=len(self.count))
        means: Floats = totals / np.maximum(self.count, 1)
        return means[self.first_rows.T]

    def measured(self, statistic: Callable[..., Floats], *columns: Floats, reach: float) -> _MeasuredTwice:
        """Return a statistic of each run, of all cells and without each instruction.

        Args:
            statistic: takes columns, [n], and weights, [weightings, n].
            columns: its columns, of OLD and of NEW, each [2, n].
            reach: the largest difference of two of its values.
        """
        weights = np.vstack([np.ones(len(self.group)), left_out(self.group)])
        with np.errstate(invalid="ignore"):
            old = statistic(*(column[0] for column in columns), weights)
            new = statistic(*(column[1] for column in columns), weights)
        return _MeasuredTwice(
            old=LeftOut(float(old[0]), old[1:]), new=LeftOut(float(new[0]), new[1:]), reach=reach
        )


@dataclass(frozen=True, slots=True)
class _MeasuredTwice:
    """A measure of both runs, of all rows and without each instruction.

    `reach` is the largest difference of two of its values.
    """

    old: LeftOut
    new: LeftOut
    reach: float

    def agreement(self, tests: int) -> MeasuredAgreement:
        """Return the agreement of both; the interval is adjusted for so many tests."""
        return MeasuredAgreement(
            old=_finite_or_none(self.old.value),
            new=_finite_or_none(self.new.value),
            difference=self.new.minus(self.old).difference(self.reach, tests),
        )


def _measure(
    cells: _LabelledCells, rows: ComparedRows, aspect: str, *, seed: int
) -> dict[Measure, _MeasuredTwice]:
    """Return the measures of the agreement of both runs with the labels of an aspect.

    Args:
        cells: the cells with labels.
        rows: the rows of both runs.
        aspect: the aspect.
        seed: seed of the folds that learn which differences of scores count as ties.
    """
    marks = cells.marks
    labels = np.where(rows.is_reversed[marks.row], 1 - marks.value, marks.value)
    measures: dict[Measure, _MeasuredTwice] = {}
    if aspect in rows.columns:
        column = rows.columns[aspect]
        scores = column.values[cells.first_rows.T]
        mean_labels = cells.means(labels)
        if isinstance(rows.source, Scores):
            in_order = _shares_in_order(cells, rows.source, scores=scores, labels=mean_labels[0], seed=seed)
            if in_order is not None:
                measures[Measure.IN_ORDER] = in_order
        measures[Measure.SPEARMAN] = cells.measured(spearman, scores, mean_labels, reach=2.0)
        errors = cells.means(np.abs(column.values[marks.row] - labels))
        measures[Measure.ERROR] = cells.measured(_weighted_mean, errors, reach=float(column.width))
    is_exact = rows.verdicts[aspect].numbers[marks.row] == labels
    exact_shares = cells.means(is_exact.astype(np.float64))
    measures[Measure.EXACT] = cells.measured(_weighted_mean, exact_shares, reach=1.0)
    return measures


def _shares_in_order(
    cells: _LabelledCells, source: Scores, *, scores: Floats, labels: Floats, seed: int
) -> _MeasuredTwice | None:
    """Return the share of pairs of responses in the order of the labels; None with too few such pairs.

    Args:
        cells: the cells with labels.
        source: the scores of both runs.
        scores: the scores of OLD and of NEW, [2, n].
        labels: the mean label of each cell, [n].
        seed: seed of the folds that learn which differences of scores count as ties.
    """
    old_rows = cells.first_rows[:, 0]
    _, first_cell, index = np.unique(source.response[old_rows], return_index=True, return_inverse=True)
    every_cell = np.arange(len(labels), dtype=np.int32)
    marks = LabelArray(row=every_cell, annotator=every_cell, value=labels)
    # The folds of the instructions are those of `agree`, so that both print one number.
    group = source.by_digest[old_rows]
    responses = LabelledResponses.from_labels(marks, group, response=first_cell[index])
    if responses is None:
        return None
    _, old = responses.compare(scores[0], seed)
    _, new = responses.compare(scores[1], seed)
    return _MeasuredTwice(old=old, new=new, reach=1.0)


def _weighted_mean(values: Floats, weights: Floats) -> Floats:
    """Return the mean of values, [n], by each row of weights, [weightings, n]."""
    means: Floats = weights @ values / weights.sum(axis=1)
    return means


def _orders_of_people(
    matched: MatchedRuns, aspect: str, cells: _LabelledCells, *, resamples: int, seed: int
) -> dict[str, OrderOfSystems]:
    """Return the order of the systems by people and by each judge, on the rows with labels.

    Args:
        matched: the rows of both runs.
        aspect: the aspect.
        cells: the cells with labels.
        resamples: number of resamples for the tests.
        seed: seed of the resamples.
    """
    systems = ComparedSystems.of_rows(matched, cells.first_rows[:, 0])
    if aspect not in matched.rows.columns or not systems.can_be_ordered:
        return {}
    column = matched.rows.columns[aspect]
    mean_labels = cells.means(cells.marks.value)[0]
    of_people = systems.means(mean_labels[:, None], cells.group)
    orders: dict[str, OrderOfSystems] = {}
    for run, name in enumerate(matched.names):
        scores = column.values[cells.first_rows[:, run]]
        of_columns = orders_of_systems(
            of_people,
            systems.means(scores[:, None], cells.group),
            names=systems.names,
            widths={aspect: float(column.width)},
            resamples=resamples,
            seed=seed,
        )
        orders[name] = of_columns[aspect]
    return orders


def _finite_or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None
