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
        return min(self.values), max(self.values)

    @property
    def votes(self) -> Floats:
        """The number of jurors that gave each value to each row, [rows, values]."""
        counts: Floats = (self.table[:, :, None] == np.array([*self.values])).sum(axis=1).astype(np.float64)
        return counts

    @property
    def marks(self) -> LabelArray:
        """The scores as labels; each juror is an annotator."""
        row, juror = np.indices(self.table.shape, dtype=np.int32).reshape(2, -1)
        return LabelArray(row, juror, self.table.ravel().astype(np.float64))

    def alphas_without(self) -> Callable[[Floats | None], Floats]:
        """Return the function that gives Krippendorff's alpha of all jurors, and without each, [1 + jurors].

        Its argument is the weight of each row, [rows]; None for equal ones.
        """
        domain, jurors = np.array([*self.values], dtype=np.float64), range(self.table.shape[1])
        without = (replace(self, table=np.delete(self.table, juror, axis=1)) for juror in jurors)
        votes = [self.votes, *(others.votes for others in without)]
        return lambda weights: np.array([alpha(counts, domain, self.level, weights) for counts in votes])


def jury_aspect(rated: RatedAspect, group: Integers) -> JuryAspect:
    """Return the agreement on an aspect.

    Args:
        rated: the scores.
        group: the instruction of each row, [rows], numbered from 0.
    """
    lowest, highest = rated.ends
    differences = np.ptp(rated.table, axis=1)
    split = float((differences >= min(SPLIT, highest - lowest)).mean()) if rated.level == "ordinal" else None
    of_level = alpha_estimate(rated.marks, group, rated.level)
    return JuryAspect(rated.level, of_level, float((differences == 0).mean()), split)


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
    rows, labels = marks.means()
    if scores is None:
        given = np.zeros((len(group), len(rated.values)))
        np.add.at(given, (marks.row, marks.value.astype(int)), 1)
        wrong = 1 - given[rows] / given[rows].sum(axis=1, keepdims=True)
        of_jurors = np.take_along_axis(wrong, rated.table[rows], axis=1)
        votes = rated.votes[rows]
        won = votes == votes.max(axis=1, keepdims=True)
        of_jury, highest = (won * wrong).sum(axis=1) / won.sum(axis=1), 1.0
    else:
        errors = scores[rows] - labels[:, None]
        of_jurors, of_jury = np.abs(errors), np.abs(errors.mean(axis=1))
        highest = float(rated.ends[1] - rated.ends[0])
    present, of_row = np.unique(group[rows], return_inverse=True)
    groups = len(present)
    # Half of the instructions choose the best juror, and the others compare it with the jury.
    half = np.random.default_rng(seed).permutation(groups) < groups // 2
    choosing, others = half[of_row], ~half[of_row]
    best = int(of_jurors[choosing].mean(axis=0).argmin()) if choosing.any() else None
    jury = best_juror = difference = Estimate(
        why="the labelled rows are of one instruction, and two choose and compare it"
    )
    if best is not None:
        columns = np.column_stack([of_jury, of_jurors[:, best], of_jury - of_jurors[:, best]])[others]
        means = averages(columns, of_row[others], groups)
        jury, best_juror, _ = studentise(means, 0, highest, False, resamples, seed).estimates()
        *_, difference = studentise(means, -highest, highest, True, resamples, seed).estimates()
    return JuryErrors(
        rows=len(rows),
        instructions=groups,
        best=None if best is None else names[best],
        compared=int(others.sum()),
        compared_instructions=int((~half).sum()),
        jury=jury,
        best_juror=best_juror,
        difference=difference,
    )
