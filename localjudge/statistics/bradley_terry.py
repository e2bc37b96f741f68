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
from localjudge.statistics.jackknife import JackknifeEstimates
from localjudge.statistics.log_odds import CERTAIN_BELOW, Shares
from localjudge.statistics.preferences import Preferences

if TYPE_CHECKING:
    from scipy.sparse import csr_array


_BLOCK_SIZE = 4_000_000
"""Largest number of values in a block of instructions: 32 MB."""


@dataclass(frozen=True, slots=True)
class DesignBlock:
    """Some rows of a design, with whole instructions.

    Attributes:
        instructions: the instructions.
        rows: the rows of the design.
        matrix: these rows, [rows, P].
        starts: where each instruction begins in them.
    """

    instructions: slice
    rows: slice
    matrix: csr_array
    starts: Integers


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

        count = len(pairs.group)
        rows = np.tile(np.arange(count), 2)  # [2 n]
        systems = np.concatenate([pairs.first, pairs.second])
        signs = np.repeat([1.0, -1.0], count)
        matrix = csr_array((signs, (rows, systems)), shape=(count, len(pairs.systems)))
        if with_length:
            matrix = hstack([matrix, csr_array(pairs.length_difference[:, None])], format="csr")
        return cls(matrix, pairs.group, component=pairs.components())

    @property
    def base(self) -> Floats:
        """The information that fixes the mean strength of each component at 0, [P, P]."""
        count = len(self.component)
        parameters = self.matrix.shape[1]
        information = np.zeros((parameters, parameters))
        information[:count, :count] = self.component[:, None] == self.component
        return information * len(self.group) / count**2

    def scores(self, residuals: Floats) -> Floats:
        """Return the gradient of the likelihood of each instruction, [G, P].

        Args:
            residuals: the preference of each pair minus its fitted probability, [n].
        """
        from scipy.sparse import csr_array

        rows = np.arange(len(self.group))
        residuals_by_instruction = csr_array((residuals, (self.group, rows)))  # [G, n]
        gradient: Floats = (residuals_by_instruction @ self.matrix).toarray()
        return gradient

    def information(self, weights: Floats) -> Floats:
        """Return the information of all pairs, [P, P].

        Args:
            weights: the information of each pair, [n].
        """
        information: Floats = (self.matrix.T @ self.matrix.multiply(weights[:, None])).toarray()
        return information

    def blocks(self, most: int) -> Iterator[DesignBlock]:
        """Yield blocks of whole instructions.

        Args:
            most: the largest number of rows; an instruction with more rows is a block of its own.
        """
        starts = np.flatnonzero(np.diff(self.group, prepend=-1))  # [G]
        ends = np.append(starts[1:], len(self.group))  # [G]
        first = 0
        while first < len(starts):
            end = int(np.searchsorted(ends, starts[first] + most, side="right"))
            end = max(end, first + 1)
            rows = slice(int(starts[first]), int(ends[end - 1]))
            yield DesignBlock(
                instructions=slice(first, end),
                rows=rows,
                matrix=self.matrix[rows],
                starts=starts[first:end] - starts[first],
            )
            first = end


