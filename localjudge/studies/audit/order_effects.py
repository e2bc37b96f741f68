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
from localjudge.studies.audit.order_runs import OWN, OrderCheck, OrderName, PromptOrder
from localjudge.studies.audit.perturbations import AGAIN
from localjudge.studies.audit.sample_runs import sampled_row


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderEffect:
    """What one order changes, compared with the rubric's own.

    Attributes:
        name: the order; "again" is the rubric's own, judged again.
        lists: what the prompt gives in this order, a line for each list.
        rows: number of rows that were judged in both orders.
        instructions: number of their instructions.
        failed: number of the other rows of the sample: those that could not be judged in one of the two.
        changed: the share of verdicts on each aspect that changed; of a pair, each of its two orders has one.
        shift: by column, the mean score in this order minus that in the own order.
        kept: the share of all sampled rows whose verdict on each aspect is the same in both orders; a row that
            could not be judged does not count as one.
        threshold: the smallest share of rows that must be kept on each aspect; None for none.
    """

    name: OrderName
    lists: Sequence[str]
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
        score_kinds: by column, of what the means are: "expected" scores if every row has one, else "integer"
            ones; of pairs "preference", the probability that the first response is better.
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
    score_kinds: Mapping[str, str]
    sampled: bool
    orders: Sequence[OrderEffect]
    notices: Sequence[str]

    @property
    def passed(self) -> bool:
        """Whether no order is below its threshold."""
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
    rubric = manifest.rubric
    own_order = RowsOfOrder.read(out / OWN)
    if not own_order.rows:
        raise UsageError(f"no row of the sample could be judged: {own_order.errors[0]}")
    orders = (_own_order_again(rubric, orders),) + tuple(orders)
    rows_of_orders = [RowsOfOrder.read(out / order.folder) for order in orders]
    _, group = np.unique([row.group for row in rows], return_inverse=True)
    reader = EffectReader(
        rubric=rubric,
        own_order=own_order,
        measured=_measured(rubric.row_columns, [own_order] + rows_of_orders),
        group=first_seen(group),
        seed=seed,
    )
    effects = [
        reader.effect(order, rows_of_order, thresholds.get(order.name))
        for order, rows_of_order in zip(orders, rows_of_orders, strict=True)
    ]
    return OrderAudit(
        model=manifest.model.name,
        rubric=rubric.name,
        check=check,
        item=rubric.mode.item,
        rows=len(rows),
        instructions=int(reader.group.max()) + 1,
        seed=seed,
        score_kinds={
            column.name: "expected" if column.name in reader.measured else rubric.mode.number_words.kind
            for column in rubric.row_columns
        },
        sampled=manifest.settings.temperature > 0,
        orders=effects,
        notices=list(read_notices(out / OWN)),
    )


def _own_order_again(rubric: Rubric, orders: Sequence[PromptOrder]) -> PromptOrder:
    """Return the rubric's own order, judged again, with the aspects of all other orders."""
    aspects: list[str] = []
    for order in orders:
        aspects += [aspect for aspect in order.aspects if aspect not in aspects]
    return PromptOrder(name="again", folder=AGAIN, lists=(), rubric=rubric, aspects=tuple(aspects))


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
        own_order: the rows in this order.
        measured: the columns with an expected score in every row of every run.
        group: the number of the instruction of each sampled row, [S].
        seed: the seed of the intervals.
    """

    rubric: Rubric
    own_order: RowsOfOrder
    measured: frozenset[str]
    group: Integers
    seed: int

    def effect(self, order: PromptOrder, judged: RowsOfOrder, threshold: float | None) -> OrderEffect:
        """Return what an order changes in the rows that were judged in both orders."""
        shared = sorted(self.own_order.rows.keys() & judged.rows.keys())
        columns = [column for column in self.rubric.row_columns if column.aspect in order.aspects]
        return OrderEffect(
            name=order.name,
            lists=order.lists,
            rows=len(shared),
            instructions=len(np.unique(self.group[shared])),
            failed=len(self.group) - len(shared),
            changed={aspect: self._changed(shared, judged, aspect) for aspect in order.aspects},
            shift={column.name: self._shift(shared, judged, column) for column in columns},
            kept={aspect: self._kept(shared, judged, aspect) for aspect in order.aspects},
            threshold=threshold,
        )

    def _changed(self, shared: Sequence[int], judged: RowsOfOrder, aspect: str) -> Estimate:
        """Return the share of verdicts on an aspect that changed."""
        is_changed: list[bool] = []
        group: list[int] = []
        for number in shared:
            for is_other in _changes(self.own_order.rows[number], judged.rows[number], aspect):
                is_changed.append(is_other)
                group.append(int(self.group[number]))
        if not is_changed:
            return UNDEFINED
        only_part = np.zeros(len(is_changed), dtype=np.int32)
        shares = Shares.from_values(np.array(is_changed, dtype=np.float64), only_part, 1, np.array(group))
        return shares.estimates()[0]

    def _shift(self, shared: Sequence[int], judged: RowsOfOrder, column: ScoreColumn) -> Estimate:
        """Return the mean change of a column over rows, with an interval from resampling instructions."""
        if not shared:
            return UNDEFINED
        before = [self._number(self.own_order.rows[number], column) for number in shared]
        after = [self._number(judged.rows[number], column) for number in shared]
        change = np.array(after) - np.array(before)
        width = column.highest - column.lowest
        return mean_estimate(
            change, self.group[shared], lowest=-width, highest=width, symmetric=True, seed=self.seed
        )

    def _number(self, row: RowOutcome, column: ScoreColumn) -> float:
        numbers = row.expected if column.name in self.measured else row.values
        return numbers[column.name]

    def _kept(self, shared: Sequence[int], judged: RowsOfOrder, aspect: str) -> float:
        """Return the share of all sampled rows whose verdict on an aspect is the same in both orders."""
        kept = 0
        for number in shared:
            if not any(_changes(self.own_order.rows[number], judged.rows[number], aspect)):
                kept += 1
        return kept / len(self.group)


def _changes(own_order: RowOutcome, other_order: RowOutcome, aspect: str) -> list[bool]:
    """Return whether each prompt of a row has another value of an aspect."""
    return [
        before.scores[aspect] != after.scores[aspect]
        for before, after in zip(own_order.judged, other_order.judged, strict=True)
    ]
