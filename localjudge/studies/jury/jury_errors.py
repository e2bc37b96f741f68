"""The errors of a jury against labels: how many independent votes it is worth, and its best juror."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Floats, Integers, LabelArray
from localjudge.statistics import Estimate
from localjudge.statistics.jackknife import PARTS, jackknife_interval
from localjudge.statistics.resampling import averages, studentise
from localjudge.studies.jury.jury_aspect import RatedAspect


@dataclass(frozen=True, slots=True)
class JuryErrors:
    """The errors of a jury on one aspect, on the rows with labels.

    The error on a row is the share of its labels that differ from the juror's or the jury's label (the label
    with the most votes; labels with equally many votes share the row), or the distance of the score (the jury's
    is the mean) from the mean label.

    Attributes:
        correlation: the mean correlation of the errors of two jurors; on a scale, the errors have a sign.
            Undefined if a juror has the same error on all rows. Errors of the labels are shared by all jurors
            and make it larger.
        votes: the number of jurors with independent errors that the k jurors are worth, k / (1 + (k - 1) r) for
            the correlation r (Kish 1965; arXiv 2605.29800).
        best: the best juror: the smallest mean error on a random half of the instructions; None for one
            instruction.
        compared: the number of rows of the other instructions. The errors of the best juror are measured on
            these alone: on the rows that chose it, they are smaller by chance.
        jury: the mean error of the jury on these rows.
        best_juror: the mean error of the best juror on these rows.
        difference: `jury` minus `best_juror`.
    """

    rows: int
    instructions: int
    correlation: Estimate
    votes: Estimate
    best: str | None
    compared: int
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
        errors = own = np.take_along_axis(wrong, rated.table[rows], axis=1)
        votes = rated.votes[rows]
        won = votes == votes.max(axis=1, keepdims=True)
        of_jury, highest = (won * wrong).sum(axis=1) / won.sum(axis=1), 1.0
    else:
        errors = scores[rows] - labels[:, None]
        own, of_jury = np.abs(errors), np.abs(errors.mean(axis=1))
        highest = float(rated.ends[1] - rated.ends[0])
    present, numbered = np.unique(group[rows], return_inverse=True)
    groups, of_row = len(present), numbered.astype(np.int32)
    parts, jurors = min(groups, PARTS), len(names)
    left_out = np.concatenate([np.ones((1, parts)), 1 - np.eye(parts)])
    correlations = _mean_correlation(errors, of_row % parts, left_out)
    # The logarithm of the votes is nearly symmetric also if all jurors make the same errors.
    with np.errstate(divide="ignore", over="ignore"):
        worth = np.log(jurors) - np.log(np.maximum(1 + (jurors - 1) * correlations, 0))
        low, high = np.maximum(np.exp(jackknife_interval(worth[0], worth[1:])), 1)
    # Half of the instructions choose the best juror, and the others compare it with the jury.
    half = np.random.default_rng(seed).permutation(groups) < groups // 2
    choosing, others = half[of_row], ~half[of_row]
    best = int(own[choosing].mean(axis=0).argmin()) if choosing.any() else None
    found = [Estimate(why="the labelled rows are of one instruction, and two choose and compare it")] * 3
    if best is not None:
        columns = np.column_stack([of_jury, own[:, best], of_jury - own[:, best]])[others]
        means = averages(columns, of_row[others], groups)
        found = studentise(means, 0, highest, False, resamples, seed).estimates()[:2]
        found += studentise(means, -highest, highest, True, resamples, seed).estimates()[2:]
    return JuryErrors(
        rows=len(rows),
        instructions=groups,
        correlation=Estimate.from_floats(
            correlations[0],
            (jurors / high - 1) / (jurors - 1),
            (jurors / low - 1) / (jurors - 1),
            "" if np.isfinite(correlations[0]) else "the errors of a juror are the same on all rows",
        ),
        votes=Estimate.from_floats(np.exp(worth[0]), low, high),
        best=None if best is None else names[best],
        compared=int(others.sum()),
        jury=found[0],
        best_juror=found[1],
        difference=found[2],
    )


def _mean_correlation(errors: Floats, group: Integers, weights: Floats) -> Floats:
    """Return the mean of Pearson's correlation over all pairs of jurors, for each weighting, [B].

    Args:
        errors: the errors of the jurors, [m, k].
        group: the instruction of each row, [m].
        weights: how often each instruction counts, [B, groups].
    """
    rows, jurors = errors.shape
    centred = errors - errors.mean(axis=0)
    terms = np.column_stack(
        [np.ones(rows), centred, (centred[:, :, None] * centred[:, None]).reshape(rows, -1)]
    )
    of_groups = np.zeros((weights.shape[1], terms.shape[1]))
    np.add.at(of_groups, group, terms)
    sums = weights @ of_groups
    sums /= np.maximum(sums[:, :1], 1)  # nothing is left without the only row
    means, products = sums[:, 1 : jurors + 1], sums[:, jurors + 1 :].reshape(-1, jurors, jurors)
    covariance = products - means[:, :, None] * means[:, None]
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    deviation = np.sqrt(np.where(variance > 1e-12, variance, np.nan))
    pairs = np.triu_indices(jurors, 1)
    result: Floats = (covariance / deviation[:, :, None] / deviation[:, None])[:, *pairs].mean(axis=1)
    return result
