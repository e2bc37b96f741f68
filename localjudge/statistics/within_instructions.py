"""Agreement of a judge with people on the responses of one instruction, which is what compares systems.

A judge that sees only how hard an instruction is agrees with people over all rows, but not within instructions.

The share of pairs in order is pairwise accuracy with tie calibration (Deutsch et al. 2023, arXiv 2305.14324),
for the threshold of ties that is best for new instructions. With a threshold that is learned on the same
instructions the share is too high, and with one that is learned on others too low; the mean of both is nearly
unbiased. Its jackknife learns all thresholds again without each instruction: an interval that takes the
threshold as known under-covers. `benchmarks/in_order.py` measures both.
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
_FOLDS = 5
"""Number of folds of the instructions; the threshold of each is learned on the others."""
_DRAWS = 10
"""How often the folds are drawn."""
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

    `row` and `group` are the row and the instruction of each label, `first` and `second` the numbers of a
    pair's labels. Instructions are numbered from 0. `weight` has the weight of each label; None if all are
    equal.
    """

    row: Integers  # [m]
    label: Floats  # [m]
    group: Integers  # [m]
    first: Integers  # [p]
    second: Integers  # [p]
    weight: Floats | None = None  # [m]

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
        responses_of_group = np.bincount(group[row])
        has_pair = responses_of_group[group[row]] >= 2
        row = row[has_pair]
        label = label[has_pair]
        present, numbered = np.unique(group[row], return_inverse=True)
        if len(present) < 2:
            return None
        is_member = csr_array((np.ones(len(row)), (np.arange(len(row)), numbered)))  # [m, G]
        is_same = is_member @ is_member.T  # [m, m]
        first, second = triu(is_same, k=1).nonzero()
        return cls(row, label, group=numbered, first=first, second=second, weight=marks.weight_of(row))

    @property
    def instructions(self) -> int:
        """Number of instructions."""
        return int(self.group.max()) + 1

    def compare(self, column: Floats, seed: int) -> tuple[WithinComparison, LeftOut]:
        """Compare a column [rows of the run] with the labels; `seed` is the seed of the folds.

        Returns:
            The comparison; its share in order, also without each part of the instructions.
        """
        shares = self._order_of(column[self.row]).shares(seed)
        in_order = shares.in_order
        over_chance = shares.over_chance
        comparison = WithinComparison(
            in_order=agreement_estimate(in_order.value, in_order.without, lowest=0.0, further=0),
            over_chance=agreement_estimate(over_chance.value, over_chance.without, further=0),
            epsilon=shares.epsilon,
        )
        return comparison, in_order

    def _order_of(self, values: Floats) -> _OrderedPairs:
        """Return the shares of pairs in order by instruction, for each threshold of ties.

        Args:
            values: the number of each response, [m].
        """
        by_column = (values[self.first] - values[self.second]).round(_DIGITS)  # [p]
        by_label = (self.label[self.first] - self.label[self.second]).round(_DIGITS)  # [p]
        size = np.abs(by_column)
        group = self.group[self.first]  # [p]
        quantiles = np.quantile(size, np.linspace(0, 1, _THRESHOLDS), method="inverted_cdf")
        thresholds = np.unique(np.append(0.0, quantiles))  # [T]
        is_tie = by_label == 0
        has_same_sign = np.sign(by_column) == np.sign(by_label)
        tie = is_tie.astype(np.float64)  # [p]: whether the pair is in order as a tie
        ordered = (has_same_sign & ~is_tie).astype(np.float64)  # [p]: whether it is in order otherwise
        # A pair is a tie from the first threshold on that its difference does not exceed.
        first_tied = np.searchsorted(thresholds, size)
        shape = (self.instructions, len(thresholds))
        changes_in_order = np.zeros(shape)  # the change of the number of pairs in order at each threshold
        changes_in_order[:, 0] = np.bincount(group, ordered)
        np.add.at(changes_in_order, (group, first_tied), tie - ordered)
        changes_equal = np.zeros(shape)  # the change of the number of ties
        np.add.at(changes_equal, (group, first_tied), 1.0)
        pairs = np.bincount(group)[:, None]  # [G, 1]
        in_order = changes_in_order.cumsum(axis=1) / pairs  # [G, T]
        equal = changes_equal.cumsum(axis=1) / pairs  # [G, T]
        # In a random order, a pair gets any two of its instruction's numbers, and either of them first.
        labels_equal = np.bincount(group, tie)[:, None] / pairs
        chance = labels_equal * equal + (1 - labels_equal) * (1 - equal) / 2
        weights = np.bincount(self.group, self.weight) / np.bincount(self.group)  # [G]
        return _OrderedPairs.from_instructions(thresholds, in_order, chance=chance, weight=weights)


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
    responses = LabelledResponses.from_labels(marks, group, response=response)
    if responses is None:
        return None
    comparisons = {}
    shares = {}  # the share in order of each column, also without each part of the instructions
    for name, column in columns.items():
        comparisons[name], shares[name] = responses.compare(column, seed)
    of_equal, equal = responses.compare(np.zeros(len(group)), seed)
    comparisons["equal"] = WithinComparison(of_equal.in_order, over_chance=UNDEFINED, epsilon=None)
    shares["equal"] = equal
    # All pairs with equal labels are in order for equal scores, and half of all other pairs for random ones.
    random = of_equal.in_order.decreasing(lambda share: (1 - share) / 2)
    comparisons["random"] = WithinComparison(random, over_chance=UNDEFINED, epsilon=None)
    shares["random"] = LeftOut((1 - equal.value) / 2, (1 - equal.without) / 2)
    judge = shares["expected"] if "expected" in shares else shares["integer"]
    over_baselines = {}
    for name, share in shares.items():
        if name not in JUDGED:
            over_baselines[name] = judge.minus(share).difference()
    return WithinInstructions(
        instructions=responses.instructions,
        pairs=len(responses.first),
        comparisons=comparisons,
        over_baselines=over_baselines,
    )


