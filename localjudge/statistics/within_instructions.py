"""Agreement of a judge with people on the responses of one instruction, which is what compares systems.

A judge that sees only how hard an instruction is agrees with people over all rows, but not within instructions.

The share of pairs in order is pairwise accuracy with tie calibration (Deutsch et al. 2023, arXiv 2305.14324),
for the threshold of ties that is best for new instructions. With a threshold that is learned on the same
instructions the share is too high, and with one that is learned on others too low; the mean of both is nearly
unbiased. Its jackknife learns all thresholds again without each instruction: an interval for a threshold that
is known contains the share too seldom. `benchmarks/in_order.py` measures both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from localjudge.arrays import Floats, Integers, LabelArray
from localjudge.statistics import UNDEFINED, Estimate
from localjudge.statistics.jackknife import PARTS, LeftOut, agreement_estimate

_THRESHOLDS = 201
"""Largest number of thresholds to try, which are quantiles of the differences."""
_FOLDS, _DRAWS = 5, 10
_DIGITS = 9
JUDGED = ("integer", "expected")
"""The columns of a judge; all others are baselines."""
NOT_WITHIN = "Agreement within instructions is unknown: it needs two instructions with two labelled responses."


@dataclass(frozen=True, slots=True)
class WithinComparison:
    """The agreement of one column of numbers with the labels within instructions.

    Attributes:
        in_order: share of the pairs of responses that the column orders, or calls equal, as the mean labels do;
            the mean over instructions.
        over_chance: how much larger this share is than with the same numbers in a random order within each
            instruction; the threshold of each instruction is learned on others, so that the expected value is 0
            for numbers that do not depend on the responses.
        epsilon: the largest difference that counts as equal, learned on all instructions.
    """

    in_order: Estimate
    over_chance: Estimate
    epsilon: float | None


@dataclass(frozen=True, slots=True)
class WithinInstructions:
    """The agreement within the instructions that have at least two labelled responses.

    `pairs` is the number of their pairs of responses. The keys of `comparisons` are those of
    `AspectAgreement.comparisons`, and two without a judge: "equal", scores that are all equal, and "random",
    scores that are drawn at random and never equal. `over_baselines` has the share in order of the judge's
    scores, the expected ones if they are known, minus that of each baseline on the same pairs.
    """

    instructions: int
    pairs: int
    comparisons: Mapping[str, WithinComparison]
    over_baselines: Mapping[str, Estimate]


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
    def from_labels(cls, marks: LabelArray, group: Integers, response: Integers) -> LabelledResponses | None:
        """Return the labelled responses; None if fewer than two instructions have two of them.

        Args:
            marks: the labels.
            group: the instruction of each row, [rows].
            response: the first row with the same response as each row, [rows].
        """
        from scipy.sparse import csr_array, triu

        marks = replace(marks, row=response[marks.row])
        row, label = marks.means()
        several = np.bincount(group[row])[group[row]] >= 2
        row, label = row[several], label[several]
        present, numbered = np.unique(group[row], return_inverse=True)
        if len(present) < 2:
            return None
        members = csr_array((np.ones(len(row)), (np.arange(len(row)), numbered)))
        first, second = triu(members @ members.T, 1).nonzero()
        return cls(row, label, numbered, first, second, marks.weight_of(row))

    @property
    def instructions(self) -> int:
        return int(self.group.max()) + 1

    def compare(self, column: Floats, seed: int) -> tuple[WithinComparison, LeftOut]:
        """Compare a column [rows of the run] with the labels; `seed` is that of the folds.

        Returns:
            The comparison, and its share in order, also without each part of the instructions.
        """
        values = column[self.row]
        in_order, over_chance, epsilon = self._order_of(values).shares(seed)
        compared = WithinComparison(
            in_order=agreement_estimate(in_order.value, in_order.without, lowest=0.0, further=0),
            over_chance=agreement_estimate(over_chance.value, over_chance.without, further=0),
            epsilon=epsilon,
        )
        return compared, in_order

    def _order_of(self, values: Floats) -> _OrderedPairs:
        """Return the shares of pairs in order by instruction, for each threshold of ties."""
        by_column, by_label = (
            (numbers[self.first] - numbers[self.second]).round(_DIGITS) for numbers in (values, self.label)
        )
        size, group = np.abs(by_column), self.group[self.first]
        quantiles = np.quantile(size, np.linspace(0, 1, _THRESHOLDS), method="inverted_cdf")
        thresholds = np.unique(np.append(0.0, quantiles))
        tie = (by_label == 0).astype(np.float64)
        ordered = ((np.sign(by_column) == np.sign(by_label)) & (by_label != 0)).astype(np.float64)
        # A pair is as its order says below the first threshold that its difference does not exceed, then a tie.
        place, pairs = np.searchsorted(thresholds, size), np.bincount(group)[:, None]
        shares = np.zeros((2, self.instructions, len(thresholds)))
        shares[0, :, 0] = np.bincount(group, ordered)
        np.add.at(shares[0], (group, place), tie - ordered)
        np.add.at(shares[1], (group, place), 1.0)
        in_order, equal = shares.cumsum(axis=2) / pairs
        # In a random order, a pair gets any two of its instruction's numbers, and either of them first.
        labels_equal = np.bincount(group, tie)[:, None] / pairs
        chance = labels_equal * equal + (1 - labels_equal) * (1 - equal) / 2
        weights = np.bincount(self.group, self.weight) / np.bincount(self.group)
        return _OrderedPairs.from_instructions(thresholds, in_order, chance, weights)


def agree_within(
    columns: Mapping[str, Floats], marks: LabelArray, group: Integers, response: Integers, seed: int
) -> WithinInstructions | None:
    """Compare columns of numbers with labels within instructions.

    Args:
        columns: the columns, [rows].
        marks, group, response: as for `LabelledResponses.from_labels`.
        seed: the seed of the folds.

    Returns:
        The agreement; None if fewer than two instructions have two labelled responses.
    """
    responses = LabelledResponses.from_labels(marks, group, response)
    if responses is None:
        return None
    compared = {name: responses.compare(column, seed) for name, column in columns.items()}
    comparisons = {name: comparison for name, (comparison, _) in compared.items()}
    shares = {name: share for name, (_, share) in compared.items()}
    # All pairs with equal labels are in order for equal scores, and half of all other pairs for random ones.
    of_equal, equal = responses.compare(np.zeros(len(group)), seed)
    rest = of_equal.in_order.complement()
    value, low, high = (None if end is None else end / 2 for end in (rest.value, rest.low, rest.high))
    trivial = {"equal": of_equal.in_order, "random": replace(rest, value=value, low=low, high=high)}
    comparisons |= {name: WithinComparison(share, UNDEFINED, None) for name, share in trivial.items()}
    shares |= {"equal": equal, "random": LeftOut((1 - equal.value) / 2, (1 - equal.without) / 2)}
    judge = shares["expected" if "expected" in shares else "integer"]
    over = {name: judge.minus(share).difference() for name, share in shares.items() if name not in JUDGED}
    return WithinInstructions(responses.instructions, len(responses.first), comparisons, over)


@dataclass(frozen=True, slots=True)
class _OrderedPairs:
    """The pairs in order for each of T thresholds, in P parts of the instructions.

    Attributes:
        thresholds: the thresholds, ascending, [T].
        in_order: the sum of the instructions' shares of pairs in order, each with its weight, [P, T].
        over_chance: the same of the shares minus those of a random order, [P, T].
        weight: the sum of the instructions' weights, [P].
    """

    thresholds: Floats
    in_order: Floats
    over_chance: Floats
    weight: Floats

    @classmethod
    def from_instructions(
        cls, thresholds: Floats, in_order: Floats, chance: Floats, weight: Floats
    ) -> _OrderedPairs:
        """Return the parts of the instructions; the shares are [G, T], and the weights [G]."""
        part = np.arange(len(weight)) % PARTS
        sums = np.zeros((2, min(len(weight), PARTS), len(thresholds)))
        for total, share in zip(sums, (in_order, in_order - chance), strict=True):
            np.add.at(total, part, share * weight[:, None])
        return cls(thresholds, sums[0], sums[1], np.bincount(part, weight).astype(np.float64))

    def shares(self, seed: int) -> tuple[LeftOut, LeftOut, float]:
        """Return the share in order, how much it is over chance, and the threshold that is best for all.

        The threshold of a part is the best one, the smallest of several, for parts of other folds; the folds
        are drawn several times. `seed` is that of the folds.
        """
        parts, every = len(self.weight), np.arange(len(self.weight))
        whole, total = self.in_order.sum(axis=0), self.weight.sum()
        best, best_without = _best(whole), _best(whole - self.in_order)
        seen, seen_without = whole[best], whole[best_without] - self.in_order[every, best_without]
        unseen, unseen_without = np.zeros(2), np.zeros((2, parts))
        curves, generator = np.stack([self.in_order, self.over_chance]), np.random.default_rng(seed)
        for _ in range(_DRAWS):
            fold = generator.permutation(parts) % _FOLDS
            for inside in (fold == number for number in range(min(_FOLDS, parts))):
                others = self.in_order[~inside]
                of_others, held = others.sum(axis=0), curves[:, inside].sum(axis=1)
                learned = _best(of_others)
                unseen += held[:, learned] / _DRAWS
                # Without a part of the fold, the threshold is the same; without another part, learn it again.
                unseen_without[:, inside] += (held[:, [learned]] - curves[:, inside, learned]) / _DRAWS
                unseen_without[:, ~inside] += held[:, _best(of_others - others)] / _DRAWS
        without = total - self.weight
        # A rounding error must not put a share of 1 above 1.
        in_order = float(((seen + unseen[0]) / 2 / total).round(_DIGITS))
        in_order_without = ((seen_without + unseen_without[0]) / 2 / without).round(_DIGITS)
        return (
            LeftOut(in_order, in_order_without),
            LeftOut(float(unseen[1] / total), unseen_without[1] / without),
            float(self.thresholds[best]),
        )


def _best(in_order: Floats) -> Integers:
    """Return the place of the largest number, the first of several, in the last axis."""
    places: Integers = in_order.round(_DIGITS).argmax(axis=-1)
    return places
