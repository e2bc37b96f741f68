"""How far single rows must move between two runs to stand out from the noise that the runs have measured.

A row that was judged again in other batches moves although nothing has changed. The noise of a run is how far
its rows moved so; a change of another row that is no larger is not told apart from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import numpy as np

from localjudge.arrays import Floats
from localjudge.records.outcome_columns import OVERALL
from localjudge.runs.noise import RepeatedRow, column_change
from localjudge.runs.reader import read_repeated_rows
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
    repeated = _measured(matched)
    rows = matched.rows
    noise: dict[str, RowNoise] = {}
    for index, name in enumerate(rows.names):
        if name == OVERALL or not repeated:
            continue
        old = rows.values[matched.row_pairs[:, 0], index]
        new = rows.values[matched.row_pairs[:, 1], index]
        of_runs = [
            _noise_of_run(
                run,
                column_change(again, name, expected=name in rows.expected, width=float(rows.width[index])),
                np.abs(new - old),
            )
            for run, again in repeated.items()
        ]
        known = [of_run for of_run in of_runs if of_run is not None]
        if len(known) == len(of_runs):
            noise[name] = max(known, key=attrgetter("bound"))
    return noise


def _noise_of_run(run: str, again: AbsoluteChange, changes: Floats) -> RowNoise | None:
    """Return the rows that move no further than the noise of one run.

    Args:
        run: the name of the run.
        again: how far its rows moved when they were judged again.
        changes: the absolute changes of the rows that both runs have judged.

    Returns:
        The rows; None if too few rows were judged again.
    """
    if again.bound is None:
        return None
    moved = changes > NO_DIFFERENCE
    return RowNoise(
        run=run,
        repeated=again.rows,
        bound=again.bound,
        within=again.within,
        compared=len(changes),
        moved=int(moved.sum()),
        below=int((moved & (changes <= again.bound + NO_DIFFERENCE)).sum()),
    )


def _measured(matched: MatchedRuns) -> dict[str, Sequence[RepeatedRow]]:
    """Return the rows that each run has judged again; none if they say nothing about the other run."""
    source = matched.rows.source
    folders: Sequence[Path] = source.folders
    repeated = [(name, read_repeated_rows(folder)) for name, folder in zip(matched.names, folders, strict=True)]
    measured: dict[str, Sequence[RepeatedRow]] = {
        name: rows for name, rows in repeated if any(not row.failed for row in rows)
    }
    old, new = (manifest.settings for manifest in source.manifests)
    is_complete = len(measured) == len(folders) or old == new
    return measured if is_complete else {}
