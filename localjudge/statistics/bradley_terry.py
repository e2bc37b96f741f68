"""Strengths of systems from preferences: the model of Bradley & Terry (1952, doi:10.2307/2334029).

The log-odds that one system is preferred to another are the difference of their strengths. If length is held
equal, a coefficient times the difference of the lengths is added (the idea of length-controlled win rates,
arXiv:2404.04475). A preference is a probability, so the fit maximises the Bernoulli quasi-likelihood (Papke &
Wooldridge 1996), which is the likelihood of logistic regression if every preference is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.statistics.jackknife import LEAST_INFORMATION, JackknifeEstimates, Shares
from localjudge.statistics.preferences import Preferences
from localjudge.statistics.system_order import reached


@dataclass(frozen=True, slots=True)
class PairDesign:
    """The design matrix of n pairs, [n, P].

    A row has 1 at its first system and -1 at the second; with length, it has the length difference in the last
    column. The rows are sorted by instruction, and the instructions are numbered from 0 without gaps.
    """

    first: Integers  # [n]
    second: Integers  # [n]
    length: Floats | None  # [n]
    group: Integers  # [n]
    component: Integers  # [K]: the component of each system

    @classmethod
    def from_pairs(cls, pairs: Preferences, with_length: bool = False) -> PairDesign:
        """Return the design of pairs of different systems.

        Args:
            pairs: the pairs, as `Preferences.by_instruction` sorts them.
            with_length: add the length difference, which must be known.
        """
        length = pairs.length_difference if with_length else None
        return cls(pairs.first, pairs.second, length, pairs.group, pairs.components())

    @property
    def parameters(self) -> int:
        """P, the number of parameters: the strength of each system, and the coefficient of length."""
        return len(self.component) + (self.length is not None)

    @property
    def groups(self) -> int:
        """G, the number of instructions."""
        return int(self.group[-1]) + 1

    @property
    def base(self) -> Floats:
        """The information that fixes the mean strength of each component at 0, [P, P]."""
        count = len(self.component)
        found = np.zeros((self.parameters, self.parameters))
        found[:count, :count] = self.component[:, None] == self.component
        return found * len(self.group) / count**2

    def product(self, matrix: Floats, rows: slice = slice(None)) -> Floats:
        """Return rows of the design matrix times a matrix or vector, [P, …]."""
        total: Floats = matrix[self.first[rows]] - matrix[self.second[rows]]
        if self.length is not None:
            total += np.multiply.outer(self.length[rows], matrix[-1])
        return total

    def scores(self, residuals: Floats) -> Floats:
        """Return the gradient of the likelihood of each instruction, [G, P].

        Args:
            residuals: the preference of each pair minus its fitted probability, [n].
        """
        found = np.zeros(self.groups * self.parameters)
        for column, value in self._entries(slice(None)):
            place = self.group.astype(np.int64) * self.parameters + column
            found += np.bincount(place, residuals * value, minlength=len(found))
        return found.reshape(self.groups, self.parameters)

    def information(self, weights: Floats, rows: slice = slice(None), apart: bool = False) -> Floats:
        """Return the information of rows, [P, P], or of each of their instructions, [instructions, P, P].

        Args:
            weights: the information of each pair, [n].
            rows: the rows.
            apart: return each instruction by itself.
        """
        size, group = self.parameters, self.group[rows]
        number = (group - group[0]).astype(np.int64) if apart else np.zeros(len(group), dtype=np.int64)
        found = np.zeros((int(number[-1]) + 1) * size**2)
        for row, left in self._entries(rows):
            for column, right in self._entries(rows):
                place = (number * size + row) * size + column
                found += np.bincount(place, weights[rows] * left * right, minlength=len(found))
        return found.reshape(-1, size, size) if apart else found.reshape(size, size)

    def _entries(self, rows: slice) -> list[tuple[Integers, Floats | float]]:
        """Return the entries of rows that are not 0: their columns and values."""
        found: list[tuple[Integers, Floats | float]] = [(self.first[rows], 1.0), (self.second[rows], -1.0)]
        if self.length is not None:
            found.append((np.full(len(found[0][0]), self.parameters - 1), self.length[rows]))
        return found

    def blocks(self, most: int) -> Iterator[tuple[slice, Integers]]:
        """Yield blocks of rows with whole instructions, and where each instruction begins in its block.

        Args:
            most: the largest number of rows; an instruction with more rows is a block of its own.
        """
        starts = np.flatnonzero(np.diff(self.group, prepend=-1))
        ends = np.append(starts[1:], len(self.group))
        begin = 0
        while begin < len(starts):
            end = max(int(np.searchsorted(ends, starts[begin] + most, side="right")), begin + 1)
            yield slice(int(starts[begin]), int(ends[end - 1])), starts[begin:end] - starts[begin]
            begin = end


_BLOCK_SIZE = 4_000_000
"""Largest number of values in a block of instructions: 32 MB."""


@dataclass(frozen=True, slots=True)
class Strengths:
    """Strengths of K systems on n pairs of responses, and the coefficient of length if it is held equal.

    `parameters` has the strengths, whose mean is 0 in each component of the comparisons, and the coefficient.
    `changes` has the change of each parameter without each instruction, `inverse` is the inverse of the
    information of all pairs, and `weights` has that of each pair.

    `unlimited` is True if the likelihood has no maximum, for instance because one system always wins. The fit
    then has one more instruction, the last one: the average of all others, with ties only. For two systems this
    is the penalty of Firth (1993, doi:10.1093/biomet/80.1.27). Its intervals are open where the data set no
    bound (Ford 1957, doi:10.2307/2308513): `reaches` tells which systems win against which, directly or through
    others.
    """

    design: PairDesign
    parameters: Floats  # [P]: K, or K + 1 with length held equal
    changes: Floats  # [G, P]
    inverse: Floats  # [P, P]
    weights: Floats  # [n]
    unlimited: bool
    reaches: Flags  # [K, K]; all True with a maximum

    @property
    def value(self) -> Floats:
        """The strengths, [K]."""
        return self.parameters[: len(self.design.component)]

    def strengths(self) -> JackknifeEstimates:
        """Return the strengths, K estimates; NaN for a system that is compared with no other."""
        component = self.design.component
        alone = np.bincount(component)[component] == 1
        apart = component[:, None] != component
        return self._combined(
            np.where(alone, np.nan, self.value),
            self._unit[:, : len(alone)],
            open_below=~(self.reaches | apart).all(axis=1),
            open_above=~(self.reaches | apart).all(axis=0),
        )

    def differences(self, first: Integers, second: Integers) -> JackknifeEstimates:
        """Return the differences of strengths: `first` minus `second`, both [pairs]; NaN if not comparable."""
        together = self.design.component[first] == self.design.component[second]
        value = np.where(together, self.value[first] - self.value[second], np.nan)
        return self._combined(
            value,
            self._unit[:, first] - self._unit[:, second],
            open_below=~self.reaches[first, second],
            open_above=~self.reaches[second, first],
        )

    def coefficient(self) -> JackknifeEstimates:
        """Return the coefficient of length, one estimate: the change of the log-odds per unit of length."""
        return self._combined(self.parameters[-1:], self._unit[:, -1:])

    def win_rates(self) -> Shares:
        """Return each system's share of wins in its own comparisons, as the model has it at equal length, [K].

        The length difference of each pair is taken as 0.
        """
        count = len(self.value)
        pair = self.design.first * count + self.design.second
        met = np.bincount(pair, minlength=count**2).reshape(count, count)
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

    @property
    def _unit(self) -> Floats:
        return np.eye(len(self.parameters))

    def _combined(
        self, value: Floats, matrix: Floats, open_below: Flags | None = None, open_above: Flags | None = None
    ) -> JackknifeEstimates:
        """Return estimates whose derivative by the parameters is `matrix` [P, k].

        Their `units` are the effective numbers of instructions: 1 / Σ q², if q is the share of the information
        on an estimate that comes from each instruction. An estimate that depends on a few instructions has no
        interval, however many there are in all.
        """
        direction = self.inverse @ matrix
        total, squares = np.zeros((2, matrix.shape[1]))
        for rows, starts in self.design.blocks(_BLOCK_SIZE // max(matrix.shape[1], 1)):
            of_row = self.weights[rows, None] * self.design.product(direction, rows) ** 2
            of_instruction = np.add.reduceat(of_row, starts)
            total += of_instruction.sum(axis=0)
            squares += (of_instruction**2).sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            units = np.where(squares > 0, total**2 / squares, 0)
        covariance = matrix.T @ (self.changes.T @ self.changes) @ matrix
        # Rounding does not take away an instruction.
        return JackknifeEstimates(value, covariance, units + self.unlimited + 1e-6, open_below, open_above)


def fit_strengths(preferences: Preferences) -> Strengths:
    """Return the strengths of all systems by maximum likelihood, from pairs of different systems.

    The change without an instruction is one step of Newton's method from the fit of all pairs, which is the
    cluster estimator CR3 of Bell & McCaffrey (2002).
    """
    pairs = preferences.by_instruction()
    return _fit(PairDesign.from_pairs(pairs), pairs.preference)


def fit_at_equal_length(preferences: Preferences) -> Strengths | None:
    """Return the strengths and the coefficient of length.

    Returns:
        As `fit_strengths`; None if length differs equally between the same systems.
    """
    pairs = preferences.by_instruction()
    design = PairDesign.from_pairs(pairs, with_length=True)
    equal = _of_equal_systems(design)
    across, own = equal[:-1, -1], float(equal[-1, -1])
    left = own - float(across @ np.linalg.solve(equal[:-1, :-1], across))
    return _fit(design, pairs.preference) if left > 1e-9 * own else None


def _fit(design: PairDesign, preference: Floats) -> Strengths:
    from scipy.linalg import eigh

    found, extra = _maximum(design, preference), 0.0
    information = design.information(_weights(design, found))
    least = eigh(information + design.base, _of_equal_systems(design), eigvals_only=True)[0]
    if unlimited := bool(least < LEAST_INFORMATION):
        extra = 1 / design.groups
        found = _maximum(design, (preference + extra / 2) / (1 + extra))
        information = design.information(_weights(design, found))
    weights = _weights(design, found)
    whole = (1 + extra) * information + design.base
    scores = design.scores(preference - _logistic(design.product(found)))
    changes: Floats = np.empty(scores.shape)
    for rows, _ in design.blocks(_BLOCK_SIZE // design.parameters**2):
        here = slice(design.group[rows][0], design.group[rows][-1] + 1)
        # Without an instruction that joins two systems alone, the matrix would be singular.
        without = whole - (1 - 1e-6) * design.information(weights, rows, apart=True)
        changes[here] = np.linalg.solve(without, scores[here, :, None])[:, :, 0]
    if unlimited:
        last = np.linalg.solve(whole - extra * information, -scores.sum(axis=0))
        changes = np.vstack([changes, last])
    changes -= changes.mean(axis=0)
    inverse = np.asarray(np.linalg.inv(whole), dtype=np.float64)
    reaches = _reaches(design, preference) | (not unlimited)
    return Strengths(design, found, changes, inverse, weights, unlimited, reaches)


def _reaches(design: PairDesign, preference: Floats) -> Flags:
    """Return whether each system wins against each other, directly or through systems between them, [K, K]."""
    won = np.zeros((len(design.component), len(design.component), 2))
    np.add.at(won, (design.first, design.second), np.stack([preference, 1 - preference], axis=1))
    total = won[..., 0] + won[..., 1].T
    # Of certain preferences, only those of the winner count, as for LEAST_INFORMATION.
    return reached(total > LEAST_INFORMATION / 4 * (total + total.T))


def _maximum(design: PairDesign, preference: Floats) -> Floats:
    """Return the parameters of the largest likelihood by Newton's method; large numbers if there is none."""

    def likelihood(parameters: Floats) -> float:
        odds = design.product(parameters)
        return float((preference * odds - np.logaddexp(0, odds)).sum())

    found = np.zeros(design.parameters)
    for _ in range(30):  # without a maximum, the largest log-odds grow by 1 in each step
        gradient = design.scores(preference - _logistic(design.product(found))).sum(axis=0)
        step = np.linalg.solve(design.information(_weights(design, found)) + design.base, gradient)
        gain = float(gradient @ step)
        reached = likelihood(found) - 1e-9 * len(preference)
        while likelihood(found + step) < reached:
            step = step / 2
        found = found + step
        if gain < 1e-18 * len(preference):
            break
    return found


def _of_equal_systems(design: PairDesign) -> Floats:
    """Return the information if all strengths are equal, [P, P]."""
    return design.information(np.full(len(design.group), 0.25)) + design.base


def _weights(design: PairDesign, parameters: Floats) -> Floats:
    """Return the information of each pair, [n]."""
    odds = design.product(parameters)
    return _logistic(odds) * _logistic(-odds)


def _logistic(odds: Floats) -> Floats:
    from scipy.special import expit

    chance: Floats = expit(odds)
    return chance
