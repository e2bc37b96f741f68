"""The design matrix of a model of pairs: two systems in each row, and the difference of their lengths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from localjudge.analysis.matching.scores import Floats, Integers
from localjudge.analysis.pairs.preferences import Preferences


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
    def of(cls, pairs: Preferences, with_length: bool = False) -> PairDesign:
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
