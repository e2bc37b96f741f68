"""The order of systems by two judges, or by people and a judge: which pairs both put in the same order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from localjudge.arrays import Floats, Integers
from localjudge.matching.system_names import UNNAMED
from localjudge.statistics import Estimate
from localjudge.statistics.resampling import cell_means, studentise
from localjudge.statistics.system_means import column_means
from localjudge.statistics.system_order import SIGNIFICANCE_LEVEL
from localjudge.studies.compare.matched_runs import MatchedRuns


@dataclass(frozen=True, slots=True)
class ContraryPair:
    """Two systems that the judges put in opposite order: the difference of their means by each judge."""

    first: str
    second: str
    old: Estimate
    new: Estimate


@dataclass(frozen=True, slots=True)
class OrderOfSystems:
    """The pairs of systems in one column, by what the tests of both judges say.

    An order counts if the difference of the two means is significant, with p-values that are adjusted for all
    pairs and columns. So at most 5 % of comparisons of judges with the same true order have a contrary pair.

    Attributes:
        alike: number of pairs that both judges order alike.
        undecided: number of pairs without a significant difference by one judge or both.
        contrary: the pairs that the judges put in opposite order.
    """

    alike: int
    undecided: int
    contrary: tuple[ContraryPair, ...]


@dataclass(frozen=True, slots=True)
class ComparedSystems:
    """The S systems of n rows.

    Attributes:
        names: the names of the systems, [S].
        index: the index of each row's system in them, [n].
        can_be_ordered: whether they are several systems of single responses.
    """

    names: Sequence[str]
    index: Integers
    can_be_ordered: bool

    @classmethod
    def of_rows(cls, matched: MatchedRuns, rows: Integers) -> ComparedSystems:
        """Return the systems of these rows."""
        systems_of_rows = [matched.rows.identities[row].systems for row in rows.tolist()]
        distinct = sorted(set(systems_of_rows), key=str)
        return cls(
            names=[systems[0] or UNNAMED for systems in distinct],
            index=np.array([distinct.index(systems) for systems in systems_of_rows]),
            can_be_ordered=len(distinct) > 1 and len(distinct[0]) == 1,
        )

    def means(self, values: Floats, group: Integers) -> Floats:
        """Return the mean of each column of each system on each instruction, [instructions, S, C].

        Args:
            values: the columns, [n, C].
            group: the instruction of each row, [n].
        """
        instructions, instruction = np.unique(group, return_inverse=True)
        count = len(self.names)
        means = cell_means(values, instruction * count + self.index, cells=len(instructions) * count)
        return means.reshape(len(instructions), count, -1)


def orders_of_systems(
    old_means: Floats,
    new_means: Floats,
    names: Sequence[str],
    *,
    widths: Mapping[str, float],
    resamples: int,
    seed: int,
) -> dict[str, OrderOfSystems]:
    """Return the order of the systems in each column by two judges.

    Args:
        old_means: the means of each system on each instruction by the first judge, [instructions, S, C].
        new_means: the same by the second judge.
        names: the names of the systems, [S].
        widths: the width of the scale of each column, [C].
        resamples: number of resamples for the tests.
        seed: seed of the resamples.
    """
    first, second = np.array(list(combinations(range(len(names)), 2))).T  # [pairs]
    pairs = len(first)
    reach = np.repeat(list(widths.values()), pairs)
    old = _tested_differences(old_means, first, second=second, reach=reach, resamples=resamples, seed=seed)
    new = _tested_differences(new_means, first, second=second, reach=reach, resamples=resamples, seed=seed)
    agreement = (old.sign * new.sign).reshape(-1, pairs)
    orders: dict[str, OrderOfSystems] = {}
    for index, (column, of_pairs) in enumerate(zip(widths, agreement, strict=True)):
        contrary = []
        for pair in np.flatnonzero(of_pairs < 0).tolist():
            difference = index * pairs + pair
            contrary.append(
                ContraryPair(
                    first=names[first[pair]],
                    second=names[second[pair]],
                    old=old.estimates[difference],
                    new=new.estimates[difference],
                )
            )
        alike = int((of_pairs > 0).sum())
        orders[column] = OrderOfSystems(
            alike=alike, undecided=pairs - alike - len(contrary), contrary=tuple(contrary)
        )
    return orders


@dataclass(frozen=True, slots=True)
class _TestedDifferences:
    """The differences of all pairs of systems in all columns by one judge, [C times pairs].

    Attributes:
        sign: 1 if the first system is significantly better, -1 if the second is, else 0.
        estimates: the differences.
    """

    sign: Floats
    estimates: list[Estimate]


def _tested_differences(
    means: Floats, first: Integers, second: Integers, *, reach: Floats, resamples: int, seed: int
) -> _TestedDifferences:
    """Return the differences of all pairs of systems by one judge.

    Args:
        means: the means of each system on each instruction, [instructions, S, C].
        first: the first system of each pair, [pairs].
        second: the second system of each pair, [pairs].
        reach: the largest possible difference, [C times pairs].
        resamples: number of resamples for the tests.
        seed: seed of the resamples.
    """
    by_column = means.transpose(0, 2, 1)  # [instructions, C, S]
    differences = (by_column[:, :, first] - by_column[:, :, second]).reshape(len(means), -1)
    tested = studentise(
        column_means(differences), -reach, highest=reach, symmetric=True, resamples=resamples, seed=seed
    )
    is_significant = tested.adjusted() < SIGNIFICANCE_LEVEL
    return _TestedDifferences(
        sign=np.where(is_significant, np.sign(tested.value), 0.0),
        estimates=tested.simultaneous(-reach, reach).estimates(),
    )
