"""The agreement of several judges on one aspect, and their errors against labels beside the best juror's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from localjudge.arrays import Floats, Integers, LabelArray
from localjudge.statistics import Estimate
from localjudge.statistics.krippendorff import alpha, alpha_estimate
from localjudge.statistics.resampling import averages, studentise

SPLIT = 2
"""Smallest difference between the highest and the lowest score of an aspect that makes a row a split row; on a
narrower scale, its range."""

ONE_INSTRUCTION = "the labelled rows are of one instruction, and two choose and compare it"
"""Why a jury is not compared with its best juror."""


@dataclass(frozen=True, slots=True)
class JuryAspect:
    """The agreement of the jurors on one aspect.

    Attributes:
        level: "ordinal", or "nominal" for an aspect without an order.
        alpha: Krippendorff's alpha of this level.
        unanimous: the share of the rows with equal scores.
        split: the share of the rows with scores that differ by `SPLIT` or more; None for labels.
    """

    level: str
    alpha: Estimate
    unanimous: float
    split: float | None


@dataclass(frozen=True, slots=True)
class RatedAspect:
    """The scores of an aspect as numbers, [rows, jurors]; `values` has the value of each number, ascending.

    The level of measurement is "ordinal", or "nominal" for labels, which are numbered from 0.
    """

    name: str
    level: str
    table: Integers
    values: Mapping[int, Any]

    @property
    def ends(self) -> tuple[int, int]:
        """The lowest and the highest value."""
        return min(self.values), max(self.values)

    @property
    def votes(self) -> Floats:
        """The number of jurors that gave each value to each row, [rows, values]."""
        is_vote = self.table[:, :, None] == np.array(list(self.values))  # [rows, jurors, values]
        counts: Floats = is_vote.sum(axis=1).astype(np.float64)
        return counts

    @property
    def marks(self) -> LabelArray:
        """The scores as labels; each juror is an annotator."""
        row, juror = np.indices(self.table.shape, dtype=np.int32).reshape(2, -1)
        return LabelArray(row, juror, value=self.table.ravel().astype(np.float64))

    def alphas_without(self) -> Callable[[Floats | None], Floats]:
        """Return the function that gives Krippendorff's alpha of all jurors, and without each, [1 + jurors].

        Its argument is the weight of each row, [rows]; None for equal ones.
        """
        domain = np.array(list(self.values), dtype=np.float64)
        votes = [self.votes]  # [rows, values] each
        for juror in range(self.table.shape[1]):
            without_juror = replace(self, table=np.delete(self.table, juror, axis=1))
            votes.append(without_juror.votes)

        def alphas(weights: Floats | None) -> Floats:
            return np.array([alpha(counts, domain, level=self.level, weights=weights) for counts in votes])

        return alphas


def jury_aspect(rated: RatedAspect, group: Integers) -> JuryAspect:
    """Return the agreement on an aspect.

    Args:
        rated: the scores.
        group: the instruction of each row, [rows], numbered from 0.
    """
    differences = np.ptp(rated.table, axis=1)  # [rows]
    split = None
    if rated.level == "ordinal":
        lowest, highest = rated.ends
        split = float((differences >= min(SPLIT, highest - lowest)).mean())
    return JuryAspect(
        level=rated.level,
        alpha=alpha_estimate(rated.marks, group, level=rated.level),
        unanimous=float((differences == 0).mean()),
        split=split,
    )


@dataclass(frozen=True, slots=True)
class JuryErrors:
    """The errors of a jury on one aspect, on the rows with labels.

    The error on a row is the share of its labels that differ from the juror's or the jury's label (the label
    with the most votes; labels with equally many votes share the row), or the distance of the score (the jury's
    is the mean) from the mean label.

    Attributes:
        rows: the number of rows with labels.
        instructions: the number of their instructions.
        best: the best juror: the smallest mean error on a random half of the instructions; None for one
            instruction.
        compared: the number of rows of the other instructions. The errors of the best juror are measured on
            these alone: on the rows that chose it, they are smaller by chance.
        compared_instructions: the number of these instructions.
        jury: the mean error of the jury on these rows.
        best_juror: the mean error of the best juror on these rows.
        difference: `jury` minus `best_juror`.
    """

    rows: int
    instructions: int
    best: str | None
    compared: int
    compared_instructions: int
    jury: Estimate
    best_juror: Estimate
    difference: Estimate


@dataclass(frozen=True, slots=True)
class _RowErrors:
    """The errors on n rows with labels, from 0 to `highest`.

    Attributes:
        jurors: the errors of each juror, [n, k].
        jury: the errors of the jury, [n].
        highest: the largest possible error.
    """

    jurors: Floats
    jury: Floats
    highest: float


def jury_errors(
    rated: RatedAspect,
    scores: Floats | None,
    marks: LabelArray,
    group: Integers,
    names: Sequence[str],
    resamples: int,
    seed: int,
) -> JuryErrors:
    """Compare the errors of the jurors and of the jury.

    Args:
        rated: the scores as whole numbers or labels, [rows, k].
        scores: the scores to compare, [rows, k]; None for labels without an order.
        marks: the labels; at least one.
        group: the instruction of each row, [rows].
        names: the names of the jurors, [k].
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
    """
    rows, mean_labels = marks.means()
    if scores is None:
        errors = _errors_of_labels(rated, marks, rows=rows)
    else:
        errors = _errors_of_scores(rated, scores[rows], labels=mean_labels)
    present, numbered = np.unique(group[rows], return_inverse=True)
    groups = len(present)
    # Half of the instructions choose the best juror, and the others compare it with the jury.
    chooses = np.random.default_rng(seed).permutation(groups) < groups // 2  # [G]
    row_chooses = chooses[numbered]  # [n]
    is_compared = ~row_chooses
    unknown = Estimate(why=ONE_INSTRUCTION)
    uncompared = JuryErrors(
        rows=len(rows),
        instructions=groups,
        best=None,
        compared=int(is_compared.sum()),
        compared_instructions=int((~chooses).sum()),
        jury=unknown,
        best_juror=unknown,
        difference=unknown,
    )
    if not row_chooses.any():
        return uncompared
    best = int(errors.jurors[row_chooses].mean(axis=0).argmin())
    of_best = errors.jurors[:, best]
    columns = np.column_stack([errors.jury, of_best, errors.jury - of_best])  # [n, 3]
    means = averages(columns[is_compared], numbered[is_compared], groups=groups)
    highest = errors.highest
    as_errors = studentise(means, lowest=0, highest=highest, resamples=resamples, seed=seed).estimates()
    as_differences = studentise(
        means, lowest=-highest, highest=highest, symmetric=True, resamples=resamples, seed=seed
    ).estimates()
    return replace(
        uncompared,
        best=names[best],
        jury=as_errors[0],
        best_juror=as_errors[1],
        difference=as_differences[2],
    )


def _errors_of_labels(rated: RatedAspect, marks: LabelArray, rows: Integers) -> _RowErrors:
    """Return the share of the labels of each row that differ from the jurors' and the jury's label.

    Args:
        rated: the jurors' labels.
        marks: the human labels.
        rows: the rows that have them, [n].
    """
    label_counts = np.zeros((len(rated.table), len(rated.values)))
    np.add.at(label_counts, (marks.row, marks.value.astype(int)), 1)
    label_counts = label_counts[rows]  # [n, values]
    error_of_value = 1 - label_counts / label_counts.sum(axis=1, keepdims=True)  # [n, values]
    votes = rated.votes[rows]  # [n, values]
    is_winner = votes == votes.max(axis=1, keepdims=True)
    return _RowErrors(
        jurors=np.take_along_axis(error_of_value, rated.table[rows], axis=1),
        jury=(is_winner * error_of_value).sum(axis=1) / is_winner.sum(axis=1),
        highest=1.0,
    )


def _errors_of_scores(rated: RatedAspect, scores: Floats, labels: Floats) -> _RowErrors:
    """Return the distances of the jurors' scores [n, k] and of their mean from the labels [n]."""
    lowest, highest = rated.ends
    errors = scores - labels[:, None]
    return _RowErrors(jurors=np.abs(errors), jury=np.abs(errors.mean(axis=1)), highest=float(highest - lowest))
