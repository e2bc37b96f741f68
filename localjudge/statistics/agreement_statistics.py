"""Statistics of agreement: of pairs on thousands of resamples at once, and Krippendorff's alpha of annotators.

A resample gives each row a weight: the number of times that it was drawn, or, for rows that were drawn with
unequal chances, that number over the chance. Each function takes pairs `x`, `y` [m] and weights [B, m] of at
least 0, and returns [B] numbers: the result of SciPy's function (scikit-learn's for kappa) on the rows, each
repeated by its weight; NaN if it is undefined. A common factor of the weights changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localjudge.arrays import Floats, Integers, LabelArray
from localjudge.statistics import UNDEFINED, Estimate
from localjudge.statistics.jackknife import agreement_estimate, left_out

_SMALLEST = 1e-12
"""Share of its terms below which a variance is a rounding error: the column is constant."""


def pearson(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Return Pearson's correlation."""
    x, y = x - x.mean(), y - y.mean()
    n, sx, sy, sxx, syy, sxy = (weights @ np.column_stack([np.ones_like(x), x, y, x * x, y * y, x * y])).T
    return _correlation(n, sx, sy, sxx, syy, sxy)


def spearman(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Return Spearman's correlation: Pearson's of the ranks in each resample; ties share their mean rank."""
    rx, ry = _ranks(x, weights), _ranks(y, weights)
    n = weights.sum(axis=1)
    # Subtract the mean rank, so that the sums lose no precision.
    rx -= (n[:, None] + 1) / 2
    ry -= (n[:, None] + 1) / 2
    wx, wy = weights * rx, weights * ry
    return _correlation(
        n, wx.sum(axis=1), wy.sum(axis=1), (wx * rx).sum(axis=1), (wy * ry).sum(axis=1), (wx * ry).sum(axis=1)
    )


def kendall(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Return Kendall's tau-b.

    For each row and each level of y, the weight of that level at smaller x is summed, so that each pair counts
    once. The time is proportional to m times the number of levels of y, which is small for labels.
    """
    order = np.argsort(x, kind="stable")
    x, y, weights = x[order], y[order], weights[:, order]
    ends = np.flatnonzero(np.diff(x, append=np.inf) != 0)  # the last row of each run of equal x
    before = np.concatenate([[-1], ends[:-1]])
    runs = np.searchsorted(ends, np.arange(len(x)))  # the run of each row
    surplus = np.zeros(len(weights))
    for level in np.unique(y):
        below = np.cumsum(weights * (y == level), axis=1)
        below = np.concatenate([np.zeros((len(weights), 1)), below[:, before[1:]]], axis=1)[:, runs]
        surplus += (weights * below * np.sign(y - level)).sum(axis=1)
    of_x, of_y = (_untied(column, weights) for column in (x, y))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((of_x > 0) & (of_y > 0), surplus / np.sqrt(of_x * of_y), np.nan)


def kappa(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Return Cohen's kappa with quadratic weights: 2 cov / (var x + var y + (mean x - mean y)²)."""
    x, y = x - y.mean(), y - y.mean()
    n, sx, sy, sxx, syy, sxy = (weights @ np.column_stack([np.ones_like(x), x, y, x * x, y * y, x * y])).T
    chance = sxx / n + syy / n - 2 * sx * sy / n**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(chance > _SMALLEST, 1 - (sxx + syy - 2 * sxy) / n / chance, np.nan)


def nominal_kappa(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Return Cohen's kappa of labels without an order."""
    n = weights.sum(axis=1)
    agreed = weights @ (x == y) / n
    chance = np.zeros(len(weights))
    for label in np.intersect1d(x, y):
        chance += (weights @ (x == label)) * (weights @ (y == label)) / n**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(1 - chance > _SMALLEST, (agreed - chance) / (1 - chance), np.nan)


def auc(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Return the area under the ROC curve of `x`, where `y` is 1 for a positive and 0 for a negative.

    It is the probability that a positive is above a negative; equal values count half (Hanley & McNeil 1982,
    doi:10.1148/radiology.143.1.7063747).
    """
    positive, _ = _levels(x, weights * (y == 1))
    negative, _ = _levels(x, weights * (y == 0))
    below = np.cumsum(negative, axis=1) - negative / 2
    pairs = positive.sum(axis=1) * negative.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(pairs > 0, (positive * below).sum(axis=1) / pairs, np.nan)


def _correlation(n: Any, sx: Any, sy: Any, sxx: Any, syy: Any, sxy: Any) -> Floats:
    vx, vy = n * sxx - sx * sx, n * syy - sy * sy
    varied = (vx > _SMALLEST * n * sxx) & (vy > _SMALLEST * n * syy)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(varied, np.clip((n * sxy - sx * sy) / np.sqrt(vx * vy), -1, 1), np.nan)


def _ranks(values: Floats, weights: Floats) -> Floats:
    """Return the mean rank of each row among the repeated rows, [B, m]."""
    at_level, level = _levels(values, weights)
    ranks = np.cumsum(at_level, axis=1) - (at_level - 1) / 2
    taken: Floats = ranks[:, level]
    return taken


def _untied(values: Floats, weights: Floats) -> Floats:
    """Return the number of pairs that differ in this column, [B]."""
    at_level, _ = _levels(values, weights)
    pairs = at_level.sum(axis=1) ** 2 / 2
    untied: Floats = pairs - (at_level**2 / 2).sum(axis=1)
    return np.where(untied > _SMALLEST * pairs, untied, 0)


def _levels(values: Floats, weights: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """Return the weight of each distinct value [B, levels], and the level of each row [m]."""
    levels, level = np.unique(values, return_inverse=True)
    order = np.argsort(level, kind="stable")
    starts = np.searchsorted(level[order], np.arange(len(levels)))
    return np.add.reduceat(weights[:, order], starts, axis=1), level


def alphas(
    marks: LabelArray, group: Integers, levels: Sequence[str] = ("ordinal", "interval")
) -> list[Estimate]:
    """Return Krippendorff's alpha of each level of measurement, over rows with at least two labels.

    It is undefined if no row has two.

    Args:
        marks: the labels.
        group: the instruction of each row of the run, [rows].
        levels: as for `alpha`.
    """
    marks = marks.of_rows(np.bincount(marks.row, minlength=1) >= 2)
    if not len(marks.row):
        return [UNDEFINED] * len(levels)
    domain, value = np.unique(marks.value, return_inverse=True)
    rows, row = np.unique(marks.row, return_inverse=True)
    counts = np.zeros((len(rows), len(domain)))
    np.add.at(counts, (row, value), 1)
    weights = np.bincount(row, marks.weights) / counts.sum(axis=1)
    return [
        agreement_estimate(
            alpha(counts, domain, level, weights),
            np.array([alpha(counts[kept], domain, level, weights[kept]) for kept in left_out(group[rows])]),
        )
        for level in levels
    ]


def nominal_alpha(marks: LabelArray, group: Integers) -> Estimate | None:
    """Return Krippendorff's nominal alpha, as `alphas` does; None if no row has two labels."""
    has_several = np.bincount(marks.row, minlength=1).max() >= 2
    return alphas(marks, group, ["nominal"])[0] if has_several else None


def alpha(counts: Floats, domain: Floats, level: str, weights: Floats | None = None) -> float:
    """Return Krippendorff's alpha (Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability").

    NaN if all labels are equal. It is computed here because the library for it is under the GPL.

    Args:
        counts: number of annotators who gave each value to each unit, [units, values].
        domain: the values, in ascending order.
        level: "nominal", "ordinal" or "interval".
        weights: the weight of each unit, such as the inverse of its chance to be drawn, [units]; None for equal
            ones.
    """
    labels = counts.sum(axis=1)
    own = np.ones(len(counts)) if weights is None else weights
    pairable, own, labels = counts[labels > 1], own[labels > 1], labels[labels > 1]
    own = own * (labels.sum() / (own @ labels))
    # The matrix of observed coincidences, [values, values].
    scaled = pairable * (own / (labels - 1))[:, None]
    observed = pairable.T @ scaled - np.diag(scaled.sum(axis=0))
    of_value = observed.sum(axis=0)
    if level == "nominal":
        distance = 1 - np.eye(len(domain))
    else:
        # The ordinal distance of two values is the distance of their mean ranks.
        position = domain if level == "interval" else of_value.cumsum() - of_value / 2
        distance = (position[:, None] - position) ** 2
    expected = of_value @ distance @ of_value
    if expected == 0:
        return float("nan")
    return float(1 - (of_value.sum() - 1) * (observed * distance).sum() / expected)