@dataclass(frozen=True, slots=True)
class Strengths:
    """Strengths of K systems on n pairs of responses, and the coefficient of length if it is held equal.

    `parameters` has the strengths, whose mean is 0 in each component of the comparisons, and the coefficient.
    `changes` has the change of each parameter without each instruction, `inverse` is the inverse of the
    information of all pairs, and `weights` has the information of each pair.

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
        is_alone = np.bincount(component)[component] == 1  # [K]
        is_apart = component[:, None] != component  # [K, K]
        is_bounded = self.reaches | is_apart
        return self._combined(
            np.where(is_alone, np.nan, self.value),
            self._unit[:, : len(component)],
            open_below=~is_bounded.all(axis=1),
            open_above=~is_bounded.all(axis=0),
        )

    def differences(self, first: Integers, second: Integers) -> JackknifeEstimates:
        """Return the differences of strengths: `first` minus `second`, both [pairs]; NaN if not comparable."""
        are_comparable = self.design.component[first] == self.design.component[second]
        difference = self.value[first] - self.value[second]
        gradient = self._unit[:, first] - self._unit[:, second]  # [P, pairs]
        return self._combined(
            np.where(are_comparable, difference, np.nan),
            gradient,
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
        met = -(systems.T @ systems).toarray()  # [K, K]: how often two systems met
        np.fill_diagonal(met, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            part = met / met.sum(axis=1, keepdims=True)  # [K, K]: the part of a system's comparisons
            chance = expit(self.value[:, None] - self.value)
            win_rate = (part * chance).sum(axis=1)  # [K]
            slope = part * chance * (1 - chance)
            gradient = np.zeros((len(self.parameters), count))  # [P, K]: of the win rates
            gradient[:count] = np.diag(slope.sum(axis=1)) - slope.T
            log_odds = np.log(win_rate / (1 - win_rate))
            gradient_of_log_odds = gradient / (win_rate * (1 - win_rate))
        return Shares(
            value=win_rate,
            rows=met.sum(axis=1).astype(np.int64),
            log_odds=self._combined(log_odds, np.nan_to_num(gradient_of_log_odds)),
        )

    @property
    def _unit(self) -> Floats:
        """The derivative of each parameter by the parameters, [P, P]."""
        return np.eye(len(self.parameters))

    def _combined(
        self,
        value: Floats,
        gradient: Floats,
        open_below: Flags | bool = False,
        open_above: Flags | bool = False,
    ) -> JackknifeEstimates:
        """Return k estimates with their covariance.

        Their `units` are the effective numbers of instructions: 1 / Σ q², if q is the share of the information
        on an estimate that comes from each instruction. An estimate that depends on a few instructions has no
        interval, however many there are in all.

        Args:
            value: the estimates, [k].
            gradient: their derivatives by the parameters, [P, k].
            open_below: whether the data do not bound each from below, [k].
            open_above: the same from above.
        """
        count = gradient.shape[1]
        direction = self.inverse @ gradient  # [P, k]
        total = np.zeros(count)  # the information on each estimate
        squares = np.zeros(count)  # the sum of the squares of the information of each instruction
        for block in self.design.blocks(_BLOCK_SIZE // max(count, 1)):
            of_row = self.weights[block.rows, None] * (block.matrix @ direction) ** 2
            of_instruction = np.add.reduceat(of_row, block.starts)
            total += of_instruction.sum(axis=0)
            squares += (of_instruction**2).sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            units = np.where(squares > 0, total**2 / squares, 0)
        covariance_of_parameters = self.changes.T @ self.changes
        return JackknifeEstimates(
            value=value,
            covariance=gradient.T @ covariance_of_parameters @ gradient,
            # Rounding does not take away an instruction.
            units=units + self.unlimited + 1e-6,
            open_below=open_below,
            open_above=open_above,
        )


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
    information = _information_of_equal_systems(design)
    of_strengths = information[:-1, :-1]
    across = information[:-1, -1]
    of_length = float(information[-1, -1])
    # What the strengths do not explain of the length differences.
    unexplained = of_length - float(across @ np.linalg.solve(of_strengths, across))
    if unexplained <= 1e-9 * of_length:
        return None
    return _fit(design, pairs)


def _fit(design: PairDesign, pairs: Preferences) -> Strengths:
    """Return the fit of a design, with one more instruction of ties if the likelihood has no maximum."""
    from scipy.special import expit

    preference = pairs.preference  # [n]
    parameters = _maximum(design, preference)
    weights = _weights(design, parameters)
    information = design.information(weights)
    is_unlimited = _is_unlimited(design, information)
    tie_weight = 0.0
    if is_unlimited:
        tie_weight = 1 / pairs.groups
        parameters = _maximum(design, (preference + tie_weight / 2) / (1 + tie_weight))
        weights = _weights(design, parameters)
        information = design.information(weights)
    whole = (1 + tie_weight) * information + design.base  # [P, P]
    scores = design.scores(preference - expit(design.matrix @ parameters))  # [G, P]
    changes = _changes_without(design, whole, weights=weights, scores=scores)
    if is_unlimited:
        change_of_ties = np.linalg.solve(whole - tie_weight * information, -scores.sum(axis=0))
        changes = np.vstack([changes, change_of_ties])
    changes -= changes.mean(axis=0)
    if is_unlimited:
        reaches = _reaches(pairs)
    else:
        reaches = np.ones((len(pairs.systems), len(pairs.systems)), dtype=np.bool_)
    return Strengths(
        design=design,
        parameters=parameters,
        changes=changes,
        inverse=np.asarray(np.linalg.inv(whole), dtype=np.float64),
        weights=weights,
        unlimited=is_unlimited,
        reaches=reaches,
    )


def _is_unlimited(design: PairDesign, information: Floats) -> bool:
    """Return whether the likelihood has no maximum: in a direction, there is nearly no information at the fit.

    Args:
        design: the design.
        information: the information at the fit, [P, P].
    """
    from scipy.linalg import eigh

    # As shares of the information that there is if all strengths are equal.
    shares = eigh(information + design.base, _information_of_equal_systems(design), eigvals_only=True)
    return bool(shares[0] < CERTAIN_BELOW)


def _changes_without(design: PairDesign, whole: Floats, weights: Floats, scores: Floats) -> Floats:
    """Return the change of each parameter without each instruction, by one step of Newton's method, [G, P].

    Args:
        design: the design.
        whole: the information of all instructions, [P, P].
        weights: the information of each pair, [n].
        scores: the gradient of the likelihood of each instruction, [G, P].
    """
    changes: Floats = np.empty(scores.shape)
    for block in design.blocks(_BLOCK_SIZE // len(whole) ** 2):
        dense = block.matrix.toarray()  # [rows, P]
        weighted = weights[block.rows, None] * dense  # [rows, P]
        of_row = weighted[:, :, None] * dense[:, None]  # [rows, P, P]
        of_instruction = np.add.reduceat(of_row, block.starts)
        # Without an instruction that joins two systems alone, the matrix would be singular.
        without = whole - (1 - 1e-6) * of_instruction
        score = scores[block.instructions, :, None]  # [instructions, P, 1]
        changes[block.instructions] = np.linalg.solve(without, score)[:, :, 0]
    return changes


def _reaches(pairs: Preferences) -> Flags:
    """Return whether each system wins against each other, directly or through systems between them, [K, K]."""
    count = len(pairs.systems)
    for_first = np.zeros((count, count))  # the preferences for the first system of two, over the second
    np.add.at(for_first, (pairs.first, pairs.second), pairs.preference)
    for_second = np.zeros((count, count))  # the preferences for the second one
    np.add.at(for_second, (pairs.first, pairs.second), 1 - pairs.preference)
    won = for_first + for_second.T
    # Of certain preferences, only those of the winner count, as for CERTAIN_BELOW.
    has_won = won > CERTAIN_BELOW / 4 * (won + won.T)
    reaches = has_won | np.eye(count, dtype=np.bool_)
    while True:
        further = reaches @ reaches
        if (further == reaches).all():
            return reaches
        reaches = further


def _maximum(design: PairDesign, preference: Floats) -> Floats:
    """Return the parameters of the largest likelihood by Newton's method; large numbers if there is none."""
    from scipy.special import expit

    def likelihood(parameters: Floats) -> float:
        log_odds = design.matrix @ parameters
        return float((preference * log_odds - np.logaddexp(0, log_odds)).sum())

    parameters: Floats = np.zeros(design.matrix.shape[1])
    for _ in range(30):  # without a maximum, the largest log-odds grow by 1 in each step
        gradient = design.matrix.T @ (preference - expit(design.matrix @ parameters))
        information = design.information(_weights(design, parameters)) + design.base
        step = np.linalg.solve(information, gradient)
        gain = float(gradient @ step)
        smallest = likelihood(parameters) - 1e-9 * len(preference)
        while likelihood(parameters + step) < smallest:
            step = step / 2
        parameters = parameters + step
        if gain < 1e-18 * len(preference):
            break
    return parameters


def _information_of_equal_systems(design: PairDesign) -> Floats:
    """Return the information if all strengths are equal, [P, P]."""
    return design.information(np.full(len(design.group), 0.25)) + design.base


def _weights(design: PairDesign, parameters: Floats) -> Floats:
    """Return the information of each pair, [n]."""
    from scipy.special import expit

    log_odds = design.matrix @ parameters
    weights: Floats = expit(log_odds) * expit(-log_odds)
    return weights
