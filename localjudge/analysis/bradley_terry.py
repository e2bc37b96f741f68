"""Strengths of systems from preferences: the model of Bradley & Terry (1952, doi:10.2307/2334029).

The log-odds that one system is preferred to another are the difference of their strengths. If length is held
equal, a coefficient times the difference of the lengths is added (the idea of length-controlled win rates,
arXiv:2404.04475). A preference is a probability, so the fit maximises the Bernoulli quasi-likelihood (Papke &
Wooldridge 1996), which is the likelihood of logistic regression if every preference is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from localjudge.analysis.jackknife import LEAST_INFORMATION, JackknifeEstimates, Shares
from localjudge.analysis.preferences import Preferences
from localjudge.analysis.scores import Floats, Integers

_BLOCK_SIZE = 4_000_000
"""Largest number of values in a block of instructions: 32 MB."""


@dataclass(frozen=True, slots=True)
class Strengths:
    """Strengths of K systems on n pairs of responses, and the coefficient of length if it is held equal.

    `parameters` has the strengths, whose mean is 0 in each component of the comparisons, and the coefficient.
    `changes` has the change of each parameter without each instruction, `inverse` is the inverse of the
    information of all pairs, and `weights` has that of each pair. The pairs are sorted by instruction.

    `unlimited` is True if the likelihood has no maximum, for instance because one system always wins. The fit
    then has one more instruction, the last one: the average of all others, with ties only. For two systems this
    is the penalty of Firth (1993, doi:10.1093/biomet/80.1.27).
    """

    preferences: Preferences
    parameters: Floats  # [P]: K, or K + 1 with length held equal
    changes: Floats  # [G, P]
    inverse: Floats  # [P, P]
    weights: Floats  # [n]
    unlimited: bool

    @property
    def value(self) -> Floats:
        """The strengths, [K]."""
        return self.parameters[: len(self.preferences.systems)]

    def strengths(self) -> JackknifeEstimates:
        """Return the strengths, K estimates; NaN for a system that is compared with no other."""
        component = self.preferences.components()
        alone = np.bincount(component)[component] == 1
        return self._combined(
            np.where(alone, np.nan, self.value), np.eye(len(self.parameters))[:, : len(self.value)]
        )

    def differences(self, first: Integers, second: Integers) -> JackknifeEstimates:
        """Return the differences of strengths: `first` minus `second`, both [pairs]; NaN if not comparable."""
        unit = np.eye(len(self.parameters))
        component = self.preferences.components()
        value = np.where(component[first] == component[second], self.value[first] - self.value[second], np.nan)
        return self._combined(value, unit[:, first] - unit[:, second])

    def coefficient(self) -> JackknifeEstimates:
        """Return the coefficient of length, one estimate: the change of the log-odds per unit of length."""
        return self._combined(self.parameters[-1:], np.eye(len(self.parameters))[:, -1:])

    def win_rates(self) -> Shares:
        """Return each system's share of wins in its own comparisons, as the model has it at equal length, [K].

        The length difference of each pair is taken as 0.
        """
        one, count = self.preferences, len(self.value)
        met = np.bincount(one.first * count + one.second, minlength=count**2).reshape(count, count)
        met = met + met.T
        with np.errstate(invalid="ignore", divide="ignore"):
            part = met / met.sum(axis=1, keepdims=True)
            chance = _logistic(self.value[:, None] - self.value)
            value = (part * chance).sum(axis=1)
            slope = part * chance * (1 - chance)
            gradient = np.zeros((len(self.parameters), count))
            gradient[:count] = np.diag(slope.sum(axis=1)) - slope.T
            odds, gradient = np.log(value / (1 - value)), gradient / (value * (1 - value))
        return Shares(value, met.sum(axis=1), self._combined(odds, np.nan_to_num(gradient)))

    def _combined(self, value: Floats, matrix: Floats) -> JackknifeEstimates:
        """Return estimates whose derivative by the parameters is `matrix` [P, k].

        Their `units` are the effective numbers of instructions: 1 / Σ q², if q is the share of the information
        on an estimate that comes from each instruction. An estimate that depends on a few instructions has no
        interval, however many there are in all.
        """
        direction = self.inverse @ matrix
        total, squares = np.zeros((2, matrix.shape[1]))
        for rows, starts in _instructions(self.preferences.group, _BLOCK_SIZE // max(matrix.shape[1], 1)):
            here = self.preferences.take(rows)
            change = direction[here.first] - direction[here.second]
            if len(matrix) > len(self.value) and here.length_difference is not None:
                change += here.length_difference[:, None] * direction[-1]
            of_each = np.add.reduceat(self.weights[rows, None] * change**2, starts)
            total += of_each.sum(axis=0)
            squares += (of_each**2).sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            units = np.where(squares > 0, total**2 / squares, 0)
        covariance = matrix.T @ (self.changes.T @ self.changes) @ matrix
        # Rounding does not take away an instruction.
        return JackknifeEstimates(value, covariance, units + self.unlimited + 1e-6)


def fit_strengths(preferences: Preferences) -> Strengths:
    """Return the strengths of all systems by maximum likelihood, from pairs of different systems.

    The change without an instruction is one step of Newton's method from the fit of all pairs, which is the
    cluster estimator CR3 of Bell & McCaffrey (2002).
    """
    return _fit(preferences, len(preferences.systems))


def fit_at_equal_length(preferences: Preferences) -> Strengths | None:
    """Return the strengths and the coefficient of length, from the pairs whose lengths are known.

    Returns:
        As `fit_strengths`; None if no length is known, or length differs equally between the same systems.
    """
    if preferences.length_difference is None:
        return None
    known = preferences.take(np.isfinite(preferences.length_difference))
    parameters = len(preferences.systems) + 1
    equal = _information(known, np.full(len(known.first), 0.25), parameters)
    equal += _mean_strengths(known, parameters)
    across, own = equal[:-1, -1], float(equal[-1, -1])
    if not len(known.first) or own - float(across @ np.linalg.solve(equal[:-1, :-1], across)) <= 1e-9 * own:
        return None
    return _fit(known, parameters)


def _fit(preferences: Preferences, parameters: int) -> Strengths:
    preferences = preferences.by_instruction()
    base = _mean_strengths(preferences, parameters)
    equal = _information(preferences, np.full(len(preferences.first), 0.25), parameters) + base
    found = _maximum(preferences, base, equal, 0.0)
    extra = 0.0
    if found is None:
        extra = 1 / preferences.groups
        found = _maximum(preferences, base, equal, extra)
        assert found is not None
    odds = _log_odds(preferences, found)
    weights = _logistic(odds) * _logistic(-odds)
    whole = (1 + extra) * _information(preferences, weights, parameters) + base
    residual = preferences.preference - _logistic(odds)
    scores = _scores(preferences, residual, parameters)
    changes: Floats = np.empty(scores.shape)
    for rows, _ in _instructions(preferences.group, _BLOCK_SIZE // parameters**2):
        here = slice(preferences.group[rows][0], preferences.group[rows][-1] + 1)
        each = _information_of_each(preferences.take(rows), weights[rows], parameters)
        # Without an instruction that joins two systems alone, the matrix would be singular.
        changes[here] = np.linalg.solve(whole - (1 - 1e-6) * each, scores[here, :, None])[:, :, 0]
    if extra:
        information = extra * _information(preferences, weights, parameters)
        changes = np.vstack([changes, np.linalg.solve(whole - information, -scores.sum(axis=0))])
    changes -= changes.mean(axis=0)
    inverse = np.asarray(np.linalg.inv(whole), dtype=np.float64)
    return Strengths(preferences, found, changes, inverse, weights, bool(extra))


def _maximum(preferences: Preferences, base: Floats, equal: Floats, extra: float) -> Floats | None:
    """Return the parameters of the largest likelihood by Newton's method; None if they grow without limit.

    Args:
        preferences: the pairs.
        base: the matrix that fixes the mean strength of each component, [P, P].
        equal: the information of equal systems, [P, P].
        extra: the weight of ties that are added to each pair.
    """
    from scipy.linalg import eigh

    target = (preferences.preference + extra / 2) / (1 + extra)
    parameters = np.zeros(len(base))
    odds = _log_odds(preferences, parameters)
    likelihood = _likelihood(target, odds)
    for _ in range(30):  # without a maximum, the largest log-odds grow by 1 in each step
        chance = _logistic(odds)
        information = _information(preferences, chance * _logistic(-odds), len(base)) + base
        gradient = _scores(preferences, target - chance, len(base)).sum(axis=0)
        step = np.linalg.solve(information, gradient)
        gain = float(gradient @ step)
        while _likelihood(target, _log_odds(preferences, parameters + step)) < likelihood - 1e-9 * len(target):
            step = step / 2
        parameters = parameters + step
        odds = _log_odds(preferences, parameters)
        likelihood = _likelihood(target, odds)
        if gain < 1e-18 * len(target):
            break
    information = _information(preferences, _logistic(odds) * _logistic(-odds), len(base)) + base
    if not extra and eigh(information, equal, eigvals_only=True)[0] < LEAST_INFORMATION:
        return None
    return parameters


def _likelihood(target: Floats, odds: Floats) -> float:
    return float((target * odds - np.logaddexp(0, odds)).sum())


def _logistic(odds: Floats) -> Floats:
    from scipy.special import expit

    chance: Floats = expit(odds)
    return chance


def _log_odds(preferences: Preferences, parameters: Floats) -> Floats:
    odds = parameters[preferences.first] - parameters[preferences.second]
    if len(parameters) > len(preferences.systems) and preferences.length_difference is not None:
        odds = odds + parameters[-1] * preferences.length_difference
    return odds


def _terms(preferences: Preferences, parameters: int) -> list[tuple[Integers, Floats | float]]:
    """Return the nonzero entries of the design matrix: the column and the value of each pair."""
    terms: list[tuple[Integers, Floats | float]] = [(preferences.first, 1.0), (preferences.second, -1.0)]
    if parameters > len(preferences.systems) and preferences.length_difference is not None:
        terms.append((np.full(len(preferences.first), parameters - 1), preferences.length_difference))
    return terms


def _scores(preferences: Preferences, residual: Floats, parameters: int) -> Floats:
    """Return the gradient of the likelihood of each instruction, [G, P]."""
    found = np.zeros(preferences.groups * parameters)
    for column, value in _terms(preferences, parameters):
        place = preferences.group.astype(np.int64) * parameters + column
        found += np.bincount(place, residual * value, minlength=len(found))
    return found.reshape(preferences.groups, parameters)


def _information(preferences: Preferences, weights: Floats, parameters: int) -> Floats:
    """Return the information of all pairs, [P, P]."""
    whole = replace(preferences, group=np.zeros_like(preferences.group))
    together: Floats = _information_of_each(whole, weights, parameters)[0]
    return together


def _information_of_each(preferences: Preferences, weights: Floats, parameters: int) -> Floats:
    """Return the information of each instruction from that of the first pair to that of the last, [G, P, P].

    Args:
        preferences: the pairs, sorted by instruction.
        weights: the information of each pair, [n].
        parameters: P.
    """
    number = preferences.group - preferences.group[0]
    found = np.zeros((int(number[-1]) + 1) * parameters**2)
    for row, left in _terms(preferences, parameters):
        for column, right in _terms(preferences, parameters):
            place = (number.astype(np.int64) * parameters + row) * parameters + column
            found += np.bincount(place, weights * left * right, minlength=len(found))
    return found.reshape(-1, parameters, parameters)


def _instructions(group: Integers, most: int) -> Iterator[tuple[slice, Integers]]:
    """Yield blocks of rows with whole instructions, and where each instruction of the block begins in it.

    Args:
        group: the instruction of each row, sorted, [n].
        most: the largest number of rows of a block; an instruction with more rows is a block of its own.
    """
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    ends = np.append(starts[1:], len(group))
    begin = 0
    while begin < len(starts):
        end = max(int(np.searchsorted(ends, starts[begin] + most, side="right")), begin + 1)
        yield slice(int(starts[begin]), int(ends[end - 1])), starts[begin:end] - starts[begin]
        begin = end


def _mean_strengths(preferences: Preferences, parameters: int) -> Floats:
    """Return the matrix that fixes the mean strength of each component, [P, P]."""
    component = preferences.components()
    found = np.zeros((parameters, parameters))
    count = len(component)
    found[:count, :count] = component[:, None] == component
    return found * len(preferences.first) / count**2
