"""The size of a comparison, from the variance of a pilot run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from localjudge.arrays import Floats, Integers
from localjudge.errors import UsageError
from localjudge.matching.judged_rows import JudgedPairs, read_judged
from localjudge.matching.scores import Scores, check_one_judge
from localjudge.statistics.paired_test import paired_variance
from localjudge.studies.rank.deciding_column import chosen_column, default_column


@dataclass(frozen=True, slots=True)
class Pilot:
    """The variance of a pilot.

    Attributes:
        column: the column to compare.
        ends: the lowest and the highest number of the column; None for preferences.
        variance: the variance of the difference of two systems on an instruction.
        inflation: the upper end of the one-sided 95 % interval of the variance, as a multiple of it, with the
            fewest instructions that two systems share.
        instructions: the fewest instructions that two systems share.
        notices: the notices of the runs.
    """

    column: str
    ends: tuple[int, int] | None
    variance: float
    inflation: float
    instructions: int
    notices: tuple[str, ...]

    @classmethod
    def read(cls, folders: Sequence[Path], by: str | None) -> Self:
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

        judged = read_judged(folders)
        check_one_judge(judged.folders, judged.manifests)
        values = _pair_values(judged, by) if isinstance(judged, JudgedPairs) else _score_values(judged, by)
        paired = paired_variance(values.number, values.group, values.system)
        if paired is None:
            raise UsageError(
                f"{judged.where}: a difference needs two systems with two instructions in common; give a pilot "
                "of two systems, or the runs of two"
            )
        variance, instructions = paired
        degrees = instructions - 1
        return cls(
            column=values.column,
            ends=values.ends,
            variance=variance,
            inflation=degrees / float(chi2.ppf(0.05, degrees)),
            instructions=instructions,
            notices=judged.notices,
        )


@dataclass(frozen=True, slots=True)
class _Values:
    """The n numbers of a pilot whose differences between systems are computed.

    Attributes:
        column: the column.
        ends: the lowest and the highest number of the column; None for preferences.
        number: the numbers, [n].
        group: the instruction of each, [n].
        system: the system of each, [n].
    """

    column: str
    ends: tuple[int, int] | None
    number: Floats
    group: Integers
    system: Integers


def _score_values(scores: Scores, by: str | None) -> _Values:
    """Return the scores in the column that decides the order of systems, or in the one that is named."""
    table = scores.table(scores.best)
    columns = list(table)
    column = chosen_column(by, columns, default=default_column(scores, columns))
    number, ends = table[column]
    return _Values(column, ends, number=number, group=scores.group, system=scores.system)


def _pair_values(pairs: JudgedPairs, by: str | None) -> _Values:
    """Return the preferences in the first aspect, or in the one that is named, and one half for each."""
    aspects = list(pairs.aspects)
    aspect = chosen_column(by, aspects, default=aspects[0])
    preference = pairs.aspects[aspect].preference[:, 0]
    # The other side of the difference is one half, which no instruction changes.
    no_preference = np.full(len(preference), 0.5)
    return _Values(
        aspect,
        ends=None,
        number=np.concatenate([preference, no_preference]),
        group=np.tile(pairs.group, 2),
        system=np.repeat([0, 1], len(preference)),
    )
