"""What another order of the values or of the aspects changes: verdicts, and the means of the scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from localjudge.arrays import Integers
from localjudge.errors import UsageError
from localjudge.matching.run_rows import first_seen
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Row
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.runs.reader import read_notices, read_row_outcomes
from localjudge.runs.run_manifest import read_manifest
from localjudge.statistics import UNDEFINED, Estimate
from localjudge.statistics.log_odds import Shares
from localjudge.statistics.resampling import mean_estimate
from localjudge.studies.audit.order_runs import OWN, OrderCheck, PromptOrder
from localjudge.studies.audit.perturbations import AGAIN
from localjudge.studies.audit.sample_runs import sampled_row


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderEffect:
    """What one order changes, compared with the rubric's own.

    Attributes:
        name: the order; "again" is the rubric's own, judged again.
        does: what it is, in words.
        given: what the prompt gives in this order, a line for each list.
        rows: number of rows that were judged in both orders.
        instructions: number of their instructions.
        failed: number of the other rows of the sample: those that could not be judged in one of the two.
        changed: the share of verdicts on each aspect that changed; of a pair, each of its two orders has one.
        shift: by column, the mean score in this order minus that in the own order.
        kept: the share of all sampled rows whose verdict on each aspect is the same in both orders; a row that
            could not be judged does not count as one.
        threshold: the smallest share of rows that must be kept on each aspect; None for none.
    """

    name: str
    does: str
    given: Sequence[str]
    rows: int
    instructions: int
    failed: int
    changed: Mapping[str, Estimate]
    shift: Mapping[str, Estimate]
    kept: Mapping[str, float]
    threshold: float | None

    @property
    def below(self) -> dict[str, float]:
        """The aspects whose share of kept rows is below the threshold, with this share."""
        if self.threshold is None:
            return {}
        return {aspect: share for aspect, share in self.kept.items() if share < self.threshold}


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderAudit:
    """The findings of an audit of another order of the prompt's lists.

    Attributes:
        item: what a row is called: "row" or "pair".
        rows: number of sampled rows.
        instructions: number of their instructions.
        of: by column, of what the means are: "expected" scores if every row has one, else "integer" ones; of
            pairs "preference", the probability that the first response is better.
        sampled: whether answers were drawn at random (`temperature` above 0), so that each order has draws of
            its own.
        orders: the rubric's own order judged again, and each other order.
    """

    model: str
    rubric: str
    check: OrderCheck
    item: str
    rows: int
    instructions: int
    seed: int
    of: Mapping[str, str]
    sampled: bool
    orders: Sequence[OrderEffect]
    notices: Sequence[str]

    @property
    def passed(self) -> bool:
        return not any(order.below for order in self.orders)


def read_orders(
    out: Path,
    rows: Sequence[Row],
    orders: Sequence[PromptOrder],
    *,
    check: OrderCheck,
    seed: int,
    thresholds: Mapping[str, float],
) -> OrderAudit:
    """Return what the runs in the folder that `run_orders` filled say.

    Args:
        out: the folder.
        rows: the sampled rows.
        orders: the other orders.
        check: what stands in another order.
        seed: the seed of the sample and of the intervals.
        thresholds: by the name of an order, the smallest share of rows that must be kept on each aspect.

    Raises:
        UsageError: no row could be judged in the rubric's own order.
    """
    manifest = read_manifest(out / OWN)
    own = RowsOfOrder.read(out / OWN)
    if not own.rows:
        raise UsageError(f"no row of the sample could be judged: {own.errors[0]}")
    again = RowsOfOrder.read(out / AGAIN)
    others = [RowsOfOrder.read(out / order.folder) for order in orders]
    _, of_row = np.unique([row.group for row in rows], return_inverse=True)
    reader = EffectReader(
        rubric=manifest.rubric,
        own=own,
        measured=_measured(manifest.rubric.row_columns, [own, again, *others]),
        groups=first_seen(of_row),
        seed=seed,
    )
    in_own_order = PromptOrder(
        name=AGAIN,
        folder=AGAIN,
        does="the rubric's own order, judged again",
        given=(),
        rubric=manifest.rubric,
        aspects=tuple(dict.fromkeys(aspect for order in orders for aspect in order.aspects)),
    )
    effects = [reader.effect(in_own_order, again, None)]
    for order, judged in zip(orders, others, strict=True):
        effects.append(reader.effect(order, judged, thresholds.get(order.name)))
    return OrderAudit(
        model=manifest.model.name,
        rubric=manifest.rubric.name,
        check=check,
        item=manifest.rubric.mode.item,
        rows=len(rows),
        instructions=int(reader.groups.max()) + 1,
        seed=seed,
        of={
            column.name: "expected" if column.name in reader.measured else manifest.rubric.mode.numbers.kind
            for column in manifest.rubric.row_columns
        },
        sampled=manifest.settings.temperature > 0,
        orders=effects,
        notices=list(read_notices(out / OWN)),
    )


@dataclass(frozen=True, slots=True)
class RowsOfOrder:
    """The rows of a run by the number of the sampled row, and why the others could not be judged."""

    rows: Mapping[int, RowOutcome]
    errors: Sequence[str]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the run of the sampled rows in a folder."""
        rows: dict[int, RowOutcome] = {}
        errors: list[str] = []
        for row in read_row_outcomes(folder):
            if row.error is None:
                rows[sampled_row(row.first)] = row
            else:
                errors.append(row.error)
        return cls(rows, errors)


