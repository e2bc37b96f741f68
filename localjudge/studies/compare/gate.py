"""A gate: whether a run passes, so that a change can go on in continuous integration.

Each condition must hold for each system, so none is adjusted for their number. Four are tested, so that too few
rows cannot pass:

- `margin`: a one-sided 95 % bound (`localjudge.statistics.non_inferiority`) excludes that the mean fell by the
  margin or more.
- `improve`: the mean rose by the one-sided sign-flip test (`localjudge.statistics.sign_flip`).
- `max_failed`, `max_fell`: a one-sided 95 % bound (`localjudge.statistics.jackknife.share_below`) excludes that
  the share of rows without a score, or of these and of the rows that fell far, is as large as asked. A mean can
  hide that a few rows collapsed.

Two are plain thresholds, without confidence: `min` for the mean of NEW, `max_mean_drop` for its change.

A row of OLD that has a score, but none in NEW, is lost. It counts as its lowest score; a plain threshold fails
on it, unless `max_failed` says how many may be lost. All are monotone: a condition that failed does not pass
when a row of NEW is lost, fails or scores lower.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.errors import UsageError
from localjudge.runs.notices import is_dry_run
from localjudge.runs.reader import is_complete
from localjudge.statistics.jackknife import fewest_to_exclude, kish_number, share_below
from localjudge.statistics.non_inferiority import (
    chance_to_pass,
    fewest_to_pass,
    instructions_to_pass,
    lower_bound,
)
from localjudge.statistics.resampling import MIN_INSTRUCTIONS, RESAMPLES
from localjudge.statistics.sign_flip import fewest_to_rise, rise_p
from localjudge.statistics.system_order import NO_DIFFERENCE
from localjudge.studies.compare.compared_rows import ComparedRows
from localjudge.studies.compare.matched_runs import MatchedRuns, by_instruction
from localjudge.system.quantities import counted

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

    def as_dict(self) -> dict[str, Any]:
        """Return the condition for programs."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SystemRows:
    """The r rows of one system that a condition reads, and their n instructions.

    Attributes:
        system: the system.
        change: the mean change on each instruction, where a lost row falls to its lowest score, [n, C].
        score: the mean in NEW on each instruction, where a lost row has its lowest score, [n, C].
        measured_change: the mean change of the rows with a score in both runs, [C]; NaN without any.
        measured_score: their mean in NEW, [C].
        row_change: the change of each row, [r, C].
        is_lost: whether a row has no score in NEW, [r].
        group: the instruction of each row, [r].
    """

    system: str
    change: Floats
    score: Floats
    measured_change: Floats
    measured_score: Floats
    row_change: Floats
    is_lost: Flags
    group: Integers

    @property
    def instructions(self) -> int:
        return len(self.change)

    @property
    def lost(self) -> int:
        """Number of rows without a score in NEW."""
        return int(self.is_lost.sum())


def check_gate(
    matched: MatchedRuns, thresholds: Sequence[Threshold], flips: int = RESAMPLES, seed: int = 0
) -> tuple[Condition, ...]:
    """Return the conditions of a gate, each for every system.

    Args:
        matched: the rows of both runs.
        thresholds: what is asked.
        flips: number of flips of the test of a rise.
        seed: seed of the flips.

    Raises:
        UsageError: there is no such column, a limit is not possible, a run is dry or incomplete, nothing tells
            which rows belong together, or nothing tells whose preference counts in pairs.
    """
    if not thresholds:
        return ()
    rows = matched.rows
    for threshold in thresholds:
        _check_threshold(threshold, rows)
    _check_runs(matched, thresholds[0].kind)
    by_system = list(_rows_by_system(matched))
    may_lose = any(threshold.kind is Kind.MAX_FAILED for threshold in thresholds)
    conditions = []
    for threshold in thresholds:
        at = rows.names.index(threshold.column) if threshold.column else 0
        for of_system in by_system:
            if threshold.kind.is_share:
                fall = None if threshold.kind is Kind.MAX_FAILED else float(rows.collapse[at])
                found = _of_share(threshold, of_system, at, fall)
            elif threshold.kind.is_plain:
                found = _of_plain_mean(threshold, of_system, at, may_lose=may_lose)
            elif of_system.instructions < MIN_INSTRUCTIONS:
                found = _of_too_few(threshold, of_system, at)
            elif threshold.kind is Kind.MARGIN:
                found = _of_margin(threshold, of_system, at, width=float(rows.width[at]))
            else:
                found = _of_rise(threshold, of_system, at, flips=flips, seed=seed)
            conditions.append(found)
    return tuple(conditions)


