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

    @property
    def setting(self) -> str:
        """The setting that asks for it, with its value, for a message."""
        value = "" if self.limit is None else f"{self.limit:g}"
        if self.column:
            return f"`{self.kind}` {self.column}={value}"
        return f"`{self.kind}` {value}"


@dataclass(frozen=True, slots=True)
class MarginEvidence:
    """What decides about a margin.

    Attributes:
        bound: the lower end of the one-sided 95 % interval of the mean change.
        chance: the probability to pass with a true change of 0 and such a variance; None if a row is lost.
        needed: number of instructions with which that is 80 %; None as well for more than 10,000,000.
    """

    bound: float
    chance: float | None
    needed: int | None


@dataclass(frozen=True, slots=True)
class RiseEvidence:
    """What decides about a rise: its one-sided p-value."""

    p: float


@dataclass(frozen=True, slots=True)
class ShareEvidence:
    """What decides about a share of the rows.

    Attributes:
        rows: number of rows that fell or were lost.
        bound: the upper end of the one-sided 95 % interval of their share; None for fewer than five
            instructions.
        weight: Kish's effective number of instructions.
        fall: the fall of a row that counts; None if only lost rows do.
    """

    rows: int
    bound: float | None
    weight: float
    fall: float | None


@dataclass(frozen=True, slots=True)
class PlainEvidence:
    """What stands beside a mean without confidence: half the width of its 95 % interval of Student's t.

    It is None for fewer than five instructions.
    """

    half_width: float | None


Evidence = MarginEvidence | RiseEvidence | ShareEvidence | PlainEvidence


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a gate for one system, and whether it holds.

    Attributes:
        threshold: what is asked.
        system: the system; of pairs, the name of the preference.
        passes: whether it holds.
        change: what decides: the mean change, the share, or for `min` the mean of NEW. Lost rows count as their
            lowest score; None if a plain threshold fails because rows are lost.
        measured: the same for the rows with a score in both runs; None without any, and for a share.
        instructions: number of instructions.
        rows: number of rows of OLD with a score.
        lost: number of those that have no score in NEW.
        evidence: what was computed from them; None if fewer than five instructions say too little.
        room: how far it is from failing: the larger, the better; None if nothing could be computed.
        fewest: the smallest number of instructions that can pass; those of a share have equal numbers of rows.
    """

    threshold: Threshold
    system: str
    passes: bool
    change: float | None
    measured: float | None
    instructions: int
    rows: int
    lost: int
    evidence: Evidence | None
    room: float | None
    fewest: int

    @property
    def order(self) -> tuple[bool, float]:
        """The key that sorts conditions: those that fail first, and of these, those that fail by most."""
        if self.room is None:
            return self.passes, -math.inf
        return self.passes, self.room


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
    column = threshold.column
    limit = threshold.limit
    if column and column not in ends:
        raise UsageError(f"{column}: is not a column of these runs; give one of {', '.join(ends)}")
    if limit is None:
        return
    if threshold.kind.is_share:
        if not 0 < limit < 1:
            raise UsageError(f"{threshold.setting}: must be a share between 0 and 1, such as 0.05")
        return
    low, high = ends[column]
    if threshold.kind is Kind.MIN:
        if not low <= limit <= high:
            raise UsageError(f"{threshold.setting}: must be on the scale, {low:g} to {high:g}")
        return
    if not 0 < limit < high - low:
        raise UsageError(f"{threshold.setting}: must be above 0 and smaller than the scale")


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
    chance = None
    needed = None
    if not rows.lost:
        variance = float(changes.var(ddof=1))
        chance = chance_to_pass(margin, variance, width=width, instructions=len(changes))
        needed = instructions_to_pass(margin, variance, width=width)
    return _condition(
        threshold,
        rows,
        passes=bound > -margin,
        change=float(changes.mean()),
        measured=measured,
        evidence=MarginEvidence(bound, chance=chance, needed=needed),
        room=bound + margin,
        fewest=fewest_to_pass(margin, width),
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
    p = float(rise_p(changes[:, None], flips, seed=seed)[0])
    mean = float(changes.mean())
    return _condition(
        threshold,
        rows,
        passes=p <= RISE_LEVEL and mean > 0,
        change=mean,
        measured=measured,
        evidence=RiseEvidence(p),
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
    limit = threshold.limit or 0.0
    share = float(held.mean())
    weight = kish_number(rows.group)
    bound = None
    room = None
    if rows.instructions >= MIN_INSTRUCTIONS:
        bound = share_below(share, weight)
        room = limit - bound
    return _condition(
        threshold,
        rows,
        passes=bound is not None and bound < limit,
        change=share,
        measured=math.nan,
        evidence=ShareEvidence(int(held.sum()), bound=bound, weight=weight, fall=fall),
        room=room,
        fewest=max(fewest_to_exclude(limit), MIN_INSTRUCTIONS),
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
    is_counted = may_lose or not rows.lost
    mean = float(values.mean())
    return _condition(
        threshold,
        rows,
        passes=is_counted and mean >= least - NO_DIFFERENCE,
        change=mean if is_counted else None,
        measured=measured,
        evidence=PlainEvidence(half_width(values, group)),
        room=mean - least if is_counted else None,
        fewest=1,
    )


def half_width(values: Floats, group: Integers) -> float | None:
    """Return half the width of the 95 % interval of Student's t of a mean.

    It is None for fewer than five instructions.

    Args:
        values: the values, all with the same weight, [m].
        group: the instruction of each value, [m].
    """
    from scipy.special import stdtrit

    instructions, index = np.unique(group, return_inverse=True)
    count = len(instructions)
    if count < MIN_INSTRUCTIONS:
        return None
    shares = averages(values[:, None], index, groups=count).shares
    variance = float((shares**2).sum(axis=0)[0]) * count / (count - 1)
    return float(stdtrit(count - 1, 0.975) * math.sqrt(variance))


def _too_few(threshold: Threshold, rows: SystemRows, *, changes: Floats, measured: float) -> Condition:
    """Return a condition on a mean that fails because fewer than five instructions say too little."""
    return _condition(
        threshold,
        rows,
        passes=False,
        change=float(changes.mean()),
        measured=measured,
        evidence=None,
        room=None,
        fewest=MIN_INSTRUCTIONS,
    )


def _condition(
    threshold: Threshold,
    rows: SystemRows,
    *,
    passes: bool,
    change: float | None,
    measured: float,
    evidence: Evidence | None,
    room: float | None,
    fewest: int,
) -> Condition:
    """Return a condition with the numbers of rows of its system; a measured NaN is None."""
    return Condition(
        threshold=threshold,
        system=rows.system,
        passes=passes,
        change=change,
        measured=measured if math.isfinite(measured) else None,
        instructions=rows.instructions,
        rows=len(rows.is_lost),
        lost=rows.lost,
        evidence=evidence,
        room=room,
        fewest=fewest,
    )
