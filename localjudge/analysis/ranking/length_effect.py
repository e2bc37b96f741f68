"""The means of systems at equal length of their responses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from localjudge.analysis.matching.measured_texts import Measures
from localjudge.analysis.matching.scores import Floats, Integers, Scores
from localjudge.analysis.ranking.system_means import instruction_weights
from localjudge.analysis.statistics.interval import UNDEFINED, Estimate
from localjudge.analysis.statistics.resampling import Contributions, studentise


def means_at_equal_length(
    scores: Scores,
    values: Floats,
    ends: tuple[int, int],
    measures: Measures | None,
    resamples: int,
    seed: int,
) -> list[Estimate]:
    """Return each system's mean at the mean length of all rows.

    The model of a row's score is a linear regression with three terms: an effect of the instruction, an effect
    of the system, and a slope times log(1 + characters of the candidate). The slope is thus estimated within
    instructions and within systems: if a good system writes long responses, its quality is not attributed to
    their length. All instructions of a system have the same weight, however many rows it has on each.

    Args:
        scores: the scores of all systems.
        values: the score of each row, [rows].
        ends: the lowest and the highest score; no estimate and no interval reaches beyond them.
        measures: the lengths of the rows; rows of unknown length are left out.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.

    Returns:
        An estimate for each system; undefined if lengths are unknown or all equal.
    """
    undefined = [UNDEFINED] * len(scores.systems)
    if measures is None:
        return undefined
    known = measures.known
    scores, score = scores.take(known), values[known]
    group, system, weights = scores.group, scores.system, instruction_weights(scores)
    length = np.log1p(measures.length[known])
    root = np.sqrt(weights)[:, None]
    inner = root * _within(np.column_stack([length, score]), group, weights, scores.groups)
    if (inner[:, 0] ** 2).sum() / max(weights.sum(), 1) < 1e-12:
        return undefined
    dummies = (system[:, None] == np.arange(len(scores.systems))).astype(np.float64)
    systems = root * _within(dummies, group, weights, scores.groups)
    # Residuals of length and score after the effects of instructions and systems (Frisch, Waugh and Lovell).
    coefficients, *_ = np.linalg.lstsq(systems, inner, rcond=None)
    residuals = inner - systems @ coefficients
    squares = (residuals[:, 0] ** 2).sum()
    if squares < 1e-12 * len(residuals):
        return undefined
    slope = (residuals[:, 0] * residuals[:, 1]).sum() / squares
    errors = residuals[:, 1] - slope * residuals[:, 0]
    slope_shares = np.bincount(group, residuals[:, 0] * errors, minlength=scores.groups) / squares
    mean_length = np.average(length, weights=weights)
    all_shares = np.bincount(group, weights * (length - mean_length), minlength=scores.groups) / weights.sum()
    value, shares, units = [], [], []
    for name in range(len(scores.systems)):
        rows = system == name
        if not rows.any():
            value.append(np.nan)
            shares.append(np.zeros(scores.groups))
            units.append(0.0)
            continue
        own = weights[rows] / weights[rows].sum()
        distance = own @ length[rows] - mean_length
        adjusted = score[rows] - slope * length[rows]
        own_shares = np.bincount(group[rows], own * (adjusted - own @ adjusted), minlength=scores.groups)
        value.append(own @ score[rows] - slope * distance)
        shares.append(own_shares + slope * all_shares - distance * slope_shares)
        units.append(float(len(np.unique(group[rows]))))
    estimates = Contributions(np.array(value), np.column_stack(shares), np.array(units))
    found = studentise(estimates, *ends, resamples=resamples, seed=seed).estimates()
    # A straight line may lead beyond the scale.
    return [
        each if each.value is None else replace(each, value=min(max(each.value, ends[0]), ends[1]))
        for each in found
    ]


def _within(columns: Floats, group: Integers, weights: Floats, groups: int) -> Floats:
    """Return the columns [rows, k] minus their weighted means for each instruction."""
    total = np.bincount(group, weights, minlength=groups)
    inner = np.empty_like(columns)
    for place in range(columns.shape[1]):
        sums = np.bincount(group, weights * columns[:, place], minlength=groups)
        inner[:, place] = columns[:, place] - sums[group] / total[group]
    return inner