def _check_threshold(threshold: Threshold, rows: ComparedRows) -> None:
    """Check that the column of a threshold exists, and that its limit is possible."""
    kind, name, limit = threshold.kind, threshold.column, threshold.limit
    if name and name not in rows.names:
        raise UsageError(f"{name}: is not a column of these runs; give one of {', '.join(rows.names)}")
    if limit is None:
        return
    if kind.is_share and not 0 < limit < 1:
        option = f"`{kind}` {name}={limit:g}" if name else f"`{kind}` {limit:g}"
        raise UsageError(f"{option}: must be a share between 0 and 1, such as 0.05")
    if kind in (Kind.MARGIN, Kind.MAX_MEAN_DROP) and not 0 < limit < rows.width[rows.names.index(name)]:
        raise UsageError(f"`{kind}` {name}={limit:g}: must be above 0 and smaller than the scale")
    if kind is Kind.MIN:
        low, high = rows.columns[name][1]
        if not low <= limit <= high:
            raise UsageError(f"`{kind}` {name}={limit:g}: must be on the scale, {low:g} to {high:g}")


def _check_runs(matched: MatchedRuns, kind: Kind) -> None:
    """Check that both runs are real and complete, and that it is clear which of their rows are compared."""
    source = matched.rows.source
    for folder, manifest in zip(source.folders, source.manifests, strict=True):
        if is_dry_run(manifest):
            raise UsageError(f"{folder}: is a dry run, and a gate needs every score")
        if not is_complete(folder):
            raise UsageError(
                f"{folder}: is not complete; the same score command continues it, and a gate needs every score"
            )
    if matched.rows.problem:
        raise UsageError(f"`{kind}`: {matched.rows.problem}")
    if matched.needs_ids:
        old, new = matched.names
        raise UsageError(
            f"{new}: on {counted(matched.needs_ids, 'instruction')} it has another number of rows than {old}, "
            "and without ids of their own nothing tells which rows belong together; give the rows of both runs "
            "unique ids (a column `id`), and judge those that are missing"
        )


def _rows_by_system(matched: MatchedRuns) -> Iterator[SystemRows]:
    """Yield the rows of each system."""
    group_of_row = matched.group[matched.cell]
    for place, system in enumerate(matched.systems):
        cells = matched.system == place
        in_both = cells & matched.in_both
        chosen = cells[matched.cell]
        change = matched.new[in_both] - matched.old[in_both]
        yield SystemRows(
            system=system,
            change=by_instruction(matched.change[cells], matched.group[cells]),
            score=by_instruction(matched.score[cells], matched.group[cells]),
            measured_change=_mean(by_instruction(change, matched.group[in_both])),
            measured_score=_mean(by_instruction(matched.new[in_both], matched.group[in_both])),
            row_change=matched.row_change[chosen],
            is_lost=matched.is_lost[chosen],
            group=group_of_row[chosen],
        )


def _mean(of_instructions: Floats) -> Floats:
    """Return the mean of each column, [C]; NaN without instructions."""
    if not len(of_instructions):
        return np.full(of_instructions.shape[1], np.nan)
    mean: Floats = of_instructions.mean(axis=0)
    return mean


def _condition(
    threshold: Threshold, of_system: SystemRows, *, passes: bool, change: float | None, **found: Any
) -> Condition:
    """Return a condition with what all have in common."""
    return Condition(
        kind=threshold.kind,
        column=threshold.column,
        system=of_system.system,
        limit=threshold.limit,
        passes=passes,
        change=change,
        instructions=of_system.instructions,
        rows=len(of_system.is_lost),
        lost=of_system.lost,
        **found,
    )


