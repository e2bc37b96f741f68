"""The size of a comparison, from the variances of a pilot run: instructions, responses and labels.

The test is that of `rank` and `compare`: the paired differences of two systems, one for each instruction. Their
variance has a part between instructions, and a part within them, which more responses to each instruction make
smaller (Miller, "Adding Error Bars to Evals", arXiv:2411.00640, section 5). The power is that of Student's t.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from localjudge.arrays import Floats, Integers
from localjudge.errors import UsageError
from localjudge.matching.judged_pairs import read_judged_pairs
from localjudge.matching.labels import Labels
from localjudge.matching.scores import Scores, check_one_judge
from localjudge.studies.rank import deciding_column
from localjudge.system.quantities import counted

FEW = 20
"""Number of instructions, or of labels, below which a pilot says little about a variance."""


@dataclass(frozen=True, slots=True)
class Pilot:
    """The variances of a pilot.

    Attributes:
        column: the column to compare.
        instructions: number of instructions of the pilot.
        variances: the variances of the difference of two systems.
        inflation: the upper end of the one-sided 95 % interval of a variance, as a multiple of it.
        notes: remarks for the reader.
    """

    column: str
    instructions: int
    variances: Variances
    inflation: float
    notes: tuple[str, ...]

    @classmethod
    def from_scores(cls, scores: Scores, by: str | None) -> Pilot:
        """Return the variances of the differences of systems.

        Args:
            scores: runs of one judge, of two systems or more.
            by: the column; by default that which decides the order of systems in `rank`.

        Raises:
            UsageError: there is no such column, the runs have several judges, or no two systems have two common
                instructions.
        """
        check_one_judge(scores.folders, scores.manifests)
        table = scores.table(scores.best)
        column = _column(by, [*table], deciding_column(scores, [*table]))
        return cls._from(scores.where, column, table[column][0], scores.group, scores.system)

    @classmethod
    def from_pairs(cls, folders: Sequence[Path], by: str | None) -> Pilot:
        """Return the variances of preferences; a difference of 0.1 is a win rate of 0.6.

        Args:
            folders: runs of one judge that compare two responses.
            by: the aspect; by default the first.

        Raises:
            UsageError: there is no such aspect, or the runs have several judges or a single instruction.
        """
        pairs = read_judged_pairs(folders)
        check_one_judge(folders, pairs.manifests)
        aspect = _column(by, [*pairs.aspects], next(iter(pairs.aspects)))
        preference = pairs.aspects[aspect].preference[:, 0]
        # The other side of the difference is one half, which no instruction changes.
        values, system = (
            np.append(preference, np.full(len(preference), 0.5)),
            np.repeat([0, 1], len(preference)),
        )
        return cls._from(", ".join(map(str, folders)), aspect, values, np.tile(pairs.group, 2), system)

    @classmethod
    def _from(cls, where: str, column: str, values: Floats, group: Integers, system: Integers) -> Pilot:
        from scipy.stats import chi2

        found, instructions = paired_variances(values, group, system), int(group.max()) + 1
        if found is None:
            raise UsageError(
                f"{where}: a difference needs two systems with two instructions in common; give a pilot of two "
                "systems, or the runs of two"
            )
        notes = []
        if found.within is None:
            notes.append(
                "no system has two responses to an instruction, so it is not known what more would save"
            )
        if instructions < FEW:
            notes.append(
                f"{counted(instructions, 'instruction')} say little about a variance; give {FEW} or more"
            )
        inflation = (instructions - 1) / float(chi2.ppf(0.05, instructions - 1))
        return cls(column, instructions, found, inflation, tuple(notes))


def _column(by: str | None, columns: Sequence[str], default: str) -> str:
    if by is not None and by not in columns:
        raise UsageError(f"`by` {by}: give one of {', '.join(columns)}")
    return by or default


def labels_in_words(labels: Labels, scores: Scores, column: str, margin: float) -> Iterator[str]:
    """Yield how many labels people's mean and the agreement with them need.

    Args:
        labels: labels of some rows.
        scores: the scores of the rows.
        column: the column.
        margin: the half width of the 95 % interval of people's mean.
    """
    rows, label = labels.means(column) if column in labels.aspects else (np.zeros(0, np.int32), np.zeros(0))
    if len(rows) < FEW:
        yield f"{counted(len(rows), 'labelled row')} of {column} are too few to plan labels; {FEW} are needed"
        return
    judged, variance = scores.table(scores.best)[column][0][rows], float(label.var(ddof=1))
    explained = float(np.corrcoef(judged, label)[0, 1] ** 2) if judged.std() and label.std() else 0.0
    alone, powered = (labels_needed(margin, variance * share) for share in (1.0, 1 - explained))
    yield (
        f"people's mean of a system, ± {margin:g}: {alone:,} labels of random rows, or {powered:,} beside many "
        f"judged rows (rank --labels), because the judge explains {explained:.0%} of their variance"
    )
    agreed = float((np.round(judged) == label).mean())
    needed = labels_needed(0.05, max(agreed * (1 - agreed), 0.05))
    yield f"the share of labels that the scores agree with ({agreed:.0%} here), ± 0.05: {needed:,} labels"


ALPHA = 0.05
MOST = 10_000_000
"""Largest number of instructions that is searched for."""


@dataclass(frozen=True, slots=True)
class Variances:
    """The variance of the difference of two systems on an instruction: between instructions, and within them.

    `within` is that of one response of each system; None if no system has two responses to an instruction, and
    then `between` includes it.
    """

    between: float
    within: float | None

    def of_difference(self, responses: int) -> float:
        """Return the variance of a difference of means of this number of responses each."""
        return self.between + (self.within or 0) / responses


def paired_variances(values: Floats, group: Integers, system: Integers) -> Variances | None:
    """Return the variances of a pilot, the mean of all pairs of systems; None if no two share two instructions.

    Args:
        values: the score of each row, [n].
        group: the instruction of each row, [n].
        system: the system of each row, [n].
    """
    shape = int(group.max()) + 1, int(system.max()) + 1
    cell = group.astype(np.int64) * shape[1] + system
    rows = np.bincount(cell, minlength=shape[0] * shape[1])
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.bincount(cell, values, minlength=len(rows)) / rows
        squares = np.bincount(cell, (values - means[cell]) ** 2, minlength=len(rows))
    is_several = rows > 1
    within = float(squares[is_several].sum() / (rows[is_several] - 1).sum()) if is_several.any() else None
    table, count = means.reshape(shape), rows.reshape(shape)
    found = []
    for one, other in combinations(range(shape[1]), 2):
        difference = table[:, one] - table[:, other]
        both = np.isfinite(difference)
        if both.sum() > 1:
            sampled = (1 / count[both, one] + 1 / count[both, other]).mean() * (within or 0)
            found.append(max(float(difference[both].var(ddof=1) - sampled), 0.0))
    return Variances(float(np.mean(found)), None if within is None else 2 * within) if found else None


def power(difference: float, variance: float, instructions: int, tests: int = 1) -> float:
    """Return the probability that a two-sided paired test finds a difference.

    Args:
        difference: the true mean difference.
        variance: the variance of the difference on an instruction.
        instructions: their number, at least 2.
        tests: number of tests that the level of 0.05 is divided by (Bonferroni).
    """
    from scipy.stats import nct, t

    freedom = instructions - 1
    critical = t.ppf(1 - ALPHA / tests / 2, freedom)
    shift = abs(difference) * math.sqrt(instructions / variance)
    return float(1 - nct.cdf(critical, freedom, shift) + nct.cdf(-critical, freedom, shift))


def instructions_needed(difference: float, variance: float, wanted: float = 0.8, tests: int = 1) -> int:
    """Return the smallest number of instructions with a power, at least 5.

    Args:
        difference: as for `power`.
        variance: as for `power`.
        wanted: the power.
        tests: as for `power`.
    """
    return _smallest(lambda count: power(difference, variance, count, tests) >= wanted) if variance > 0 else 5


def labels_needed(margin: float, variance: float) -> int:
    """Return how many labels a 95 % interval of this half width needs, for a mean with this variance."""
    from scipy.stats import t

    return _smallest(lambda count: t.ppf(1 - ALPHA / 2, count - 1) * math.sqrt(variance / count) <= margin)


def _smallest(is_enough: Callable[[int], Any]) -> int:
    """Return the smallest sufficient number from 5 on, by bisection: all numbers above it must suffice, too."""
    low, high = 4, 5
    while not is_enough(high):
        low, high = high, 2 * high
        if high > MOST:
            return MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
