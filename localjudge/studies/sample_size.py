"""The size of a comparison, from the variance of a pilot run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from localjudge.errors import UsageError
from localjudge.matching.judged_rows import JudgedPairs, read_judged
from localjudge.matching.scores import check_one_judge
from localjudge.statistics.paired_test import paired_variance
from localjudge.studies.rank.deciding_column import chosen_column, default_column
from localjudge.system.quantities import counted

FEW = 20
"""Number of instructions of two systems below which a pilot says little about a variance."""


@dataclass(frozen=True, slots=True)
class Pilot:
    """The variance of a pilot.

    Attributes:
        column: the column to compare.
        ends: the lowest and the highest number of the column; None for preferences.
        variance: the variance of the difference of two systems on an instruction.
        inflation: the upper end of the one-sided 95 % interval of the variance, as a multiple of it, with the
            fewest instructions that two systems share.
        notes: remarks for the reader.
        notices: the notices of the runs.
    """

    column: str
    ends: tuple[int, int] | None
    variance: float
    inflation: float
    notes: tuple[str, ...]
    notices: tuple[str, ...]

    @classmethod
    def read(cls, folders: Sequence[Path], by: str | None) -> Pilot:
        """Return the variance of the differences of systems, or of preferences.

        A difference of preferences of 0.1 is a win rate of 0.6.

        Args:
            folders: runs of one judge, of two systems or more, or runs that compare two responses.
            by: the column; by default that which decides the order of systems in `rank`, or the first aspect.

        Raises:
            UsageError: there is no such column, the runs have several judges, or no two systems have two common
                instructions.
        """
        from scipy.stats import chi2

        judged, ends = read_judged(folders), None
        check_one_judge(judged.folders, judged.manifests)
        if isinstance(judged, JudgedPairs):
            column = chosen_column(by, [*judged.aspects], next(iter(judged.aspects)))
            values = judged.aspects[column].preference[:, 0]
            # The other side of the difference is one half, which no instruction changes.
            system = np.repeat([0, 1], len(values))
            values, group = np.append(values, np.full(len(values), 0.5)), np.tile(judged.group, 2)
        else:
            table = judged.table(judged.best)
            column = chosen_column(by, [*table], default_column(judged, [*table]))
            (values, ends), group, system = table[column], judged.group, judged.system
        paired = paired_variance(values, group, system)
        if paired is None:
            raise UsageError(
                f"{judged.where}: a difference needs two systems with two instructions in common; give a pilot "
                "of two systems, or the runs of two"
            )
        variance, instructions = paired
        few = (
            f"{counted(instructions, 'instruction')} in common say little about a variance; give {FEW} or more"
        )
        inflation = (instructions - 1) / float(chi2.ppf(0.05, instructions - 1))
        return cls(column, ends, variance, inflation, (few,) * (instructions < FEW), judged.notices)
