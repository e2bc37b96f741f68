"""The systems ranked in one column of scores: their means, and the comparison of each two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.statistics import UNDEFINED, Estimate, sign_test
from localjudge.statistics.equal_length import means_at_equal_length
from localjudge.statistics.prediction_powered import LabelledRows
from localjudge.statistics.resampling import studentise
from localjudge.statistics.system_means import (
    SystemRows,
    column_means,
    connected_systems,
    instruction_means,
    means_on_same_instructions,
)
from localjudge.statistics.system_order import NO_DIFFERENCE, SystemOrder

NO_COMMON_INSTRUCTION = "no instruction has both"
TOO_FEW_LABELS = "too few common instructions have labels"


@dataclass(frozen=True, slots=True)
class Pair:
    """The comparison of two systems on the instructions that both answered.

    `difference` is the mean of `first` minus the mean of `second` on these instructions, and `p` its p-value.
    The interval and `p` are adjusted for all pairs of the column: the interval excludes 0 exactly if `p` is
    below 0.05. With labels, they refer to the prediction-powered means. `wins`, `losses` and `ties` are numbers
    of instructions, by the judge's scores; a difference within the rounding error is a tie. `sign_p` is the
    p-value of the exact sign test of `wins` and `losses`, times the number of pairs (Bonferroni); None
    with `p`, with labels, and for scores that have no intervals.
    """

    first: str
    second: str
    column: str
    instructions: int
    difference: Estimate
    p: float | None
    wins: int
    losses: int
    ties: int
    sign_p: float | None

    def turned(self) -> Pair:
        """Return the same comparison with the systems in the other order."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            difference=self.difference.negative(),
            wins=self.losses,
            losses=self.wins,
        )


class RankedColumn:
    """The statistics of all systems in one column: an aspect, the share of a label, or the overall mean.

    Args:
        rows: the rows of all systems.
        name: the name of the column.
        values: the score of each row, [rows].
        ends: the lowest and the highest score.
        characters: the length of each row's candidate, [rows]; None if the effect of length is not wanted.
        human: the labels of some rows; None without any.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
        untested: why the scores have no intervals; empty if they have.

    Attributes:
        means: the mean of each system.
        held: the mean of each system on the same instructions, by the additive model.
        length_held: the mean of each system at the same length.
        human: the mean human score of each system; undefined without labels.
        level: the numbers that order the systems, [systems]; NaN if unknown.
        component: the number of each system's component, [systems]; systems of several are not comparable.
        pairs: the comparison of each two systems.
        order: which systems are significantly better.
    """

    def __init__(
        self,
        rows: SystemRows,
        name: str,
        values: Floats,
        ends: tuple[int, int],
        characters: Floats | None,
        human: LabelledRows | None,
        resamples: int,
        seed: int,
        untested: str = "",
    ) -> None:
        self.name = name
        lowest, highest = ends
        reach = highest - lowest
        judge_resamples = 0 if untested else resamples

        cells = instruction_means(rows, values)  # [groups, systems]
        on_same = means_on_same_instructions(cells)
        self.means = studentise(
            column_means(cells), lowest=lowest, highest=highest, resamples=judge_resamples, seed=seed
        ).estimates()
        self.held = studentise(
            on_same, lowest=lowest, highest=highest, resamples=judge_resamples, seed=seed
        ).estimates()
        self.component = connected_systems(cells)
        self.length_held = means_at_equal_length(
            rows, values, ends=ends, characters=characters, resamples=judge_resamples, seed=seed
        )

        first, second = _pairs(len(rows.systems))
        between = cells[:, first] - cells[:, second]  # [groups, pairs]
        if human is None:
            pair_resamples = judge_resamples
            differences = column_means(between)
            self.human = [UNDEFINED] * len(rows.systems)
            self.level = on_same.value
        else:
            pair_resamples = resamples
            human_means = human.means(rows, values)
            self.human = studentise(
                human_means, lowest=lowest, highest=highest, resamples=resamples, seed=seed
            ).estimates()
            answered = np.isfinite(cells)
            if answered[answered.any(axis=1)].all():
                differences = human_means.contrast(first, second)
                self.level = human_means.value
            else:
                differences = human.differences(rows, values, answered=answered)
                self.level = _levels(differences.value, first, second=second, answered=answered)

        tested = studentise(
            differences, lowest=-reach, highest=reach, symmetric=True, resamples=pair_resamples, seed=seed
        )
        estimates = tested.simultaneous(-reach, reach).estimates()
        p_values = tested.adjusted()  # [pairs]
        self.pairs = self._compared(
            rows,
            first,
            second=second,
            between=between,
            estimates=estimates,
            p_values=p_values,
            has_sign_test=human is None and not untested,
        )
        lacking = NO_COMMON_INSTRUCTION if human is None else TOO_FEW_LABELS
        self.order = SystemOrder(
            rows.systems,
            first,
            second=second,
            difference=differences.value,
            p=p_values,
            detectable=tested.detectable(),
            why=[_why_untested(estimate, untested=untested, lacking=lacking) for estimate in estimates],
        )

    def _compared(
        self,
        rows: SystemRows,
        first: Integers,
        second: Integers,
        between: Floats,
        estimates: list[Estimate],
        p_values: Floats,
        has_sign_test: bool,
    ) -> list[Pair]:
        """Return the comparison of each pair of systems.

        Args:
            rows: the rows of all systems.
            first: the first system of each pair, [pairs].
            second: the second system of each pair, [pairs].
            between: the difference of each pair on each instruction, [groups, pairs].
            estimates: the difference of each pair, [pairs].
            p_values: its p-value, [pairs]; NaN if it has none.
            has_sign_test: whether pairs without a p-value have a sign test.
        """
        wins = (between > NO_DIFFERENCE).sum(axis=0).tolist()  # [pairs]
        losses = (between < -NO_DIFFERENCE).sum(axis=0).tolist()  # [pairs]
        common = np.isfinite(between).sum(axis=0).tolist()  # [pairs]
        pairs = []
        for number, difference in enumerate(estimates):
            is_tested = bool(np.isfinite(p_values[number]))
            sign_p = None
            if has_sign_test and common[number] and not is_tested:
                sign_p = min(1.0, len(estimates) * sign_test(wins[number], losses[number]))
            pairs.append(
                Pair(
                    first=rows.systems[first[number]],
                    second=rows.systems[second[number]],
                    column=self.name,
                    instructions=common[number],
                    difference=difference,
                    p=float(p_values[number]) if is_tested else None,
                    wins=wins[number],
                    losses=losses[number],
                    ties=common[number] - wins[number] - losses[number],
                    sign_p=sign_p,
                )
            )
        return pairs