def _measured(columns: Sequence[ScoreColumn], runs: Sequence[RowsOfOrder]) -> frozenset[str]:
    """Return the columns that have an expected score in every row of every run."""
    names = {column.name for column in columns}
    for run in runs:
        for row in run.rows.values():
            names &= row.expected.keys()
    return frozenset(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectReader:
    """Compares the runs of other orders with that of the rubric's own.

    Attributes:
        rubric: the rubric in its own order.
        own: the rows in this order.
        measured: the columns with an expected score in every row of every run.
        groups: the number of the instruction of each sampled row, [S].
        seed: the seed of the intervals.
    """

    rubric: Rubric
    own: RowsOfOrder
    measured: frozenset[str]
    groups: Integers
    seed: int

    def effect(self, order: PromptOrder, judged: RowsOfOrder, threshold: float | None) -> OrderEffect:
        """Return what an order changes in the rows that were judged in both orders."""
        shared = sorted(self.own.rows.keys() & judged.rows.keys())
        columns = [column for column in self.rubric.row_columns if column.aspect in order.aspects]
        return OrderEffect(
            name=order.name,
            does=order.does,
            given=order.given,
            rows=len(shared),
            instructions=len(np.unique(self.groups[shared])),
            failed=len(self.groups) - len(shared),
            changed={aspect: self._changed(shared, judged, aspect) for aspect in order.aspects},
            shift={column.name: self._shift(shared, judged, column) for column in columns},
            kept={aspect: self._kept(shared, judged, aspect) for aspect in order.aspects},
            threshold=threshold,
        )

    def _changed(self, shared: Sequence[int], judged: RowsOfOrder, aspect: str) -> Estimate:
        """Return the share of verdicts on an aspect that changed."""
        changes: list[bool] = []
        groups: list[int] = []
        for number in shared:
            own = _changes(self.own.rows[number], judged.rows[number], aspect)
            changes += own
            groups += [int(self.groups[number])] * len(own)
        if not changes:
            return UNDEFINED
        only_part = np.zeros(len(changes), dtype=np.int32)
        shares = Shares.from_values(np.array(changes, dtype=np.float64), only_part, 1, np.array(groups))
        return shares.estimates()[0]

    def _shift(self, shared: Sequence[int], judged: RowsOfOrder, column: ScoreColumn) -> Estimate:
        """Return the mean change of a column over rows, with an interval from resampling instructions."""
        if not shared:
            return UNDEFINED
        before = [self._number(self.own.rows[number], column) for number in shared]
        after = [self._number(judged.rows[number], column) for number in shared]
        change = np.array(after) - np.array(before)
        width = column.highest - column.lowest
        return mean_estimate(
            change, self.groups[shared], lowest=-width, highest=width, symmetric=True, seed=self.seed
        )

    def _number(self, row: RowOutcome, column: ScoreColumn) -> float:
        numbers = row.expected if column.name in self.measured else row.values
        return numbers[column.name]

    def _kept(self, shared: Sequence[int], judged: RowsOfOrder, aspect: str) -> float:
        """Return the share of all sampled rows whose verdict on an aspect is the same in both orders."""
        kept = [
            number for number in shared if not any(_changes(self.own.rows[number], judged.rows[number], aspect))
        ]
        return len(kept) / len(self.groups)


def _changes(own: RowOutcome, other: RowOutcome, aspect: str) -> list[bool]:
    """Return whether each prompt of a row has another value of an aspect."""
    return [
        before.scores[aspect] != after.scores[aspect]
        for before, after in zip(own.judged, other.judged, strict=True)
    ]
