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
    has_two_labels = np.bincount(marks.row, minlength=1) >= 2
    marks = marks.of_rows(has_two_labels)
    if not len(marks.row):
        return UNDEFINED
    domain, value_index = np.unique(marks.value, return_inverse=True)
    rows, unit = np.unique(marks.row, return_inverse=True)
    counts = np.zeros((len(rows), len(domain)))
    np.add.at(counts, (unit, value_index), 1)
    weights = np.bincount(unit, marks.weights) / counts.sum(axis=1)  # [units]
    value = alpha(counts, domain, level=level, weights=weights)
    without = [
        alpha(counts[is_kept], domain, level=level, weights=weights[is_kept])
        for is_kept in left_out(group[rows])
    ]
    return agreement_estimate(value, np.array(without))


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
    if weights is None:
        weights = np.ones(len(counts))
    labels = counts.sum(axis=1)  # [units]
    is_pairable = labels > 1
    counts = counts[is_pairable]
    weights = weights[is_pairable]
    labels = labels[is_pairable]
    if len(weights):
        # The weights leave the number of labels as it is.
        weights = weights * (labels.sum() / (weights @ labels))
    weighted = counts * (weights / (labels - 1))[:, None]
    # The matrix of observed coincidences, [values, values].
    observed = counts.T @ weighted - np.diag(weighted.sum(axis=0))
    of_value = observed.sum(axis=0)  # [values]
    distance = _squared_distances(of_value, domain, level=level)
    expected = of_value @ distance @ of_value
    if expected == 0:
        return float("nan")
    return float(1 - (of_value.sum() - 1) * (observed * distance).sum() / expected)


def _squared_distances(of_value: Floats, domain: Floats, level: str) -> Floats:
    """Return the squared distance of each two values, [values, values].

    Args:
        of_value: how many coincidences each value is in, [values].
        domain, level: as for `alpha`.
    """
    if level == "nominal":
        return 1 - np.eye(len(domain))
    if level == "interval":
        position = domain
    else:
        # The ordinal distance of two values is the distance of their mean ranks.
        position = of_value.cumsum() - of_value / 2
    squared: Floats = (position[:, None] - position) ** 2
    return squared
