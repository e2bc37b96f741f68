"""The conditions of a gate: what is asked of every system, what was measured, and whether it holds.

Each condition must hold for each system, so none is adjusted for their number. Four are tested, so that too few
rows cannot pass:

- `margin`: a one-sided 95 % bound (`localjudge.statistics.non_inferiority`) excludes that the mean fell by the
  margin or more.
- `improve`: the mean rose by the one-sided sign-flip test (`localjudge.statistics.sign_flip`).
- `max_failed`, `max_fell`: a one-sided 95 % bound (`localjudge.statistics.exact_shares.share_below`) excludes
  that the share of rows without a score, or of these and of the rows that fell far, is as large as asked. A
  mean can hide that a few rows collapsed.

Two are plain thresholds, without confidence: `min` for a mean, `max_mean_drop` for its change.

A row that has no score is lost. It counts as its lowest score; a plain threshold fails on it, unless
`max_failed` says how many may be lost. All are monotone: a condition that failed does not pass when a row is
lost, fails or scores lower.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.errors import UsageError
from localjudge.statistics.exact_shares import fewest_to_exclude, kish_number, share_below
from localjudge.statistics.non_inferiority import (
    chance_to_pass,
    fewest_to_pass,
    instructions_to_pass,
    lower_bound,
)
from localjudge.statistics.resampling import MIN_INSTRUCTIONS, averages
from localjudge.statistics.sign_flip import fewest_to_rise, rise_p
from localjudge.statistics.system_order import NO_DIFFERENCE

RISE_LEVEL = 0.025
"""The largest one-sided p-value of a rise."""


class Kind(StrEnum):
    """What a condition asks, by the name of its setting."""

    MARGIN = "margin"
    IMPROVE = "improve"
    MAX_FELL = "max_fell"
    MAX_FAILED = "max_failed"
    MIN = "min"
    MAX_MEAN_DROP = "max_mean_drop"

    @property
    def is_share(self) -> bool:
        """Whether it asks for a share of the rows."""
        return self in (Kind.MAX_FELL, Kind.MAX_FAILED)

    @property
    def is_plain(self) -> bool:
        """Whether it compares a mean with a number, without confidence."""
        return self in (Kind.MIN, Kind.MAX_MEAN_DROP)


@dataclass(frozen=True, slots=True)
class Threshold:
    """What a gate asks of every system.

    Attributes:
        kind: what is asked.
        column: the column; empty for `max_failed`.
        limit: the drop or the share that is too much, or the mean that is asked for; None for `improve`.
    """

    kind: Kind
    column: str = ""
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a gate for one system, and whether it holds.

    Attributes:
        kind: what it asks.
        column: the column; empty for `max_failed`.
        system: the system; of pairs, whose preference it is.
        limit: as in `Threshold`.
        passes: whether it holds.
        change: what decides: the mean change, the share, or for `min` the mean of NEW. Lost rows count as their
            lowest score; None if a plain threshold fails because rows are lost.
        measured: the same for the rows with a score in both runs; None without any, and for a share.
        instructions: number of instructions.
        rows: number of rows of OLD with a score.
        lost: number of those that have no score in NEW.
        bound: the end of the one-sided 95 % interval; None for fewer than five instructions, and without one.
        p: the p-value of a rise.
        half_width: half the width of the two-sided 95 % interval of Student's t, for a plain threshold.
        room: how far it is from failing: the larger, the better; None if nothing could be computed.
        fall: the fall of a row that counts for `max_fell`.
        held: number of rows that fell or were lost, for a share.
        weight: Kish's effective number of instructions, for a share.
        fewest: the smallest number of instructions that can pass; those of a share have equal numbers of rows.
        chance: the probability that a margin passes with a true change of 0 and such a variance; None if a row
            is lost.
        needed: number of instructions with which that is 80 %; None as well for more than 10,000,000.
    """

    kind: Kind
    column: str
    system: str
    limit: float | None
    passes: bool
    change: float | None
    measured: float | None
    instructions: int
    rows: int
    lost: int
    bound: float | None = None
    p: float | None = None
    half_width: float | None = None
    room: float | None = None
    fall: float | None = None
    held: int | None = None
    weight: float | None = None
    fewest: int = 1
    chance: float | None = None
    needed: int | None = None

    @property
    def order(self) -> tuple[bool, float]:
        """The key that sorts conditions: those that fail first, and of these, those that fail by most."""
        return self.passes, -math.inf if self.room is None else self.room


@dataclass(frozen=True, slots=True)
class SystemRows:
    """The r rows of one system that conditions read.

    Attributes:
        system: the system.
        is_lost: whether a row has no score, [r].
        group: the number of the instruction of each row, [r].
    """

    system: str
    is_lost: Flags
    group: Integers

    @property
    def instructions(self) -> int:
        return len(np.unique(self.group))

    @property
    def lost(self) -> int:
        """Number of rows without a score."""
        return int(self.is_lost.sum())


def check_threshold(threshold: Threshold, ends: Mapping[str, tuple[float, float]]) -> None:
    """Check that the column of a threshold exists, and that its limit is possible.

    Args:
        threshold: what is asked.
        ends: the lowest and the highest value of each column.

    Raises:
        UsageError: there is no such column, or the limit is not possible.
    """
    kind, name, limit = threshold.kind, threshold.column, threshold.limit
    if name and name not in ends:
        raise UsageError(f"{name}: is not a column of these runs; give one of {', '.join(ends)}")
    if limit is None:
        return
    if kind.is_share and not 0 < limit < 1:
        option = f"`{kind}` {name}={limit:g}" if name else f"`{kind}` {limit:g}"
        raise UsageError(f"{option}: must be a share between 0 and 1, such as 0.05")
    if kind.is_share:
        return
    low, high = ends[name]
    if kind is Kind.MIN and not low <= limit <= high:
        raise UsageError(f"`{kind}` {name}={limit:g}: must be on the scale, {low:g} to {high:g}")
    if kind is not Kind.MIN and not 0 < limit < high - low:
        raise UsageError(f"`{kind}` {name}={limit:g}: must be above 0 and smaller than the scale")