def _of_too_few(threshold: Threshold, of_system: SystemRows, at: int) -> Condition:
    """Return a condition on a mean that fails because fewer than five instructions say too little."""
    return _condition(
        threshold,
        of_system,
        passes=False,
        change=float(of_system.change[:, at].mean()),
        measured=_known(of_system.measured_change[at]),
        fewest=MIN_INSTRUCTIONS,
    )


def _of_margin(threshold: Threshold, of_system: SystemRows, at: int, width: float) -> Condition:
    """Return whether it is excluded that a mean fell by the margin."""
    margin = threshold.limit or 0.0
    changes = of_system.change[:, at]
    bound = float(lower_bound(changes, width))
    chance, needed = None, None
    if not of_system.lost:
        variance = float(changes.var(ddof=1))
        chance = chance_to_pass(margin, variance, width, len(changes))
        needed = instructions_to_pass(margin, variance, width)
    return _condition(
        threshold,
        of_system,
        passes=bound > -margin,
        change=float(changes.mean()),
        measured=_known(of_system.measured_change[at]),
        bound=bound,
        room=bound + margin,
        fewest=fewest_to_pass(margin, width),
        chance=chance,
        needed=needed,
    )


def _of_rise(threshold: Threshold, of_system: SystemRows, at: int, *, flips: int, seed: int) -> Condition:
    """Return whether a mean rose."""
    changes = of_system.change[:, at]
    p = float(rise_p(changes[:, None], flips, seed)[0])
    return _condition(
        threshold,
        of_system,
        passes=bool(p <= RISE_LEVEL and changes.mean() > 0),
        change=float(changes.mean()),
        measured=_known(of_system.measured_change[at]),
        p=p,
        room=RISE_LEVEL - p,
        fewest=fewest_to_rise(RISE_LEVEL),
    )


def _of_share(threshold: Threshold, of_system: SystemRows, at: int, fall: float | None) -> Condition:
    """Return whether it is excluded that a share of the rows was lost or, with a fall, that it fell as far."""
    most = threshold.limit or 0.0
    held = of_system.is_lost
    if fall is not None:
        held = held | (of_system.row_change[:, at] <= NO_DIFFERENCE - fall)
    share, weight = float(held.mean()), kish_number(of_system.group)
    is_enough = of_system.instructions >= MIN_INSTRUCTIONS
    bound = share_below(share, weight) if is_enough else None
    return _condition(
        threshold,
        of_system,
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


def _of_plain_mean(threshold: Threshold, of_system: SystemRows, at: int, *, may_lose: bool) -> Condition:
    """Return whether a mean is above a number, by itself."""
    limit = threshold.limit or 0.0
    if threshold.kind is Kind.MIN:
        values, measured, least = of_system.score[:, at], of_system.measured_score[at], limit
    else:
        values, measured, least = of_system.change[:, at], of_system.measured_change[at], -limit
    return plain_mean(
        threshold, of_system, values=values, measured=_known(measured), least=least, may_lose=may_lose
    )


def plain_mean(
    threshold: Threshold,
    of_system: SystemRows,
    *,
    values: Floats,
    measured: float | None,
    least: float,
    may_lose: bool,
) -> Condition:
    """Return whether a mean is at least as large as asked; it is not if a row is lost, unless some may be."""
    mean = float(values.mean())
    is_known = may_lose or not of_system.lost
    return _condition(
        threshold,
        of_system,
        passes=bool(is_known and mean >= least - NO_DIFFERENCE),
        change=mean if is_known else None,
        measured=measured,
        half_width=half_width(values),
        room=mean - least if is_known else None,
    )


def half_width(values: Floats) -> float | None:
    """Return half the width of the 95 % interval of Student's t of a mean; None for fewer than five values."""
    from scipy.special import stdtrit

    count = len(values)
    if count < MIN_INSTRUCTIONS:
        return None
    return float(stdtrit(count - 1, 0.975) * values.std(ddof=1) / math.sqrt(count))


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
