"""Krippendorff's alpha of annotators or judges, and its interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from localjudge.analysis.matching.human_labels import LabelArray
from localjudge.analysis.matching.scores import Floats, Integers
from localjudge.analysis.statistics.interval import UNDEFINED, Estimate
from localjudge.analysis.statistics.jackknife import PARTS, agreement_estimate


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
    present, numbered = np.unique(group[rows], return_inverse=True)
    parts = min(len(present), PARTS)
    return [
        agreement_estimate(
            alpha(counts, domain, level),
            np.array([alpha(counts[numbered % parts != part], domain, level) for part in range(parts)]),
        )
        for level in levels
    ]


def nominal_alpha(marks: LabelArray, group: Integers) -> Estimate | None:
    """Return Krippendorff's nominal alpha, as `alphas` does; None if no row has two labels."""
    has_several = np.bincount(marks.row, minlength=1).max() >= 2
    return alphas(marks, group, ["nominal"])[0] if has_several else None


def alpha(counts: Floats, domain: Floats, level: str) -> float:
    """Return Krippendorff's alpha (Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability").

    NaN if all labels are equal. It is computed here because the library for it is under the GPL.

    Args:
        counts: number of annotators who gave each value to each unit, [units, values].
        domain: the values, in ascending order.
        level: "nominal", "ordinal" or "interval".
    """
    labels = counts.sum(axis=1)
    pairable, labels = counts[labels > 1], labels[labels > 1]
    # The matrix of observed coincidences, [values, values].
    scaled = pairable / (labels - 1)[:, None]
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
