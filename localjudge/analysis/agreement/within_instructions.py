"""Agreement of a judge with people on the responses of one instruction, which is what compares systems.

A judge that sees only how hard an instruction is agrees with people over all rows, but not within instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from localjudge.analysis import Floats, Integers
from localjudge.analysis.agreement.comparison import correlation, with_interval
from localjudge.analysis.matching.label_records import LabelArray
from localjudge.analysis.matching.scores import Scores
from localjudge.analysis.statistics import UNDEFINED, Estimate, agreement_statistics
from localjudge.analysis.statistics.resampling import mean_estimate

_THRESHOLDS = 201
"""Largest number of thresholds to try, which are quantiles of the differences."""
_FOLDS, _DRAWS = 5, 20
_DIGITS = 9
WITHIN_NOTE = (
    "In order: share of the response pairs of one instruction that the scores order, or call equal, as the "
    "labels do. Of all these figures, it is the one that matters for comparing systems. Scores that differ by "
    "epsilon or less are equal; epsilon is learned on other instructions. Compare with the row of equal scores."
)
NOT_WITHIN = "Agreement within instructions is unknown: it needs two instructions with two labelled responses."


@dataclass(frozen=True, slots=True)
class WithinComparison:
    """The agreement of one column of numbers with the labels within instructions.

    Attributes:
        pearson: Pearson's correlation of the differences from the mean of the instruction.
        in_order: share of the pairs of responses that the column orders, or calls equal, as the mean labels do;
            the mean over instructions.
        epsilon: the largest difference that counts as equal, learned on all instructions.
    """

    pearson: Estimate
    in_order: Estimate
    epsilon: float | None


@dataclass(frozen=True, slots=True)
class WithinInstructions:
    """The agreement within the instructions that have at least two labelled responses.

    `pairs` is the number of their pairs of responses. The keys of `comparisons` are those of
    `AspectAgreement.comparisons`, and "equal": scores that are all equal.
    """

    instructions: int
    pairs: int
    comparisons: Mapping[str, WithinComparison]


@dataclass(frozen=True, slots=True)
class LabelledResponses:
    """The m mean labels of the instructions with at least two labelled responses, and their pairs [p].

    `row` and `group` are the row and the instruction of each label, `first` and `second` the places of a pair
    in them. Instructions are numbered from 0. `weight` has the weight of each label; None if all are equal.
    """

    row: Integers
    label: Floats
    group: Integers
    first: Integers
    second: Integers
    weight: Floats | None = None

    @classmethod
    def from_labels(cls, marks: LabelArray, scores: Scores) -> LabelledResponses | None:
        """Return the labelled responses; None if fewer than two instructions have two of them.

        Rows with the same texts are one response.
        """
        first_row: dict[str, int] = {}
        response = [
            first_row.setdefault(digest or f"row {row}", row) for row, digest in enumerate(scores.digests)
        ]
        marks = replace(marks, row=np.array(response)[marks.row])
        row, label = marks.means()
        group = scores.group
        several = np.bincount(group[row])[group[row]] >= 2
        row, label = row[several], label[several]
        present, numbered = np.unique(group[row], return_inverse=True)
        if len(present) < 2:
            return None
        order = np.argsort(numbered, kind="stable")
        first, second = [], []
        for members in np.split(order, np.flatnonzero(np.diff(numbered[order])) + 1):
            one, other = np.triu_indices(len(members), 1)
            first.append(members[one])
            second.append(members[other])
        pairs = np.concatenate(first), np.concatenate(second)
        return cls(row, label, numbered, *pairs, marks.weight_of(row))

    @property
    def instructions(self) -> int:
        return int(self.group.max()) + 1

    def compare(self, column: Floats, resamples: int, seed: int) -> WithinComparison:
        """Compare a column [rows of the run] with the labels."""
        values = column[self.row]
        x, y = (self._centred(each) for each in (values, self.label))
        value, weight = correlation("pearson", x, y, self.weight), self._weight_of_instructions
        in_order, epsilon = self._in_order(values, seed)
        every = np.arange(self.instructions)
        return WithinComparison(
            pearson=with_interval(value, agreement_statistics.pearson, x, y, self.group, weight=self.weight),
            in_order=mean_estimate(in_order, every, 0.0, 1.0, False, resamples, seed, weight),
            epsilon=epsilon,
        )

    def equal(self, resamples: int, seed: int) -> WithinComparison:
        """Return the accuracy of scores that are all equal: the share of pairs with equal labels."""
        found = self.compare(np.zeros(int(self.row.max()) + 1), resamples, seed)
        return WithinComparison(UNDEFINED, found.in_order, None)

    @property
    def _weight_of_instructions(self) -> Floats | None:
        return None if self.weight is None else np.bincount(self.group, self.weight) / np.bincount(self.group)

    def _centred(self, values: Floats) -> Floats:
        means = np.bincount(self.group, values) / np.bincount(self.group)
        # Rounding errors would be the variance of values that are equal within each instruction.
        centred: Floats = (values - means[self.group]).round(_DIGITS)
        return centred

    def _in_order(self, values: Floats, seed: int) -> tuple[Floats, float]:
        """Return the share of pairs in order by instruction, and the threshold that is best for all.

        This is pairwise accuracy with tie calibration (Deutsch et al. 2023, arXiv 2305.14324). The threshold of
        an instruction is the best one, the smallest of several, for instructions of other folds; the folds are
        drawn several times.
        """
        by_column, by_label = (
            (each[self.first] - each[self.second]).round(_DIGITS) for each in (values, self.label)
        )
        size, group = np.abs(by_column), self.group[self.first]
        quantiles = np.quantile(size, np.linspace(0, 1, _THRESHOLDS), method="inverted_cdf")
        thresholds = np.unique(np.append(0.0, quantiles))
        # A pair is as its order says below the first threshold that its difference does not exceed, then a tie.
        tie = (by_label == 0).astype(np.float64)
        ordered = ((np.sign(by_column) == np.sign(by_label)) & (by_label != 0)).astype(np.float64)
        steps = np.zeros((self.instructions, len(thresholds)))
        steps[:, 0] = np.bincount(group, ordered)
        np.add.at(steps, (group, np.searchsorted(thresholds, size)), tie - ordered)
        shares = steps.cumsum(axis=1) / np.bincount(group)[:, None]
        unseen_shares, generator = np.zeros(len(shares)), np.random.default_rng(seed)
        weight = self._weight_of_instructions
        weighted = shares if weight is None else shares * weight[:, None]
        for _ in range(_DRAWS):
            fold = generator.permutation(len(shares)) % _FOLDS
            for unseen in (fold == number for number in range(min(_FOLDS, len(shares)))):
                learned = weighted[~unseen].sum(axis=0).round(_DIGITS).argmax()
                unseen_shares[unseen] += shares[unseen, learned]
        return unseen_shares / _DRAWS, float(thresholds[weighted.sum(axis=0).round(_DIGITS).argmax()])
