"""Agreement among annotators: Krippendorff's alpha."""

from __future__ import annotations

import numpy as np

from localjudge.arrays import Floats, Integers, LabelArray
from localjudge.statistics import UNDEFINED, Estimate
from localjudge.statistics.jackknife import agreement_estimate, left_out


def alpha_estimate(marks: LabelArray, group: Integers, level: str) -> Estimate:
    """Return Krippendorff's alpha over rows with at least two labels; undefined if no row has two.

    Args:
        marks: the labels.
        group: the instruction of each row of the run, [rows].
        level: as for `alpha`.
    """
    marks = marks.of_rows(np.bincount(marks.row, minlength=1) >= 2)
    if not len(marks.row):
        return UNDEFINED
    domain, value = np.unique(marks.value, return_inverse=True)
    rows, row = np.unique(marks.row, return_inverse=True)
    counts = np.zeros((len(rows), len(domain)))
    np.add.at(counts, (row, value), 1)
    weights = np.bincount(row, marks.weights) / counts.sum(axis=1)
    without = [alpha(counts[kept], domain, level, weights[kept]) for kept in left_out(group[rows])]
    return agreement_estimate(alpha(counts, domain, level, weights), np.array(without))


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
    own = own * (labels.sum() / (own @ labels) if len(own) else 1.0)
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
