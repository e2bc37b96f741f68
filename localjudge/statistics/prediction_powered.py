"""Prediction-powered means: means of the human score of all rows, from a few labels and the judge's scores.

The judge's scores replace the missing labels, and the existing labels correct the judge's scores. So the
interval is valid for the human score even if the judge is bad; a good judge makes it shorter. This is the
power-tuned estimator of Angelopoulos, Duchi & Zrnic, "PPI++: Efficient Prediction-Powered Inference"
(arXiv:2311.01453), equation 3 and section 6. It requires that the labelled rows are a random sample of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.statistics.resampling import Contributions
from localjudge.statistics.system_means import SystemRows, instruction_weights

_MOST_LEVERAGE = 0.9
"""Largest leverage of a row on the tuning, which its contribution is corrected for."""


def prediction_powered(
    judged: Floats,
    labelled: Flags,
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
    if weights is None:
        weights = np.ones(len(judged))
    unlabelled = ~labelled
    with_label = judged[labelled]  # the judge's scores of the rows with a label
    without_label = judged[unlabelled]
    if len(with_label) < 2:
        return _unknown_mean(groups)
    share = weights[labelled] / weights[labelled].sum()
    unlabelled_share = weights[unlabelled] / weights[unlabelled].sum()
    tuning = power_tuning(with_label, without_label, labels=labels)
    corrected = labels - tuning * with_label
    mean = share @ corrected
    unlabelled_mean = unlabelled_share @ without_label
    contribution = share * (corrected - mean)
    unlabelled_contribution = tuning * unlabelled_share * (without_label - unlabelled_mean)
    if tuning:
        # Each label influences the tuning; its leverage grows with the distance of its judge's score from the
        # mean. The HC3 correction (MacKinnon & White 1985) makes the interval valid with as few as thirty
        # labels.
        squares = (with_label - with_label.mean()) ** 2
        contribution = contribution / (1 - _leverage(squares))
    shares = np.zeros((groups, 1))
    np.add.at(shares[:, 0], group[labelled], contribution)
    np.add.at(shares[:, 0], group[unlabelled], unlabelled_contribution)
    return Contributions(
        value=np.array([mean + tuning * unlabelled_mean]),
        shares=shares,
        units=_number_of_instructions(group[labelled]),
    )


def drawn_with_chances(
    judged: Floats,
    labelled: Flags,
    labels: Floats,
    chance: Floats,
    group: Integers,
    groups: int,
    weights: Floats,
) -> Contributions:
    """Return `prediction_powered` for labels of rows that were drawn with unequal chances.

    Each labelled row stands for 1 / chance rows (active inference, arXiv:2403.03208); the judge's mean on the
    labelled rows is compared with that on all rows.

    Args:
        judged: as for `prediction_powered`.
        labelled: as for `prediction_powered`.
        labels: as for `prediction_powered`.
        chance: the chance of each labelled row to be in the sample, up to a common factor.
        group: as for `prediction_powered`.
        groups: as for `prediction_powered`.
        weights: the weight of each row in the mean, [m].
    """
    if labelled.sum() < 2:
        return _unknown_mean(groups)
    label = np.zeros(len(judged))  # [m]; 0 without one
    label[labelled] = labels
    share = np.zeros(len(judged))  # [m]: the share of each row in the mean of the labels
    share[labelled] = weights[labelled] / chance
    share /= share.sum()
    share_of_all = weights / weights.sum()  # [m]
    label_mean = share @ label
    judge_mean = share @ judged
    judge_mean_of_all = share_of_all @ judged
    of_label = share * (label - label_mean)
    of_judge = share * (judged - judge_mean) - share_of_all * (judged - judge_mean_of_all)
    squares = of_judge**2
    tuning = 0.0
    if squares.any():
        tuning = float(np.clip(of_label @ of_judge / squares.sum(), 0, 1))
    contribution = of_label - tuning * of_judge
    if tuning:
        contribution = contribution / (1 - np.where(labelled, _leverage(squares), 0))
    shares = np.zeros((groups, 1))
    np.add.at(shares[:, 0], group, contribution)
    surplus = judge_mean - judge_mean_of_all
    return Contributions(
        value=np.array([label_mean - tuning * surplus]),
        shares=shares,
        units=_number_of_instructions(group[labelled]),
    )


def _unknown_mean(groups: int) -> Contributions:
    """Return the mean of too few labels."""
    return Contributions(value=np.array([np.nan]), shares=np.zeros((groups, 1)), units=np.zeros(1))


def _leverage(squares: Floats) -> Floats:
    """Return the leverage of rows whose squared distances from the mean are given, [m]."""
    leverage: Floats = np.minimum(squares / squares.sum(), _MOST_LEVERAGE)
    return leverage


def _number_of_instructions(group: Integers) -> Floats:
    """Return the number of instructions of some rows, [1]."""
    return np.array([float(len(np.unique(group)))])


def power_tuning(with_label: Floats, without_label: Floats, labels: Floats) -> float:
    """Return the weight of the judge's scores, 0 to 1, that minimizes the variance of the mean.

    The weight is lambda in PPI++, example 6.1.

    Args:
        with_label: the judge's scores of the labelled rows, in the order of the labels.
        without_label: the judge's scores of the other rows.
        labels: the labels.
    """
    variance = np.concatenate([with_label, without_label]).var(ddof=1)
    if not len(without_label) or variance <= 0:
        return 0.0
    covariance = np.mean((labels - labels.mean()) * (with_label - with_label.mean()))
    ratio = len(with_label) / len(without_label)
    return float(np.clip(covariance / ((1 + ratio) * variance), 0, 1))


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """The labels of some rows in one column.

    Attributes:
        rows: the numbers of the rows.
        label: the mean label of each.
        chance: the chance of each to be labelled, up to a common factor.
    """

    rows: Integers
    label: Floats
    chance: Floats

    def means(self, rows: SystemRows, values: Floats) -> Contributions:
        """Return each system's prediction-powered mean of the human score.

        Args:
            rows: the rows of all systems.
            values: the judge's score of each row, [rows].
        """
        means = []
        for system in range(len(rows.systems)):
            means.append(self._mean(rows, values, is_chosen=rows.system == system))
        return _concatenated(means)

    def differences(self, rows: SystemRows, values: Floats, answered: Flags) -> Contributions:
        """Return the difference of the means of each pair of systems, on common instructions.

        Args:
            rows: the rows of all systems.
            values: the judge's score of each row, [rows].
            answered: whether each system answered each instruction, [groups, systems].
        """
        differences = []
        for first, second in combinations(range(len(rows.systems)), 2):
            is_common = (answered[:, first] & answered[:, second])[rows.group]  # [rows]
            of_first = self._mean(rows, values, is_chosen=is_common & (rows.system == first))
            of_second = self._mean(rows, values, is_chosen=is_common & (rows.system == second))
            both = _concatenated([of_first, of_second])
            differences.append(both.contrast(np.array([0]), np.array([1])))
        return _concatenated(differences)

    def _mean(self, rows: SystemRows, values: Floats, is_chosen: Flags) -> Contributions:
        """Return the prediction-powered mean of some rows, a mask [rows]."""
        label = np.full(len(values), np.nan)
        label[self.rows] = self.label
        chance = np.full(len(values), np.nan)
        chance[self.rows] = self.chance
        is_labelled = np.isfinite(label[is_chosen])  # of the chosen rows, as are all below
        judged = values[is_chosen]
        labels = label[is_chosen][is_labelled]
        chances = chance[is_chosen][is_labelled]
        group = rows.group[is_chosen]
        weights = instruction_weights(rows)[is_chosen]
        if len(labels) and np.ptp(chances) > 0:
            return drawn_with_chances(
                judged,
                is_labelled,
                labels=labels,
                chance=chances,
                group=group,
                groups=rows.groups,
                weights=weights,
            )
        return prediction_powered(
            judged, is_labelled, labels=labels, group=group, groups=rows.groups, weights=weights
        )


def _concatenated(parts: list[Contributions]) -> Contributions:
    """Return the estimates of several parts as one."""
    return Contributions(
        value=np.concatenate([part.value for part in parts]),
        shares=np.concatenate([part.shares for part in parts], axis=1),
        units=np.concatenate([part.units for part in parts]),
    )