@dataclass(frozen=True, slots=True)
class _SharesInOrder:
    """The share of pairs in order, how much it is over chance, and the threshold that is best for all."""

    in_order: LeftOut
    over_chance: LeftOut
    epsilon: float


@dataclass(frozen=True, slots=True)
class _OrderedPairs:
    """The pairs in order for each of T thresholds, in P parts of the instructions.

    Attributes:
        thresholds: the thresholds, ascending, [T].
        in_order: the sum of the instructions' shares of pairs in order, each with its weight, [P, T].
        over_chance: the sum of these shares minus the expected shares of a random order, [P, T].
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
        part = np.arange(len(weight)) % PARTS  # [G]
        shape = (min(len(weight), PARTS), len(thresholds))
        sums_in_order = np.zeros(shape)
        np.add.at(sums_in_order, part, in_order * weight[:, None])
        sums_over_chance = np.zeros(shape)
        np.add.at(sums_over_chance, part, (in_order - chance) * weight[:, None])
        return cls(
            thresholds,
            in_order=sums_in_order,
            over_chance=sums_over_chance,
            weight=np.bincount(part, weight).astype(np.float64),
        )

    def shares(self, seed: int) -> _SharesInOrder:
        """Return the shares, with all thresholds learned again without each part.

        Args:
            seed: seed of the folds.
        """
        total = self.weight.sum()
        total_without = total - self.weight  # [P]
        seen = self._seen()
        unseen, unseen_over_chance = self._unseen(seed)
        # The mean of both is nearly unbiased. A rounding error must not put a share of 1 above 1.
        in_order = (seen.value + unseen.value) / 2 / total
        in_order_without = (seen.without + unseen.without) / 2 / total_without
        over_chance = unseen_over_chance.value / total
        over_chance_without = unseen_over_chance.without / total_without
        best = _best(self.in_order.sum(axis=0))
        return _SharesInOrder(
            in_order=LeftOut(float(np.round(in_order, _DIGITS)), in_order_without.round(_DIGITS)),
            over_chance=LeftOut(float(over_chance), over_chance_without),
            epsilon=float(self.thresholds[best]),
        )

    def _seen(self) -> LeftOut:
        """Return the sum of the shares in order with the threshold that is learned on the same instructions."""
        curve = self.in_order.sum(axis=0)  # [T]
        curve_without = curve - self.in_order  # [P, T]
        best = _best(curve)
        best_without = _best(curve_without)  # [P]
        without = np.take_along_axis(curve_without, best_without[:, None], axis=1)  # [P, 1]
        return LeftOut(curve[best], without[:, 0])

    def _unseen(self, seed: int) -> tuple[LeftOut, LeftOut]:
        """Return the sums of the shares in order, and over chance, with thresholds that other parts give.

        The threshold of a part is the best one, the smallest of several, for parts of other folds; the folds
        are drawn several times. `seed` is the seed of the folds.
        """
        parts = len(self.weight)
        curves = np.stack([self.in_order, self.over_chance])  # [2, P, T]
        sums = np.zeros(2)
        sums_without = np.zeros((2, parts))
        generator = np.random.default_rng(seed)
        for _ in range(_DRAWS):
            fold = generator.permutation(parts) % _FOLDS  # [P]
            for number in range(min(_FOLDS, parts)):
                inside = fold == number
                outside = ~inside
                curves_outside = self.in_order[outside]  # [parts outside, T]
                curve_outside = curves_outside.sum(axis=0)  # [T]
                curves_of_fold = curves[:, inside].sum(axis=1)  # [2, T]
                learned = _best(curve_outside)
                sums += curves_of_fold[:, learned] / _DRAWS
                # Without a part of the fold, the threshold is the same.
                of_part = curves[:, inside, learned]  # [2, parts inside]
                sums_without[:, inside] += (curves_of_fold[:, [learned]] - of_part) / _DRAWS
                # Without another part, it is learned again.
                learned_without = _best(curve_outside - curves_outside)  # [parts outside]
                sums_without[:, outside] += curves_of_fold[:, learned_without] / _DRAWS
        in_order = LeftOut(sums[0], sums_without[0])
        over_chance = LeftOut(sums[1], sums_without[1])
        return in_order, over_chance


def _best(in_order: Floats) -> Integers:
    """Return the index of the largest number, the first of several, in the last axis."""
    indices: Integers = in_order.round(_DIGITS).argmax(axis=-1)
    return indices
