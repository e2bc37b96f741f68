"""The labels of some rows of a run in one aspect, as the studies of agreement use them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Integers, LabelArray
from localjudge.statistics.agreement_statistics import SampledRows


@dataclass(frozen=True, slots=True)
class LabelledAspect:
    """The m labels of some rows of a run in an aspect.

    Attributes:
        marks: the labels.
        group: the instruction of each row of the run, [rows of the run].
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
    """

    marks: LabelArray
    group: Integers
    resamples: int
    seed: int

    @property
    def rows(self) -> int:
        """Number of rows with labels."""
        return len(np.unique(self.marks.row))

    @property
    def instructions(self) -> int:
        """Number of instructions of these rows."""
        return len(np.unique(self.group[self.marks.row]))

    @property
    def annotators(self) -> int:
        """Number of annotators."""
        return len(np.unique(self.marks.annotator))

    def sampled_labels(self) -> SampledRows:
        """Return the instruction and the weight of each label, [m]."""
        return SampledRows(
            self.group[self.marks.row], self.marks.weight, resamples=self.resamples, seed=self.seed
        )

    def sampled_rows(self, rows: Integers) -> SampledRows:
        """Return the instruction and the weight of each of these rows, which have labels, [n]."""
        return SampledRows(
            self.group[rows], self.marks.weight_of(rows), resamples=self.resamples, seed=self.seed
        )
