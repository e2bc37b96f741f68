"""Shares of systems, such as win rates, with intervals on the scale of their log-odds.

So an interval stays between 0 and 1 and is defined if a system always wins. Near that end the bootstrap-t of
`resampling` is too wide or undefined: for the log-odds of 29 wins in 30 it gives -2.6 to 9.3, the jackknife 1.2
to 5.5, and the exact interval is 1.6 to 7.1.

`benchmarks/preference_coverage.py` measures how often the intervals contain the true value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Floats, Integers
from localjudge.statistics import Estimate
from localjudge.statistics.jackknife import JackknifeEstimates

CERTAIN_BELOW = 0.002
"""Information of a preference, as a share of that of 50 %, below which it counts as certain: more than 99.95 %.

A certain share gets one more instruction that is a tie, and its log-odds are finite."""


@dataclass(frozen=True, slots=True)
class Shares:
    """k shares, means of values from 0 to 1, and their log-odds; NaN for a share of nothing."""

    value: Floats  # [k]
    rows: Integers  # [k]: the number of values
    log_odds: JackknifeEstimates

    @classmethod
    def from_values(cls, values: Floats, part: Integers, parts: int, group: Integers) -> Shares:
        """Return the mean of each part of the values.

        Args:
            values: the values, [m].
            part: the part of each value, [m].
            parts: k.
            group: the instruction of each value, [m].
        """
        from scipy.sparse import csr_array

        # A cell has the values of one part and one instruction.
        cells, cell = np.unique(group.astype(np.int64) * parts + part, return_inverse=True)
        cell_part = cells % parts  # [cells]
        cell_group = cells // parts  # [cells]
        cell_rows = np.bincount(cell, minlength=len(cells))
        cell_total = np.bincount(cell, values, minlength=len(cells))
        rows = np.bincount(part, minlength=parts)  # [k]
        squared_rows = np.bincount(cell_part, cell_rows.astype(np.float64) ** 2, minlength=parts)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = np.bincount(part, values, minlength=parts) / rows
            units = rows**2 / squared_rows  # [k]: Kish's effective number of instructions
            is_certain = 4 * value * (1 - value) < CERTAIN_BELOW
            tie_weight = np.where(is_certain, 1 / units, 0)  # [k]: the weight of one more instruction
            centre = (value + tie_weight / 2) / (1 + tie_weight)
            log_odds = np.log(centre / (1 - centre))
            slope = centre * (1 - centre)  # [k]: the derivative of a share by its log-odds
            change_of_tie = np.nan_to_num((0.5 - centre) * tie_weight / slope)
        weight = cell_rows / (rows * (1 + tie_weight))[cell_part]  # [cells]
        change = weight * (cell_total / cell_rows - centre[cell_part]) / slope[cell_part]
        # The change without the instruction. A single instruction, of weight 1, has no interval anyway.
        change /= np.maximum(1 - weight, 1e-6)
        groups = int(group.max(initial=0)) + 1
        changes = csr_array((change, (cell_group, cell_part)), shape=(groups, parts))
        covariance = (changes.T @ changes).toarray() + np.outer(change_of_tie, change_of_tie)
        # Rounding does not take away an instruction.
        units = np.nan_to_num(units) + is_certain + 1e-6
        return cls(value, rows, log_odds=JackknifeEstimates(log_odds, covariance, units=units))

    def estimates(self) -> list[Estimate]:
        """Return the shares with their intervals, which contain the shares."""
        tested = self.log_odds.tested(resamples=0)
        low = np.minimum(_share(tested.low), self.value)
        high = np.maximum(_share(tested.high), self.value)
        return list(map(Estimate.from_floats, self.value, low, high, tested.why))


def _share(log_odds: Floats) -> Floats:
    """Return the shares with these log-odds, [k]."""
    shares: Floats = 1 / (1 + np.exp(-log_odds))
    return shares
