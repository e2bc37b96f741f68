"""The gate of a comparison: the conditions of `localjudge.studies.conditions` on every system of two runs.

A row of OLD that has a score, but none in NEW, is lost. Rows that belong to no row of OLD count in nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from localjudge.arrays import Flags, Floats
from localjudge.errors import UsageError
from localjudge.runs.notices import is_dry_run
from localjudge.runs.reader import is_complete
from localjudge.statistics.resampling import RESAMPLES
from localjudge.statistics.system_order import NO_DIFFERENCE
from localjudge.studies.compare.matched_runs import MatchedRuns, by_instruction
from localjudge.studies.conditions import (
    Condition,
    Kind,
    SystemRows,
    Threshold,
    check_threshold,
    margin_condition,
    mean_condition,
    rise_condition,
    share_condition,
)
from localjudge.system.quantities import counted


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
    for threshold in thresholds:
        check_threshold(threshold, {name: ends for name, (_, ends) in matched.rows.columns.items()})
    _check_runs(matched, thresholds[0].kind)
    may_lose = any(threshold.kind is Kind.MAX_FAILED for threshold in thresholds)
    systems = [_ComparedSystem(matched, place) for place in range(len(matched.systems))]
    return tuple(
        system.condition(threshold, may_lose=may_lose, flips=flips, seed=seed)
        for threshold in thresholds
        for system in systems
    )


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


class _ComparedSystem:
    """One system of two runs.

    Args:
        matched: the rows of both runs.
        place: the place of the system in `matched.systems`.
    """

    def __init__(self, matched: MatchedRuns, place: int) -> None:
        self._matched = matched
        self._cells: Flags = matched.system == place
        self._rows: Flags = self._cells[matched.cell]
        self._is_lost = matched.is_lost[self._rows]
        group = matched.group[matched.cell][self._rows]
        self._counted = SystemRows(matched.systems[place], self._is_lost, group)

    def condition(self, threshold: Threshold, *, may_lose: bool, flips: int, seed: int) -> Condition:
        """Return whether a condition holds for this system."""
        compared = self._matched.rows
        at = compared.names.index(threshold.column) if threshold.column else 0
        match threshold.kind:
            case Kind.MAX_FAILED:
                return share_condition(threshold, self._counted, held=self._is_lost)
            case Kind.MAX_FELL:
                fall = float(compared.collapse[at])
                has_fallen = self._matched.row_change[self._rows, at] <= NO_DIFFERENCE - fall
                return share_condition(threshold, self._counted, held=self._is_lost | has_fallen, fall=fall)
            case Kind.MIN:
                return self._mean_condition(
                    threshold,
                    cells=self._matched.score[:, at],
                    common=self._matched.new[:, at],
                    least=threshold.limit or 0.0,
                    may_lose=may_lose,
                )
            case Kind.MAX_MEAN_DROP:
                return self._mean_condition(
                    threshold,
                    cells=self._matched.change[:, at],
                    common=self._common_change(at),
                    least=-(threshold.limit or 0.0),
                    may_lose=may_lose,
                )
        changes = self._by_instruction(self._matched.change[:, at])
        measured = self._mean_of_common(self._common_change(at))
        if threshold.kind is Kind.MARGIN:
            width = float(compared.width[at])
            return margin_condition(threshold, self._counted, changes=changes, measured=measured, width=width)
        return rise_condition(
            threshold, self._counted, changes=changes, measured=measured, flips=flips, seed=seed
        )

    def _mean_condition(
        self, threshold: Threshold, *, cells: Floats, common: Floats, least: float, may_lose: bool
    ) -> Condition:
        """Return whether a mean over instructions is at least as large as asked.

        Args:
            threshold: what is asked.
            cells: the value of each cell, where lost rows have their lowest score.
            common: the value of each cell, of the rows with a score in both runs.
            least: the smallest mean that passes.
            may_lose: whether rows may be lost.
        """
        values = self._by_instruction(cells)
        return mean_condition(
            threshold,
            self._counted,
            values=values,
            group=np.arange(len(values)),
            measured=self._mean_of_common(common),
            least=least,
            may_lose=may_lose,
        )

    def _common_change(self, at: int) -> Floats:
        """Return the change of a column in each cell, of the rows with a score in both runs."""
        change: Floats = self._matched.new[:, at] - self._matched.old[:, at]
        return change

    def _by_instruction(self, cells: Floats) -> Floats:
        """Return the mean of a value of the cells on each instruction of the system, [n]."""
        group = self._matched.group[self._cells]
        return by_instruction(cells[self._cells][:, None], group)[:, 0]

    def _mean_of_common(self, cells: Floats) -> float:
        """Return the mean over instructions of the cells with a row in both runs; NaN without any."""
        chosen = self._cells & self._matched.in_both
        if not chosen.any():
            return float("nan")
        return float(by_instruction(cells[chosen][:, None], self._matched.group[chosen]).mean())
