"""Krippendorff's alpha of annotators or judges, and its interval."""

from __future__ import annotations

import numpy as np

from localjudge.analysis.interval import Estimate
from localjudge.analysis.labels import Marks
from localjudge.analysis.resampling import draws, expanded_percentile
from localjudge.analysis.scores import Floats, Integers


def alphas(marks: Marks, group: Integers, resamples: int, seed: int) -> tuple[Estimate, Estimate]:
    """Return Krippendorff's alpha, ordinal and interval, over rows with at least two labels."""
    domain, value = np.unique(marks.value, return_inverse=True)
    rows, row = np.unique(marks.row, return_inverse=True)
    counts = np.zeros((len(rows), len(domain)))
    np.add.at(counts, (row, value), 1)
    present, numbered = np.unique(group[rows], return_inverse=True)
    members = [np.flatnonzero(numbered == number) for number in range(len(present))]
    drawn = [(np.nan, np.nan)]  # left out of the intervals, and there where nothing is drawn
    for block in draws(len(present), min(resamples, 500), seed):
        for weights in block:
            repeated = [members[g] for g in np.repeat(np.arange(len(present)), weights.astype(int))]
            again = counts[np.concatenate(repeated)]
            drawn.append((alpha(again, domain, "ordinal"), alpha(again, domain, "interval")))
    ordinal, interval = np.array(drawn).T
    return (
        expanded_percentile(alpha(counts, domain, "ordinal"), ordinal, len(present)),
        expanded_percentile(alpha(counts, domain, "interval"), interval, len(present)),
    )


def alpha(counts: Floats, domain: Floats, level: str) -> float:
    """Return Krippendorff's alpha (Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability").

    NaN if all labels are equal. It is computed here because the library for it is under the GPL.

    Args:
        counts: number of annotators who gave each unit each value, [units, values].
        domain: the values in their order.
        level: "ordinal" or "interval".
    """
    labels = counts.sum(axis=1)
    pairable, labels = counts[labels > 1], labels[labels > 1]
    # How often two labels of one unit are this and that value, [values, values].
    scaled = pairable / (labels - 1)[:, None]
    observed = pairable.T @ scaled - np.diag(scaled.sum(axis=0))
    of_value = observed.sum(axis=0)
    # As ranks, values stand as far apart as there are labels from the middle of one to the middle of the other.
    place = domain if level == "interval" else of_value.cumsum() - of_value / 2
    apart = (place[:, None] - place) ** 2
    expected = of_value @ apart @ of_value
    if expected == 0:
        return float("nan")
    return float(1 - (of_value.sum() - 1) * (observed * apart).sum() / expected)
