"""The size of a comparison, from the variances of a pilot run: instructions, responses and labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from localjudge.errors import UsageError
from localjudge.matching.judged_rows import JudgedPairs
from localjudge.matching.labels import Labels
from localjudge.matching.scores import Scores, check_one_judge
from localjudge.statistics.paired_test import Variances, labels_needed, needed_in_words, paired_variances
from localjudge.studies.rank import chosen_column, deciding_column
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
    def from_judged(cls, judged: Scores | JudgedPairs, by: str | None) -> Pilot:
        """Return the variances of the differences of systems, or of preferences.

        A difference of preferences of 0.1 is a win rate of 0.6.

        Args:
            judged: runs of one judge, of two systems or more, or runs that compare two responses.
            by: the column; by default that which decides the order of systems in `rank`, or the first aspect.

        Raises:
            UsageError: there is no such column, the runs have several judges, or no two systems have two common
                instructions.
        """
        from scipy.stats import chi2

        check_one_judge(judged.folders, judged.manifests)
        if isinstance(judged, JudgedPairs):
            column = chosen_column(by, [*judged.aspects], next(iter(judged.aspects)))
            values = judged.aspects[column].preference[:, 0]
            # The other side of the difference is one half, which no instruction changes.
            system = np.repeat([0, 1], len(values))
            values, group = np.append(values, np.full(len(values), 0.5)), np.tile(judged.group, 2)
        else:
            table = judged.table(judged.best)
            column = chosen_column(by, [*table], deciding_column(judged, [*table]))
            values, group, system = table[column][0], judged.group, judged.system
        variances, instructions = paired_variances(values, group, system), int(group.max()) + 1
        if variances is None:
            raise UsageError(
                f"{judged.where}: a difference needs two systems with two instructions in common; give a pilot "
                "of two systems, or the runs of two"
            )
        notes = []
        if variances.within is None:
            notes.append(
                "no system has two responses to an instruction, so it is not known what more would save"
            )
        if instructions < FEW:
            notes.append(
                f"{counted(instructions, 'instruction')} say little about a variance; give {FEW} or more"
            )
        inflation = (instructions - 1) / float(chi2.ppf(0.05, instructions - 1))
        return cls(column, instructions, variances, inflation, tuple(notes))


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
    alone, powered = (
        needed_in_words(labels_needed(margin, variance * share)) for share in (1.0, 1 - explained)
    )
    yield (
        f"people's mean of each system, ± {margin:g}: labels of {alone} random rows of this system, or of "
        f"{powered} beside many judged ones (rank --labels), because the judge explains {explained:.0%} of "
        "their variance"
    )
    agreed = float((np.round(judged) == label).mean())
    needed = needed_in_words(labels_needed(0.05, max(agreed * (1 - agreed), 0.05)))
    yield f"the share of labels that the scores agree with ({agreed:.0%} here), ± 0.05: {needed} labels"