def margin_condition(
    threshold: Threshold, rows: SystemRows, *, changes: Floats, measured: float, width: float
) -> Condition:
    """Return whether it is excluded that a mean fell by the margin.

    Args:
        threshold: what is asked.
        rows: the rows of the system.
        changes: the mean change on each instruction, where a lost row falls to its lowest score, [n].
        measured: the mean change of the rows that are not lost; NaN without any.
        width: the width of the scale.
    """
    if len(changes) < MIN_INSTRUCTIONS:
        return _too_few(threshold, rows, changes=changes, measured=measured)
    margin = threshold.limit or 0.0
    bound = float(lower_bound(changes, width))
    chance, needed = None, None
    if not rows.lost:
        variance = float(changes.var(ddof=1))
        chance = chance_to_pass(margin, variance, width, len(changes))
        needed = instructions_to_pass(margin, variance, width)
    return _condition(
        threshold,
        rows,
        passes=bound > -margin,
        change=float(changes.mean()),
        measured=_known(measured),
        bound=bound,
        room=bound + margin,
        fewest=fewest_to_pass(margin, width),
        chance=chance,
        needed=needed,
    )


def rise_condition(
    threshold: Threshold, rows: SystemRows, *, changes: Floats, measured: float, flips: int, seed: int
) -> Condition:
    """Return whether a mean rose.

    Args:
        threshold, rows, changes, measured: as for `margin_condition`.
        flips: number of flips of the test.
        seed: seed of the flips.
    """
    if len(changes) < MIN_INSTRUCTIONS:
        return _too_few(threshold, rows, changes=changes, measured=measured)
    p = float(rise_p(changes[:, None], flips, seed)[0])
    return _condition(
        threshold,
        rows,
        passes=bool(p <= RISE_LEVEL and changes.mean() > 0),
        change=float(changes.mean()),
        measured=_known(measured),
        p=p,
        room=RISE_LEVEL - p,
        fewest=fewest_to_rise(RISE_LEVEL),
    )


def share_condition(
    threshold: Threshold, rows: SystemRows, *, held: Flags, fall: float | None = None
) -> Condition:
    """Return whether it is excluded that something holds for as large a share of the rows.

    Args:
        threshold: what is asked.
        rows: the rows of the system.
        held: the rows for which it holds, [r].
        fall: the fall for which a row counts; None if only lost rows do.
    """
    most = threshold.limit or 0.0
    share, weight = float(held.mean()), kish_number(rows.group)
    is_enough = rows.instructions >= MIN_INSTRUCTIONS
    bound = share_below(share, weight) if is_enough else None
    return _condition(
        threshold,
        rows,
        passes=bound is not None and bound < most,
        change=share,
        measured=None,
        bound=bound,
        room=None if bound is None else most - bound,
        fall=fall,
        held=int(held.sum()),
        weight=weight,
        fewest=max(fewest_to_exclude(most), MIN_INSTRUCTIONS),
    )


def mean_condition(
    threshold: Threshold,
    rows: SystemRows,
    *,
    values: Floats,
    group: Integers,
    measured: float,
    least: float,
    may_lose: bool,
) -> Condition:
    """Return whether a mean is at least as large as asked; it is not if a row is lost, unless some may be.

    Args:
        threshold: what is asked.
        rows: the rows of the system.
        values: the values, all with the same weight; those of lost rows are the lowest, [m].
        group: the instruction of each value, [m].
        measured: the mean of the rows that are not lost; NaN without any.
        least: the smallest mean that passes.
        may_lose: whether lost rows count as the lowest score.
    """
    is_known = may_lose or not rows.lost
    mean = float(values.mean())
    return _condition(
        threshold,
        rows,
        passes=bool(is_known and mean >= least - NO_DIFFERENCE),
        change=mean if is_known else None,
        measured=_known(measured),
        half_width=half_width(values, group),
        room=mean - least if is_known else None,
    )


def half_width(values: Floats, group: Integers) -> float | None:
    """Return half the width of the 95 % interval of Student's t of a mean.

    It is None for fewer than five instructions.

    Args:
        values: the values, all with the same weight, [m].
        group: the instruction of each value, [m].
    """
    from scipy.special import stdtrit

    present, numbered = np.unique(group, return_inverse=True)
    count = len(present)
    if count < MIN_INSTRUCTIONS:
        return None
    [total] = (averages(values[:, None], numbered, count).shares ** 2).sum(axis=0)
    return float(stdtrit(count - 1, 0.975) * math.sqrt(total * count / (count - 1)))


def _too_few(threshold: Threshold, rows: SystemRows, *, changes: Floats, measured: float) -> Condition:
    """Return a condition on a mean that fails because fewer than five instructions say too little."""
    return _condition(
        threshold,
        rows,
        passes=False,
        change=float(changes.mean()),
        measured=_known(measured),
        fewest=MIN_INSTRUCTIONS,
    )


def _condition(
    threshold: Threshold, rows: SystemRows, *, passes: bool, change: float | None, **found: Any
) -> Condition:
    """Return a condition with what all have in common."""
    return Condition(
        kind=threshold.kind,
        column=threshold.column,
        system=rows.system,
        limit=threshold.limit,
        passes=passes,
        change=change,
        instructions=rows.instructions,
        rows=len(rows.is_lost),
        lost=rows.lost,
        **found,
    )


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
