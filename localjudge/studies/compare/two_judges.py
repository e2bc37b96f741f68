"""Two judges of the same responses: how far they agree, and which of them agrees better with people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from localjudge.arrays import Floats, Integers, LabelArray
from localjudge.matching.labels import Labels
from localjudge.matching.scores import Scores
from localjudge.matching.system_names import UNNAMED
from localjudge.statistics import Estimate
from localjudge.statistics.agreement_statistics import SampledRows, kappa, nominal_kappa, spearman
from localjudge.statistics.jackknife import LeftOut, left_out
from localjudge.statistics.resampling import cell_means, studentise
from localjudge.statistics.system_means import column_means
from localjudge.statistics.system_order import SIGNIFICANCE_LEVEL
from localjudge.statistics.within_instructions import LabelledResponses
from localjudge.studies.compare.matched_runs import MatchedRuns


@dataclass(frozen=True, slots=True)
class ContraryPair:
    """Two systems that the judges put in opposite order: the difference of their means by each judge."""

    first: str
    second: str
    old: Estimate
    new: Estimate


@dataclass(frozen=True, slots=True)
class OrderOfSystems:
    """The pairs of systems in one column, by what the tests of both judges say.

    An order counts if the difference of the two means is significant, with p-values that are adjusted for all
    pairs and columns. So at most 5 % of comparisons of judges with the same true order have a contrary pair.

    Attributes:
        alike: number of pairs that both judges order alike.
        undecided: number of pairs without a significant difference by one judge or both.
        contrary: the pairs that the judges put in opposite order.
    """

    alike: int
    undecided: int
    contrary: tuple[ContraryPair, ...]


@dataclass(frozen=True, slots=True)
class TwoJudges:
    """The agreement of two judges.

    Attributes:
        kappa: for each aspect, Cohen's kappa of the written verdicts: agreement with that of chance removed,
            with quadratic weights for scales.
        systems: number of systems.
        order: for each column, the pairs of systems that both judges put in the same order, and in opposite
            order; empty for one system.
    """

    kappa: Mapping[str, Estimate]
    systems: int
    order: Mapping[str, OrderOfSystems]


@dataclass(frozen=True, slots=True)
class Labelled:
    """The agreement of both judges with the labels of one aspect, on the same rows.

    Attributes:
        rows: number of rows with labels.
        old: each statistic of OLD: the share of pairs of responses `in_order`, Spearman's correlation, the
            share of `exact` agreement and the mean absolute error `mae`, as far as the aspect has them.
        new: the same of NEW.
        difference: NEW minus OLD, from leaving out each instruction in both. The intervals of all statistics of
            all aspects hold together in 95 % of comparisons (Bonferroni).
        order: the order of the systems by people, and by the judge of OLD and that of NEW, by the names of the
            runs; empty for one system, and for an aspect without an order.
    """

    rows: int
    old: Mapping[str, float | None]
    new: Mapping[str, float | None]
    difference: Mapping[str, Estimate]
    order: Mapping[str, OrderOfSystems]


def compare_two_judges(matched: MatchedRuns, resamples: int, seed: int) -> TwoJudges:
    """Return the agreement of the judges of two runs."""
    rows, both = matched.rows, matched.in_both
    places, group = matched.places[both], matched.group[both]
    kappas = {}
    for aspect, written in rows.written.items():
        statistic = kappa if aspect in rows.ordered else nominal_kappa
        old, new = written[places].T
        kappas[aspect] = SampledRows(group).agreement(statistic, old, new)
    systems = _systems_of(matched, places[:, 0])
    order: dict[str, OrderOfSystems] = {}
    if systems.can_be_ordered:
        order = _orders(
            [systems.means(table[both], group) for table in (matched.old, matched.new)],
            systems.names,
            dict(zip(rows.names, rows.width.tolist(), strict=True)),
            resamples=resamples,
            seed=seed,
        )
    return TwoJudges(kappas, len(systems.names), order)


@dataclass(frozen=True, slots=True)
class _Systems:
    """The systems of some rows.

    Attributes:
        names: the names of the systems.
        place: the place of each row's system in them, [n].
        can_be_ordered: whether they are several systems of single responses.
    """

    names: Sequence[str]
    place: Integers
    can_be_ordered: bool

    def means(self, values: Floats, group: Integers) -> Floats:
        """Return the mean of each column of each system on each instruction, [instructions, systems, columns].

        Args:
            values: the columns, [n, columns].
            group: the instruction of each row, [n].
        """
        instruction = np.unique(group, return_inverse=True)[1]
        shape = int(instruction.max()) + 1, len(self.names)
        means = cell_means(values, instruction * shape[1] + self.place, shape[0] * shape[1])
        return means.reshape(*shape, -1)


def _systems_of(matched: MatchedRuns, rows: Integers) -> _Systems:
    """Return the systems of these rows."""
    of_rows = [matched.rows.identities[row].systems for row in rows.tolist()]
    every = sorted(set(of_rows), key=str)
    place = np.array([every.index(systems) for systems in of_rows])
    names = [systems[0] or UNNAMED for systems in every]
    return _Systems(names, place, len(every) > 1 and len(every[0]) == 1)


def _orders(
    of_judges: Sequence[Floats],
    names: Sequence[str],
    widths: Mapping[str, float],
    *,
    resamples: int,
    seed: int,
) -> dict[str, OrderOfSystems]:
    """Return the order of the systems in each column by two judges.

    Args:
        of_judges: the means of each system on each instruction by each judge, [instructions, systems, columns].
        names: the names of the systems.
        widths: the width of the scale of each column.
        resamples: number of resamples for the tests.
        seed: seed of the resamples.
    """
    first, second = np.array([*combinations(range(len(names)), 2)]).T
    reach = np.repeat([*widths.values()], len(first))
    signs, estimates = list[Floats](), list[list[Estimate]]()
    for means in of_judges:
        by_column = means.transpose(0, 2, 1)
        between = (by_column[:, :, first] - by_column[:, :, second]).reshape(len(means), -1)
        tested = studentise(column_means(between), -reach, reach, True, resamples, seed)
        signs.append(np.sign(tested.value) * (tested.adjusted() < SIGNIFICANCE_LEVEL))
        estimates.append(tested.simultaneous(-reach, reach).estimates())
    product = (signs[0] * signs[1]).reshape(-1, len(first))
    return {
        column: OrderOfSystems(
            alike=int((of_pairs > 0).sum()),
            undecided=int((~(np.abs(of_pairs) > 0)).sum()),
            contrary=tuple(
                ContraryPair(
                    names[first[pair]],
                    names[second[pair]],
                    *(each[at * len(first) + pair] for each in estimates),
                )
                for pair in np.flatnonzero(of_pairs < 0).tolist()
            ),
        )
        for at, (column, of_pairs) in enumerate(zip(widths, product, strict=True))
    }


def compare_labels(matched: MatchedRuns, labels: Labels, resamples: int, seed: int) -> dict[str, Labelled]:
    """Return which of two judges agrees better with labels, in each aspect that has some.

    Args:
        matched: the rows of both runs.
        labels: labels of the rows of both.
        resamples: number of resamples for the order of the systems.
        seed: seed of these, and of the folds that learn which differences of scores count as ties.
    """
    of_people = {**labels.marks, **labels.nominal}
    found = {
        aspect: _with_labels(matched, aspect, of_people[aspect], seed)
        for aspect in matched.rows.written
        if aspect in of_people
    }
    tests = sum(len(statistics) for _, statistics in found.values())
    return {
        aspect: Labelled(
            rows=rows,
            old={name: _known(old.value) for name, (old, _, _) in statistics.items()},
            new={name: _known(new.value) for name, (_, new, _) in statistics.items()},
            difference={
                name: new.minus(old).difference(reach, tests) for name, (old, new, reach) in statistics.items()
            },
            order=_orders_of_people(matched, aspect, of_people[aspect], resamples=resamples, seed=seed),
        )
        for aspect, (rows, statistics) in found.items()
        if rows
    }


@dataclass(frozen=True, slots=True)
class _LabelledCells:
    """The n cells whose row has labels in both runs.

    Attributes:
        places: the row of OLD and of NEW in each cell, [n, 2].
        group: the instruction of each cell, [n].
        marks: the labels.
        count: the number of labels of each row of both runs.
    """

    places: Integers
    group: Integers
    marks: LabelArray
    count: Integers

    @classmethod
    def of(cls, matched: MatchedRuns, marks: LabelArray) -> _LabelledCells:
        """Return the cells of two runs that have labels."""
        places = matched.places[matched.in_both]
        count = np.bincount(marks.row, minlength=len(matched.rows.turned))
        has_labels = (count[places] > 0).all(axis=1)
        return cls(places[has_labels], matched.group[matched.in_both][has_labels], marks, count)

    def means(self, values: Floats) -> Floats:
        """Return the mean of values of the labels of each row, of OLD and of NEW, [2, n]."""
        totals = np.bincount(self.marks.row, values, minlength=len(self.count))
        means: Floats = totals / np.maximum(self.count, 1)
        return means[self.places.T]


def _with_labels(
    matched: MatchedRuns, aspect: str, marks: LabelArray, seed: int
) -> tuple[int, dict[str, tuple[LeftOut, LeftOut, float]]]:
    """Return the number of labelled rows, and the statistics of OLD and NEW with their largest difference."""
    rows, labelled = matched.rows, _LabelledCells.of(matched, marks)
    places, group = labelled.places, labelled.group
    if not len(places):
        return 0, {}
    given = np.where(rows.turned[marks.row], 1 - marks.value, marks.value)
    weights = np.vstack([np.ones(len(group)), left_out(group)])

    def both(statistic: Callable[..., Floats], *columns: Floats) -> tuple[LeftOut, LeftOut]:
        with np.errstate(invalid="ignore"):
            old, new = (statistic(*of_run, weights) for of_run in zip(*columns, strict=True))
        return LeftOut(float(old[0]), old[1:]), LeftOut(float(new[0]), new[1:])

    def mean(values: Floats, weights: Floats) -> Floats:
        of_all: Floats = weights @ values / weights.sum(axis=1)
        return of_all

    statistics = dict[str, tuple[LeftOut, LeftOut, float]]()
    if aspect in rows.names:
        column = rows.names.index(aspect)
        scores, label = rows.values[places.T, column], labelled.means(given)
        if isinstance(rows.source, Scores):
            _, first, place = np.unique(rows.source.response[places[:, 0]], True, True)
            every = np.arange(len(group), dtype=np.int32)
            # The folds of the instructions are those of `agree`, so that both print one number.
            told = LabelArray(every, every, label[0]), rows.source.by_digest[places[:, 0]]
            responses = LabelledResponses.from_labels(*told, first[place])
            if responses is not None:
                old, new = (responses.compare(each, seed)[1] for each in scores)
                statistics["in_order"] = (old, new, 1.0)
        statistics["spearman"] = (*both(spearman, scores, label), 2.0)
        error = labelled.means(np.abs(rows.values[marks.row, column] - given))
        statistics["mae"] = (*both(mean, error), float(rows.width[column]))
    exact = labelled.means((rows.written[aspect][marks.row] == given).astype(np.float64))
    statistics["exact"] = (*both(mean, exact), 1.0)
    return len(places), statistics


def _orders_of_people(
    matched: MatchedRuns, aspect: str, marks: LabelArray, *, resamples: int, seed: int
) -> dict[str, OrderOfSystems]:
    """Return the order of the systems by people and by each judge, on the rows with labels."""
    rows, labelled = matched.rows, _LabelledCells.of(matched, marks)
    places, group = labelled.places, labelled.group
    systems = _systems_of(matched, places[:, 0])
    if aspect not in rows.names or not systems.can_be_ordered:
        return {}
    column = rows.names.index(aspect)
    of_people = systems.means(labelled.means(marks.value)[0][:, None], group)
    found = {}
    for run, name in enumerate(matched.names):
        of_judge = systems.means(rows.values[places[:, run], column][:, None], group)
        width = {aspect: float(rows.width[column])}
        order = _orders([of_people, of_judge], systems.names, width, resamples=resamples, seed=seed)
        found[name] = order[aspect]
    return found


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None
