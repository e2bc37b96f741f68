"""Two judges of the same responses: how far they agree, and which of them agrees better with people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Floats, Integers
from localjudge.matching.labels import Labels
from localjudge.statistics import UNDEFINED, Estimate
from localjudge.statistics.agreement_statistics import (
    SampledRows,
    Statistic,
    kappa,
    kendall,
    nominal_kappa,
    of_all,
    spearman,
)
from localjudge.statistics.jackknife import jackknife_interval, left_out
from localjudge.statistics.resampling import bootstrap_weights, cell_means, expanded_percentile
from localjudge.studies.compare.matched_runs import MatchedRuns

FEWEST_SYSTEMS = 3
"""Number of systems whose order can change more than once."""


@dataclass(frozen=True, slots=True)
class TwoJudges:
    """The agreement of two judges.

    Attributes:
        kappa: for each aspect, Cohen's kappa of the written verdicts: agreement with that of chance removed,
            with quadratic weights for scales.
        systems: number of systems.
        order: for each column, Kendall's tau-b of the systems' means by both judges: 1 if their order is the
            same; empty for fewer than three systems.
    """

    kappa: Mapping[str, Estimate]
    systems: int
    order: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True)
class Labelled:
    """The agreement of both judges with the labels of one aspect, on the same rows.

    Attributes:
        rows: number of rows with labels.
        old: each statistic of OLD.
        new: the same of NEW.
        difference: NEW minus OLD, with its interval from leaving out each instruction in both.
    """

    rows: int
    old: Mapping[str, float | None]
    new: Mapping[str, float | None]
    difference: Mapping[str, Estimate]


def compare_two_judges(matched: MatchedRuns, resamples: int, seed: int) -> TwoJudges:
    """Return the agreement of the judges of two runs."""
    rows, both = matched.rows, matched.in_both
    places, group = matched.places[both], matched.group[both]
    kappas = {}
    for aspect, written in rows.written.items():
        statistic = kappa if aspect in rows.ordered else nominal_kappa
        old, new = written[places].T
        kappas[aspect] = SampledRows(group).agreement(statistic, old, new)
    names = sorted({rows.identities[row].systems for row in places[:, 0].tolist()}, key=str)
    order = {}
    if len(names) >= FEWEST_SYSTEMS and len(names[0]) == 1:
        system = np.array([names.index(rows.identities[row].systems) for row in places[:, 0].tolist()])
        tables = matched.old[both], matched.new[both]
        instruction = np.unique(group, return_inverse=True)[1]
        cell, size = instruction * len(names) + system, (int(instruction.max()) + 1) * len(names)
        for at, column in enumerate(rows.names):
            cells = [cell_means(table[:, [at]], cell, size).reshape(-1, len(names)) for table in tables]
            order[column] = _order(cells[0], cells[1], resamples, seed)
    return TwoJudges(kappas, len(names), order)


def _order(old: Floats, new: Floats, resamples: int, seed: int) -> Estimate:
    """Return Kendall's tau-b of the systems' means, with its interval from resampled instructions.

    Args:
        old: the mean of each system on each instruction by one judge, [instructions, systems].
        new: the same by the other.
    """
    from scipy.stats import kendalltau

    answered, tau = np.isfinite(old), list[float]()
    with np.errstate(invalid="ignore", divide="ignore"):
        for weights in (np.ones((1, len(old))), *bootstrap_weights(len(old), resamples, seed)):
            means = [(weights @ np.nan_to_num(each) / (weights @ answered)).round(9) for each in (old, new)]
            tau += [float(kendalltau(*pair).statistic) for pair in zip(*means, strict=True)]
    return expanded_percentile(tau[0], np.array(tau[1:]), len(old))


def compare_labels(matched: MatchedRuns, labels: Labels, resamples: int, seed: int) -> dict[str, Labelled]:
    """Return which of two judges agrees better with labels, in each aspect that has some.

    Args:
        matched: the rows of both runs.
        labels: labels of the rows of both.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
    """
    rows, both = matched.rows, matched.in_both
    places, group = matched.places[both], matched.group[both]
    labelled = {}
    for aspect in rows.written:
        marks = {**labels.marks, **labels.nominal}.get(aspect)
        if marks is None:
            continue
        given = np.where(rows.turned[marks.row], 1 - marks.value, marks.value)
        count = np.bincount(marks.row, minlength=len(rows.turned))
        kept = (count[places] > 0).all(axis=1)
        if not kept.any():
            continue
        chosen, of_rows = places[kept], SampledRows(group[kept], None, resamples, seed)

        def mean(values: Floats) -> Floats:
            """Return the mean over the labels of each row, in OLD and in NEW, [kept rows, 2]."""
            totals: Floats = np.bincount(marks.row, values, minlength=len(rows.turned))[chosen] / count[chosen]  # noqa: B023
            return totals

        compared = {"exact": (mean((rows.written[aspect][marks.row] == given).astype(np.float64)), 1.0)}
        old, new, difference = {}, {}, {}
        if aspect in rows.names:
            column = rows.names.index(aspect)
            x, y, width = rows.values[chosen, column], mean(given), float(rows.width[column])
            compared["mae"] = (mean(np.abs(rows.values[marks.row, column] - given)), width)
            for name, statistic in {"spearman": spearman, "kendall": kendall}.items():
                old[name], new[name], difference[name] = _difference(statistic, x, y, of_rows.group)
        for name, (values, most) in compared.items():
            old[name], new[name] = map(float, values.mean(axis=0))
            change = values[:, 1] - values[:, 0]
            difference[name] = of_rows.mean(change, -most, most, signed=True)
        labelled[aspect] = Labelled(int(kept.sum()), old, new, difference)
    return labelled


def _difference(
    statistic: Statistic, x: Floats, y: Floats, group: Integers
) -> tuple[float | None, float | None, Estimate]:
    """Return a statistic of both judges, and its difference with its interval from the jackknife.

    Args:
        statistic: the statistic.
        x: the numbers of both judges, [m, 2].
        y: the labels of both rows, [m, 2].
        group: the instruction of each row, [m].
    """
    old, new = (of_all(statistic, x[:, run], y[:, run]) for run in (0, 1))
    if old is None or new is None:
        return old, new, UNDEFINED
    weights = left_out(group).astype(np.float64)
    without = statistic(x[:, 1], y[:, 1], weights) - statistic(x[:, 0], y[:, 0], weights)
    return old, new, Estimate.from_floats(new - old, *jackknife_interval(new - old, without))
