"""Strengths of systems from preferences: the model of Bradley & Terry (1952, doi:10.2307/2334029).

The log-odds that one system is preferred to another are the difference of their strengths. If length is held
equal, a coefficient times the difference of the lengths is added (the idea of length-controlled win rates,
arXiv:2404.04475). A preference is a probability, so the fit maximises the Bernoulli quasi-likelihood (Papke &
Wooldridge 1996), which is the likelihood of logistic regression if every preference is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.statistics.jackknife import CERTAIN_BELOW, JackknifeEstimates, Shares
from localjudge.statistics.preferences import Preferences

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, slots=True)
class PairDesign:
    """The design of n pairs of different systems, for K systems and P parameters: their strengths, and length.

    A row of `matrix` has 1 at its first system and -1 at the second; with length, it has the length difference
    in the last column. The rows are sorted by instruction, and the instructions are numbered from 0 without
    gaps. `component` has the component of each system.
    """

    matrix: csr_array  # [n, P]
    group: Integers  # [n]
    component: Integers  # [K]

    @classmethod
    def from_pairs(cls, pairs: Preferences, with_length: bool = False) -> PairDesign:
        """Return the design of pairs of different systems.

        Args:
            pairs: the pairs, as `Preferences.by_instruction` sorts them.
            with_length: add the length difference, which must be known.
        """
        from scipy.sparse import csr_array, hstack

        rows, one = np.arange(len(pairs.group)), np.ones(len(pairs.group))
        entries = np.r_[one, -one], (np.r_[rows, rows], np.r_[pairs.first, pairs.second])
        matrix = csr_array(entries, shape=(len(rows), len(pairs.systems)))
        if with_length:
            matrix = hstack([matrix, csr_array(pairs.length_difference[:, None])], format="csr")
        return cls(matrix, pairs.group, pairs.components())

    @property
    def base(self) -> Floats:
        """The information that fixes the mean strength of each component at 0, [P, P]."""
        count, parameters = len(self.component), self.matrix.shape[1]
        information = np.zeros((parameters, parameters))
        information[:count, :count] = self.component[:, None] == self.component
        return information * len(self.group) / count**2

    def scores(self, residuals: Floats) -> Floats:
        """Return the gradient of the likelihood of each instruction, [G, P].

        Args:
            residuals: the preference of each pair minus its fitted probability, [n].
        """
        from scipy.sparse import csr_array

        gradient: Floats = (
            csr_array((residuals, (self.group, np.arange(len(self.group))))) @ self.matrix
        ).toarray()
        return gradient

    def information(self, weights: Floats) -> Floats:
        """Return the information of all pairs, [P, P], from that of each, [n]."""
        information: Floats = (self.matrix.T @ self.matrix.multiply(weights[:, None])).toarray()
        return information

    def blocks(self, most: int) -> Iterator[tuple[slice, csr_array, Integers]]:
        """Yield blocks of rows with whole instructions: their place, the rows, where each instruction begins.

        Args:
            most: the largest number of rows; an instruction with more rows is a block of its own.
        """
        starts = np.flatnonzero(np.diff(self.group, prepend=-1))
        ends = np.append(starts[1:], len(self.group))
        begin = 0
        while begin < len(starts):
            end = max(int(np.searchsorted(ends, starts[begin] + most, side="right")), begin + 1)
            rows = slice(int(starts[begin]), int(ends[end - 1]))
            yield rows, self.matrix[rows], starts[begin:end] - starts[begin]
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
        from scipy.special import expit

        count = len(self.value)
        systems = self.design.matrix[:, :count]
        met = -(systems.T @ systems).toarray()  # how often two systems met
        np.fill_diagonal(met, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            part = met / met.sum(axis=1, keepdims=True)
            chance = expit(self.value[:, None] - self.value)
            value = (part * chance).sum(axis=1)
            slope = part * chance * (1 - chance)
            gradient = np.zeros((len(self.parameters), count))
            gradient[:count] = np.diag(slope.sum(axis=1)) - slope.T
            odds, gradient = np.log(value / (1 - value)), gradient / (value * (1 - value))
        return Shares(value, met.sum(axis=1).astype(np.int64), self._combined(odds, np.nan_to_num(gradient)))

    @property
    def _unit(self) -> Floats:
        return np.eye(len(self.parameters))

    def _combined(
        self, value: Floats, matrix: Floats, open_below: Flags | bool = False, open_above: Flags | bool = False
    ) -> JackknifeEstimates:
        """Return estimates whose derivative by the parameters is `matrix` [P, k].

        Their `units` are the effective numbers of instructions: 1 / Σ q², if q is the share of the information
        on an estimate that comes from each instruction. An estimate that depends on a few instructions has no
        interval, however many there are in all.
        """
        direction = self.inverse @ matrix
        total, squares = np.zeros((2, matrix.shape[1]))
        for rows, design, starts in self.design.blocks(_BLOCK_SIZE // max(matrix.shape[1], 1)):
            of_row = self.weights[rows, None] * (design @ direction) ** 2
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
    return _fit(PairDesign.from_pairs(pairs), pairs)


def fit_at_equal_length(preferences: Preferences) -> Strengths | None:
    """Return the strengths and the coefficient of length.

    Returns:
        As `fit_strengths`; None if length differs equally between the same systems.
    """
    pairs = preferences.by_instruction()
    design = PairDesign.from_pairs(pairs, with_length=True)
    equal = _of_equal_systems(design)
    across, of_length = equal[:-1, -1], float(equal[-1, -1])
    left = of_length - float(across @ np.linalg.solve(equal[:-1, :-1], across))
    return _fit(design, pairs) if left > 1e-9 * of_length else None


def _fit(design: PairDesign, pairs: Preferences) -> Strengths:
    from scipy.linalg import eigh
    from scipy.special import expit

    preference, groups, extra = pairs.preference, pairs.groups, 0.0
    parameters = _maximum(design, preference)
    information = design.information(_weights(design, parameters))
    least = eigh(information + design.base, _of_equal_systems(design), eigvals_only=True)[0]
    if unlimited := bool(least < CERTAIN_BELOW):
        extra = 1 / groups
        parameters = _maximum(design, (preference + extra / 2) / (1 + extra))
        information = design.information(_weights(design, parameters))
    weights = _weights(design, parameters)
    whole = (1 + extra) * information + design.base
    scores = design.scores(preference - expit(design.matrix @ parameters))
    changes: Floats = np.empty(scores.shape)
    for rows, block, starts in design.blocks(_BLOCK_SIZE // len(parameters) ** 2):
        here, dense = slice(design.group[rows][0], design.group[rows][-1] + 1), block.toarray()
        of_instruction = np.add.reduceat((weights[rows, None] * dense)[:, :, None] * dense[:, None], starts)
        # Without an instruction that joins two systems alone, the matrix would be singular.
        without = whole - (1 - 1e-6) * of_instruction
        changes[here] = np.linalg.solve(without, scores[here, :, None])[:, :, 0]
    if unlimited:
        last = np.linalg.solve(whole - extra * information, -scores.sum(axis=0))
        changes = np.vstack([changes, last])
    changes -= changes.mean(axis=0)
    inverse = np.asarray(np.linalg.inv(whole), dtype=np.float64)
    reaches = _reaches(pairs) | (not unlimited)
    return Strengths(design, parameters, changes, inverse, weights, unlimited, reaches)


def _reaches(pairs: Preferences) -> Flags:
    """Return whether each system wins against each other, directly or through systems between them, [K, K]."""
    won = np.zeros((len(pairs.systems), len(pairs.systems), 2))
    np.add.at(won, (pairs.first, pairs.second), np.stack([pairs.preference, 1 - pairs.preference], axis=1))
    total = won[..., 0] + won[..., 1].T
    # Of certain preferences, only those of the winner count, as for CERTAIN_BELOW.
    reaches = (total > CERTAIN_BELOW / 4 * (total + total.T)) | np.eye(len(total), dtype=np.bool_)
    while ((further := reaches @ reaches) != reaches).any():
        reaches = further
    return reaches


def _maximum(design: PairDesign, preference: Floats) -> Floats:
    """Return the parameters of the largest likelihood by Newton's method; large numbers if there is none."""
    from scipy.special import expit

    def likelihood(parameters: Floats) -> float:
        odds = design.matrix @ parameters
        return float((preference * odds - np.logaddexp(0, odds)).sum())

    parameters: Floats = np.zeros(design.matrix.shape[1])
    for _ in range(30):  # without a maximum, the largest log-odds grow by 1 in each step
        gradient = design.matrix.T @ (preference - expit(design.matrix @ parameters))
        step = np.linalg.solve(design.information(_weights(design, parameters)) + design.base, gradient)
        gain = float(gradient @ step)
        enough = likelihood(parameters) - 1e-9 * len(preference)
        while likelihood(parameters + step) < enough:
            step = step / 2
        parameters = parameters + step
        if gain < 1e-18 * len(preference):
            break
    return parameters


def _of_equal_systems(design: PairDesign) -> Floats:
    """Return the information if all strengths are equal, [P, P]."""
    return design.information(np.full(len(design.group), 0.25)) + design.base


def _weights(design: PairDesign, parameters: Floats) -> Floats:
    """Return the information of each pair, [n]."""
    from scipy.special import expit

    odds = design.matrix @ parameters
    weights: Floats = expit(odds) * expit(-odds)
    return weights