def _pairs(systems: int) -> tuple[Integers, Integers]:
    """Return the first and the second system of each pair of systems, [pairs] each."""
    pairs = np.array(list(combinations(range(systems), 2)), dtype=np.int32).reshape(-1, 2)
    first, second = pairs.T
    return first, second


def _why_untested(estimate: Estimate, untested: str, lacking: str) -> str:
    """Return why a difference has no interval; empty if it has one.

    Args:
        estimate: the difference.
        untested: why the scores have no intervals; empty if they have.
        lacking: why the difference is undefined, if it is.
    """
    if untested:
        return untested
    if estimate.value is None:
        return lacking
    return estimate.why


def _levels(difference: Floats, first: Integers, second: Integers, answered: Flags) -> Floats:
    """Return the levels whose differences are nearest to those of the pairs, [systems]; NaN if unknown.

    Each pair has the weight of its common instructions (weighted least squares).

    Args:
        difference: the first system's advantage, [pairs]; NaN if it is not known.
        first: the first system of each pair, [pairs].
        second: the second system of each pair, [pairs].
        answered: whether each system answered each instruction, [groups, systems].
    """
    systems = np.arange(answered.shape[1])
    is_first = first[:, None] == systems  # [pairs, systems]
    is_second = second[:, None] == systems  # [pairs, systems]
    design = is_first.astype(np.float64) - is_second
    common = (answered[:, first] & answered[:, second]).sum(axis=0)
    weights = common * np.isfinite(difference)  # [pairs]
    information = design.T @ (design * weights[:, None])  # [systems, systems]
    inverse = np.linalg.pinv(information, hermitian=True)
    levels = inverse @ design.T @ (weights * np.nan_to_num(difference))
    is_known = np.abs(design).T @ weights > 0
    return np.where(is_known, levels, np.nan)
