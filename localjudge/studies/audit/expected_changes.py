"""Whether the scores of perturbed rows changed as it is expected of a sound judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from localjudge.arrays import Flags, Floats
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.studies.audit.perturbations import Direction

NO_PREFERENCE = 1 / 2
"""The preference between two responses if none is better."""
_NO_CHANGE = 1 / 16
"""Largest change that counts as no change, as a share of the scale's range: 0.25 on a scale from 1 to 5."""
_SMALLEST_CHANGE = 1 / 100
"""Smallest change that counts as lower or higher, as a share of the scale's range: 0.04 from 1 to 5."""
_NEAR_THE_TOP = 1 / 4
"""Largest distance of a high score from the highest one, as a share of the scale's range."""


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """n changes of the scores in a column.

    Attributes:
        before: the scores without the perturbation, [n].
        after: the scores with it, [n].
        orders_agree: of pairs, whether both orders of the perturbed pair say the same, [n].
    """

    before: Floats
    after: Floats
    orders_agree: Flags


@dataclass(frozen=True, slots=True)
class ScoreChanges:
    """n changes of the scores in A columns; the arrays are those of `ColumnChanges`, [n, A]."""

    before: Floats
    after: Floats
    orders_agree: Flags

    def column(self, index: int) -> ColumnChanges:
        """Return the changes in a column."""
        return ColumnChanges(self.before[:, index], self.after[:, index], self.orders_agree[:, index])

    def from_no_preference(self, indexes: Sequence[int]) -> ScoreChanges:
        """Return the changes, those in some columns from one half: such scores are not compared with others."""
        before = self.before.copy()
        before[:, indexes] = NO_PREFERENCE
        return replace(self, before=before)


@dataclass(frozen=True, slots=True)
class ChangeTest:
    """Whether n scores changed as expected.

    Attributes:
        has_room: whether the score could change in this way, [n].
        is_expected: whether it did, [n].
    """

    has_room: Flags
    is_expected: Flags

    @property
    def tested(self) -> Flags:
        """Whether each score that had room changed as expected."""
        return self.is_expected[self.has_room]


def change_test(direction: Direction, column: ScoreColumn, changes: ColumnChanges) -> ChangeTest:
    """Return whether scores had room to change as expected, and did.

    Whether a score had room depends in the same way on the score before and after. A choice by one of them
    would count noise as a change: of scores that are low by chance, most are higher when judged again.
    """
    after = changes.after
    shift = after - changes.before
    smaller = np.minimum(changes.before, after)
    larger = np.maximum(changes.before, after)
    width = column.highest - column.lowest
    no_change = _NO_CHANGE * width
    smallest_change = _SMALLEST_CHANGE * width
    everywhere = np.ones(len(after), dtype=np.bool_)

    if direction == "lower":
        return ChangeTest(
            has_room=larger > column.lowest + no_change,
            is_expected=shift < -smallest_change,
        )
    if direction == "higher":
        # A candidate that is worse than its reference must score higher after the swap.
        return ChangeTest(
            has_room=smaller <= (column.lowest + column.highest) / 2,
            is_expected=shift > smallest_change,
        )
    if direction == "not higher":
        return ChangeTest(
            has_room=smaller < column.highest - no_change,
            is_expected=shift <= no_change,
        )
    if direction == "loses":
        return ChangeTest(everywhere, after < NO_PREFERENCE - _SMALLEST_CHANGE)
    if direction == "orders agree":
        return ChangeTest(everywhere, changes.orders_agree)
    if direction == "no place wins":
        has_no_preference = np.abs(after - NO_PREFERENCE) <= _NO_CHANGE
        return ChangeTest(everywhere, has_no_preference | changes.orders_agree)
    if direction == "same":
        return ChangeTest(everywhere, np.abs(shift) <= no_change)
    if direction == "near the top":
        return ChangeTest(everywhere, after >= column.highest - _NEAR_THE_TOP * width)
    return ChangeTest(~everywhere, everywhere)
