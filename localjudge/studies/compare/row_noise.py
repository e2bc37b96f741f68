"""How far single rows must move between two runs to stand out from the noise that the runs have measured.

A row that was judged again in other batches moves although nothing has changed. The noise of a run is how far
its rows moved so; a change of another row that is no larger is not told apart from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Floats
from localjudge.records.outcome_columns import OVERALL
from localjudge.runs.noise import column_change
from localjudge.runs.reader import read_repeated_rows
from localjudge.runs.repeated_rows import RepeatedRow
from localjudge.statistics.absolute_change import AbsoluteChange
from localjudge.statistics.system_order import NO_DIFFERENCE
from localjudge.studies.compare.matched_runs import MatchedRuns


@dataclass(frozen=True, slots=True)
class RowNoise:
    """The rows of two runs that move no further than the noise, in one column.

    Attributes:
        run: the run whose noise is meant: of two, that with the larger bound.
        repeated: number of rows of it that were judged again.
        bound: `AbsoluteChange.bound` of these rows.
        within: number of these rows that moved by at most the bound.
        compared: number of rows that both runs have judged.
        moved: number of these that moved.
        below: number of these that moved by at most the bound.
    """

    run: str
    repeated: int
    bound: float
    within: int
    compared: int
    moved: int
    below: int


def row_noise(matched: MatchedRuns) -> dict[str, RowNoise]:
    """Return the noise of single rows in each column, where it is known.

    It is known if both runs have measured theirs, or if one has and the other was judged with the same settings
    by the same engine; and if at least 19 rows with a number in the column were judged again in each of them.
    The mean of the columns has none.
    """
    repeated = _repeated_rows(matched)
    if not repeated:
        return {}
    rows = matched.rows
    noise: dict[str, RowNoise] = {}
    for name, column in rows.columns.items():
        if name == OVERALL:
            continue
        changes = np.abs(column.values[matched.scored.pairs[:, 1]] - column.values[matched.scored.pairs[:, 0]])
        of_runs = []
        for run, rows_of_run in repeated.items():
            again = column_change(rows_of_run, name, expected=name in rows.expected, width=float(column.width))
            of_run = _noise_of_run(run, again, changes=changes)
            if of_run is not None:
                of_runs.append(of_run)
        if len(of_runs) == len(repeated):
            noise[name] = max(of_runs, key=lambda of_run: of_run.bound)
    return noise


def _noise_of_run(run: str, again: AbsoluteChange, changes: Floats) -> RowNoise | None:
    """Return the rows that move no further than the noise of one run.

    Args:
        run: the name of the run.
        again: how far its rows moved when they were judged again.
        changes: the absolute changes of the rows that both runs have judged, [m].

    Returns:
        The rows; None if too few rows were judged again.
    """
    if again.bound is None:
        return None
    has_moved = changes > NO_DIFFERENCE
    is_within_bound = changes <= again.bound + NO_DIFFERENCE
    return RowNoise(
        run=run,
        repeated=again.rows,
        bound=again.bound,
        within=again.within,
        compared=len(changes),
        moved=int(has_moved.sum()),
        below=int((has_moved & is_within_bound).sum()),
    )


def _repeated_rows(matched: MatchedRuns) -> dict[str, Sequence[RepeatedRow]]:
    """Return the rows that each run has judged again; none if they say nothing about the other run."""
    source = matched.rows.source
    repeated: dict[str, Sequence[RepeatedRow]] = {}
    for name, folder in zip(matched.names, source.folders, strict=True):
        rows_of_run = read_repeated_rows(folder)
        if any(not row.failed for row in rows_of_run):
            repeated[name] = rows_of_run
    old, new = source.manifests
    if len(repeated) == len(source.folders) or old.settings == new.settings:
        return repeated
    return {}
