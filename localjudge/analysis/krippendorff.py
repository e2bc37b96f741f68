"""Krippendorff's alpha of annotators or judges, and its interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from localjudge.analysis.human_labels import Marks
from localjudge.analysis.interval import Estimate
from localjudge.analysis.resampling import bootstrap_weights, expanded_percentile
from localjudge.analysis.scores import Floats, Integers


def alphas(
    marks: Marks, group: Integers, resamples: int, seed: int, levels: Sequence[str] = ("ordinal", "interval")
) -> list[Estimate]:
    """Return Krippendorff's alpha of each level of measurement, over rows with at least two labels.

    Args:
        marks: the labels.
        group: the instruction of each row of the run, [rows].
        resamples: number of resamples for the intervals, of which at most 500 are used.
        seed: seed of the resamples.
        levels: as for `alpha`.
    """
    domain, value = np.unique(marks.value, return_inverse=True)
    rows, row = np.unique(marks.row, return_inverse=True)
    counts = np.zeros((len(rows), len(domain)))
    np.add.at(counts, (row, value), 1)
    present, numbered = np.unique(group[rows], return_inverse=True)
    members = [np.flatnonzero(numbered == number) for number in range(len(present))]
    resampled = [[np.nan] * len(levels)]  # ignored by the intervals; keeps the array two-dimensional
    for block in bootstrap_weights(len(present), min(resamples, 500), seed):
        for weights in block:
            repeated = [members[g] for g in np.repeat(np.arange(len(present)), weights.astype(int))]
            sample = counts[np.concatenate(repeated)]
            resampled.append([alpha(sample, domain, level) for level in levels])
    return [
        expanded_percentile(alpha(counts, domain, level), values, len(present))
        for level, values in zip(levels, np.array(resampled).T, strict=True)
    ]


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
