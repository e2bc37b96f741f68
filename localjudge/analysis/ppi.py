"""Prediction-powered means: the mean human score of all rows, from few labels and the judge's scores of all.

The judge's scores stand in for the labels that are missing, and the labels that there are correct them, so that
the interval holds for the human score however bad the judge is; a good judge makes it shorter. This is the
power-tuned estimator of Angelopoulos, Duchi & Zrnic, "PPI++: Efficient Prediction-Powered Inference"
(arXiv:2311.01453), equation 3 and section 6. It wants the labelled rows to be a random sample of all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from localjudge.analysis.resampling import Contributions
from localjudge.analysis.scores import Floats, Integers


def prediction_powered(
    judged: Floats, labelled: NDArray[np.bool_], labels: Floats, group: Integers, groups: int
) -> Contributions:
    """The mean of the labels, as contributions of the instructions; NaN under two labels.

    Args:
        judged: the judge's score of each row, [m].
        labelled: which rows have a label, [m].
        labels: the labels of those rows, in their order.
        group: each row's instruction, [m].
        groups: how many instructions there are.
    """
    shares = np.zeros((groups, 1))
    known, rest = judged[labelled], judged[~labelled]
    if len(known) < 2:
        return Contributions(np.array([np.nan]), shares, np.zeros(1))
    tuning = power(known, rest, labels)
    corrected = labels - tuning * known
    value = corrected.mean() + (tuning * rest.mean() if len(rest) else 0.0)
    # A label pulls the tuning towards itself, the more the further out its judge's score is; as if it had been
    # left out (HC3, MacKinnon & White 1985), the interval holds with as few labels as thirty.
    apart = (known - known.mean()) ** 2
    pull = np.minimum(apart / apart.sum(), 0.9) if tuning else 0.0
    np.add.at(shares[:, 0], group[labelled], (corrected - corrected.mean()) / len(known) / (1 - pull))
    if len(rest):
        np.add.at(shares[:, 0], group[~labelled], tuning * (rest - rest.mean()) / len(rest))
    units = len(np.unique(group[labelled]))
    return Contributions(np.array([value]), shares, np.array([float(units)]))


def power(known: Floats, rest: Floats, labels: Floats) -> float:
    """How far to trust the judge, 0 to 1: what makes the variance of the mean least (PPI++, example 6.1).

    Args:
        known: the judge's scores of the labelled rows, in the labels' order.
        rest: its scores of the others.
        labels: the labels.
    """
    spread = np.concatenate([known, rest]).var(ddof=1)
    if not len(rest) or spread <= 0:
        return 0.0
    shared = np.mean((labels - labels.mean()) * (known - known.mean()))
    return float(np.clip(shared / ((1 + len(known) / len(rest)) * spread), 0, 1))
