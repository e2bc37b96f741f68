"""The single rows that changed most between two runs, and those that fell most in a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from localjudge.records.outcome_columns import OVERALL
from localjudge.statistics.system_order import NO_DIFFERENCE
from localjudge.studies.compare.compared_rows import ComparedRows
from localjudge.studies.compare.matched_runs import MatchedRuns

_MOST_MOVED = 10
"""The most rows that are listed because they changed."""
_MOST_FALLEN = 3
"""The most rows of a column that are listed because they fell."""


@dataclass(frozen=True, slots=True)
class MovedRow:
    """A row that changed by much: its numbers and its verdicts in OLD and in NEW.

    `moved` is the mean change of its columns, as a share of their scales.
    """

    id: str
    system: str
    moved: float
    numbers: Mapping[str, tuple[float, float]]
    verdicts: Mapping[str, tuple[str, str]]


def most_moved_rows(matched: MatchedRuns) -> tuple[MovedRow, ...]:
    """Return the rows that changed most in all columns but the mean of the others, the largest change first."""
    rows = matched.rows
    pairs = matched.scored.pairs
    used = [index for index, name in enumerate(rows.names) if name != OVERALL]
    old = rows.values[pairs[:, 0]][:, used]
    new = rows.values[pairs[:, 1]][:, used]
    moved = (np.abs(new - old) / rows.width[used]).mean(axis=1)  # [m]
    names = [rows.names[index] for index in used]
    largest_first = np.argsort(-moved, kind="stable")[:_MOST_MOVED].tolist()
    return tuple(
        _moved_row(rows, pairs[index].tolist(), moved=float(moved[index]), columns=names)
        for index in largest_first
        if moved[index] > 0
    )


def most_fallen_rows(matched: MatchedRuns, column: str) -> tuple[MovedRow, ...]:
    """Return the rows that fell most in a column, those that fell further first."""
    rows = matched.rows
    pairs = matched.scored.pairs
    values = rows.columns[column].values
    fall = values[pairs[:, 0]] - values[pairs[:, 1]]  # [m]
    width = float(rows.columns[column].width)
    largest_first = np.argsort(-fall, kind="stable")[:_MOST_FALLEN].tolist()
    return tuple(
        _moved_row(rows, pairs[index].tolist(), moved=float(fall[index]) / width, columns=[column])
        for index in largest_first
        if fall[index] > NO_DIFFERENCE
    )


def _moved_row(
    rows: ComparedRows, row_pair: Sequence[int], *, moved: float, columns: Sequence[str]
) -> MovedRow:
    """Return a row with its numbers in some columns and its verdicts, in both runs.

    Args:
        rows: the rows of both runs.
        row_pair: the row of OLD and that of NEW.
        moved: how far it moved.
        columns: the names of the columns.
    """
    old, new = row_pair
    numbers: dict[str, tuple[float, float]] = {}
    for name in columns:
        values = rows.columns[name].values
        numbers[name] = (float(values[old]), float(values[new]))
    return MovedRow(
        id=rows.identities[old].id or "",
        system=rows.systems[old],
        moved=moved,
        numbers=numbers,
        verdicts={name: (written.text(old), written.text(new)) for name, written in rows.verdicts.items()},
    )
