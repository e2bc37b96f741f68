"""Prediction-powered means: the mean human score of all rows, from a few labels and the judge's scores.

The judge's scores replace the missing labels, and the existing labels correct the judge's scores. So the
interval is valid for the human score even if the judge is bad; a good judge makes it shorter. This is the
power-tuned estimator of Angelopoulos, Duchi & Zrnic, "PPI++: Efficient Prediction-Powered Inference"
(arXiv:2311.01453), equation 3 and section 6. It requires that the labelled rows are a random sample of all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from localjudge.analysis.matching.scores import Floats, Integers
from localjudge.analysis.statistics.resampling import Contributions


def prediction_powered(
    judged: Floats,
    labelled: NDArray[np.bool_],
    labels: Floats,
    group: Integers,
    groups: int,
    weights: Floats | None = None,
) -> Contributions:
    """Return the mean of the labels, with the contribution of each instruction; NaN for fewer than two labels.

    Args:
        judged: the judge's score of each row, [m].
        labelled: mask of the rows that have a label, [m].
        labels: the labels of these rows, in the same order.
        group: the instruction of each row, [m].
        groups: number of instructions.
        weights: the weight of each row in the mean, [m]; None for equal weights.
    """
    weights = np.ones(len(judged)) if weights is None else weights
    own, others = (
        weights[rows] / weights[rows].sum() if rows.any() else weights[rows] for rows in (labelled, ~labelled)
    )
    shares = np.zeros((groups, 1))
    known, rest = judged[labelled], judged[~labelled]
    if len(known) < 2:
        return Contributions(np.array([np.nan]), shares, np.zeros(1))
    tuning = power_tuning(known, rest, labels)
    corrected = labels - tuning * known
    mean, rest_mean = own @ corrected, others @ rest
    value = mean + tuning * rest_mean
    # Each label influences the tuning; its leverage grows with the distance of its judge's score from the mean.
    # The HC3 correction (MacKinnon & White 1985) makes the interval valid with as few as thirty labels.
    squares = (known - known.mean()) ** 2
    leverage = np.minimum(squares / squares.sum(), 0.9) if tuning else 0.0
    np.add.at(shares[:, 0], group[labelled], own * (corrected - mean) / (1 - leverage))
    np.add.at(shares[:, 0], group[~labelled], tuning * others * (rest - rest_mean))
    units = len(np.unique(group[labelled]))
    return Contributions(np.array([value]), shares, np.array([float(units)]))


def power_tuning(known: Floats, rest: Floats, labels: Floats) -> float:
    """Return the weight of the judge's scores, 0 to 1, that minimizes the variance of the mean.

    The weight is lambda in PPI++, example 6.1.

    Args:
        known: the judge's scores of the labelled rows, in the order of the labels.
        rest: the judge's scores of the other rows.
        labels: the labels.
    """
    variance = np.concatenate([known, rest]).var(ddof=1)
    if not len(rest) or variance <= 0:
        return 0.0
    covariance = np.mean((labels - labels.mean()) * (known - known.mean()))
    return float(np.clip(covariance / ((1 + len(known) / len(rest)) * variance), 0, 1))
