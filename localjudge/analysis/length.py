"""The effect of length on scores: the share it explains, and the means of systems at equal length."""

from __future__ import annotations

import numpy as np

from localjudge.analysis.interval import UNDEFINED, Estimate
from localjudge.analysis.measured_texts import Measures
from localjudge.analysis.resampling import Contributions, studentise
from localjudge.analysis.scores import Floats, Integers, Scores


def held_equal(
    scores: Scores, values: Floats, measures: Measures | None, resamples: int, seed: int
) -> tuple[list[Estimate], float | None]:
    """Return each system's mean at the mean length of all, and the share of the variance that length explains.

    The score of a row is taken as its instruction's level, its system's, and a slope times the logarithm of one
    more than the candidate's characters. The slope is thus one within instructions and within systems, so that
    what a good and wordy system earns is not put down to its words. The share that length explains (R²) is that
    of all variance within instructions, between systems and within them.

    Args:
        scores: of all systems.
        values: a score for each row.
        measures: of the rows; those of unknown length are left out.
        resamples: for the intervals.
        seed: of the resamples.

    Returns:
        An estimate for each system, and the R²; undefined without lengths, or where they do not differ.
    """
    nothing = [UNDEFINED] * len(scores.systems)
    if measures is None:
        return nothing, None
    known = measures.known
    group, system, score = scores.group[known], scores.system[known], values[known]
    length = np.log1p(measures.length[known])
    inner = _within(np.column_stack([length, score]), group, scores.groups)
    spread, _ = (inner**2).sum(axis=0) / max(len(inner), 1)
    if spread < 1e-12:
        return nothing, None
    explained = _explained(inner[:, 0], inner[:, 1])
    dummies = (system[:, None] == np.arange(len(scores.systems))).astype(np.float64)
    systems = _within(dummies, group, scores.groups)
    # What of length and score is left beside instructions and systems (Frisch, Waugh and Lovell).
    both, *_ = np.linalg.lstsq(systems, inner, rcond=None)
    own = inner - systems @ both
    squares = (own[:, 0] ** 2).sum()
    if squares < 1e-12 * len(own):
        return nothing, explained
    slope = (own[:, 0] * own[:, 1]).sum() / squares
    errors = own[:, 1] - slope * own[:, 0]
    of_slope = np.bincount(group, own[:, 0] * errors, minlength=scores.groups) / squares
    all_shares = np.bincount(group, length - length.mean(), minlength=scores.groups) / len(length)
    value, shares, units = [], [], []
    for name in range(len(scores.systems)):
        rows = system == name
        if not rows.any():
            value.append(np.nan)
            shares.append(np.zeros(scores.groups))
            units.append(0.0)
            continue
        away = length[rows].mean() - length.mean()
        level = score[rows] - slope * length[rows]
        own_shares = np.bincount(group[rows], level - level.mean(), minlength=scores.groups) / rows.sum()
        value.append(score[rows].mean() - slope * away)
        shares.append(own_shares + slope * all_shares - away * of_slope)
        units.append(float(len(np.unique(group[rows]))))
    estimates = Contributions(np.array(value), np.column_stack(shares), np.array(units))
    return studentise(estimates, resamples=resamples, seed=seed).estimates(), explained


def _within(columns: Floats, group: Integers, groups: int) -> Floats:
    """The columns less their means on each instruction."""
    rows = np.maximum(np.bincount(group, minlength=groups), 1)
    inner = np.empty_like(columns)
    for place in range(columns.shape[1]):
        means = np.bincount(group, columns[:, place], minlength=groups) / rows
        inner[:, place] = columns[:, place] - means[group]
    return inner


def _explained(length: Floats, score: Floats) -> float | None:
    total = (length**2).sum() * (score**2).sum()
    return float((length * score).sum() ** 2 / total) if total > 1e-20 else None
