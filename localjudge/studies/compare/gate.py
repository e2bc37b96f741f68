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
from localjudge.studies.compare.compared_cells import by_instruction
from localjudge.studies.compare.matched_runs import MatchedRuns
from localjudge.studies.compare.pair_subject import SubjectProblem, UnclearSubject
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

_MOST_NAMED = 12
"""The most systems that a message names."""


def check_gate(
    matched: MatchedRuns, thresholds: Sequence[Threshold], *, flips: int = RESAMPLES, seed: int = 0
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
        check_threshold(threshold, matched.rows.ends)
    _check_runs(matched)
    if matched.rows.problem is not None:
        raise UsageError(f"`{thresholds[0].kind}`: {_in_words(matched.rows.problem)}")
    _check_rows_match(matched)
    may_lose = any(threshold.kind is Kind.MAX_FAILED for threshold in thresholds)
    systems = [_ComparedSystem(matched, index) for index in range(len(matched.cells.systems))]
    conditions = []
    for threshold in thresholds:
        for system in systems:
            conditions.append(system.condition(threshold, may_lose=may_lose, flips=flips, seed=seed))
    return tuple(conditions)


def _check_runs(matched: MatchedRuns) -> None:
    """Check that both runs are real and complete.

    Raises:
        UsageError: one is not.
    """
    source = matched.rows.source
    for folder, manifest in zip(source.folders, source.manifests, strict=True):
        if is_dry_run(manifest):
            raise UsageError(f"{folder}: is a dry run, and a gate needs every score")
        if not is_complete(folder):
            raise UsageError(
                f"{folder}: is not complete; the same score command continues it, and a gate needs every score"
            )


def _in_words(problem: SubjectProblem) -> str:
    """Return why nothing tells whose preference must not fall, and what to do."""
    if problem.reason is UnclearSubject.UNNAMED_PAIRS:
        return (
            "the pairs name no systems, so nothing tells whose preference must not fall; give their rows the "
            "columns system_a and system_b, or judge responses with `baseline`"
        )
    names = ", ".join(problem.systems[:_MOST_NAMED])
    if len(problem.systems) > _MOST_NAMED:
        names += f" and {len(problem.systems) - _MOST_NAMED} more"
    return (
        f"several systems can be the one whose preference must not fall ({names}); name it with `system`, or "
        "judge both runs with the same `baseline`"
    )


def _check_rows_match(matched: MatchedRuns) -> None:
    """Check that it is certain which rows of the two runs belong together.

    Raises:
        UsageError: it is not.
    """
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
        index: the index of the system in `matched.cells.systems`.
    """

    def __init__(self, matched: MatchedRuns, index: int) -> None:
        self._matched = matched
        self._cells: Flags = matched.cells.system == index  # [n]
        self._rows: Flags = self._cells[matched.scored.cell]  # [r]
        self._is_lost = matched.scored.is_lost[self._rows]
        group = matched.cells.group[matched.scored.cell][self._rows]
        self._counted = SystemRows(matched.cells.systems[index], self._is_lost, group=group)

    def condition(self, threshold: Threshold, *, may_lose: bool, flips: int, seed: int) -> Condition:
        """Return whether a condition holds for this system.

        Args:
            threshold: what is asked.
            may_lose: whether rows may be lost, for a plain threshold.
            flips: number of flips of the test of a rise.
            seed: seed of the flips.
        """
        if threshold.kind is Kind.MAX_FAILED:
            return share_condition(threshold, self._counted, held=self._is_lost)
        column = self._matched.rows.names.index(threshold.column)
        match threshold.kind:
            case Kind.MAX_FELL:
                return self._share_of_fallen(threshold, column)
            case Kind.MIN:
                return self._mean_score(threshold, column, may_lose=may_lose)
            case Kind.MAX_MEAN_DROP:
                return self._mean_drop(threshold, column, may_lose=may_lose)
        changes = self._by_instruction(self._matched.change[:, column])
        measured = self._mean_of_common(self._matched.cells.change[:, column])
        if threshold.kind is Kind.MARGIN:
            width = float(self._matched.rows.width[column])
            return margin_condition(threshold, self._counted, changes=changes, measured=measured, width=width)
        return rise_condition(
            threshold, self._counted, changes=changes, measured=measured, flips=flips, seed=seed
        )

    def _share_of_fallen(self, threshold: Threshold, column: int) -> Condition:
        """Return whether few enough rows collapsed in a column or were lost."""
        fall = float(self._matched.rows.collapse[column])
        has_fallen = self._matched.scored.change[self._rows, column] <= NO_DIFFERENCE - fall
        return share_condition(threshold, self._counted, held=self._is_lost | has_fallen, fall=fall)

    def _mean_score(self, threshold: Threshold, column: int, *, may_lose: bool) -> Condition:
        """Return whether the mean of a column in NEW is at least as large as asked."""
        values = self._by_instruction(self._matched.score[:, column])
        return mean_condition(
            threshold,
            self._counted,
            values=values,
            group=np.arange(len(values)),
            measured=self._mean_of_common(self._matched.cells.new[:, column]),
            least=threshold.limit or 0.0,
            may_lose=may_lose,
        )

    def _mean_drop(self, threshold: Threshold, column: int, *, may_lose: bool) -> Condition:
        """Return whether the mean of a column fell by no more than allowed."""
        values = self._by_instruction(self._matched.change[:, column])
        return mean_condition(
            threshold,
            self._counted,
            values=values,
            group=np.arange(len(values)),
            measured=self._mean_of_common(self._matched.cells.change[:, column]),
            least=-(threshold.limit or 0.0),
            may_lose=may_lose,
        )

    def _by_instruction(self, values: Floats) -> Floats:
        """Return the mean of a value of the cells, [n], on each instruction of the system."""
        group = self._matched.cells.group[self._cells]
        return by_instruction(values[self._cells][:, None], group)[:, 0]

    def _mean_of_common(self, values: Floats) -> float:
        """Return the mean over instructions of the cells with a row in both runs; NaN without any."""
        chosen = self._cells & self._matched.cells.in_both
        if not chosen.any():
            return float("nan")
        group = self._matched.cells.group[chosen]
        return float(by_instruction(values[chosen][:, None], group).mean())
