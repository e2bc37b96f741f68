"""How far single rows must move between two runs to stand out from the noise that the runs have measured.

A row that was judged again in other batches moves although nothing has changed. The noise of a run is how far
its rows moved so; a change of another row that is no larger is not told apart from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from localjudge.records.outcome_columns import OVERALL
from localjudge.runs.noise import RepeatedRow, column_change
from localjudge.runs.reader import read_repeated_rows
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
    by the same engine. The mean of the columns has none.
    """
    repeated = _measured(matched)
    rows = matched.rows
    found: dict[str, RowNoise] = {}
    for place, name in enumerate(rows.names):
        if name == OVERALL:
            continue
        old, new = (rows.values[matched.row_pairs[:, run], place] for run in (0, 1))
        changes = np.abs(new - old)
        moved = changes > NO_DIFFERENCE
        largest: RowNoise | None = None
        for run, again in repeated.items():
            width = float(rows.width[place])
            change = column_change(again, name, expected=name in rows.expected, width=width)
            if change.bound is None:
                continue
            known = RowNoise(
                run=run,
                repeated=change.rows,
                bound=change.bound,
                within=change.within,
                compared=len(changes),
                moved=int(moved.sum()),
                below=int((moved & (changes <= change.bound + NO_DIFFERENCE)).sum()),
            )
            if largest is None or known.bound > largest.bound:
                largest = known
        if largest is not None:
            found[name] = largest
    return found


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
