"""The cells and the rows of two runs in numbers: what OLD has, and what NEW has in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.matching.system_names import UNNAMED
from localjudge.statistics.resampling import cell_means
from localjudge.studies.compare.cell import MatchedCell
from localjudge.studies.compare.compared_rows import ComparedRows
from localjudge.studies.compare.rows_without_score import is_compared


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """The r rows of OLD that have a score and count, with the rows of NEW that belong to them.

    Attributes:
        cell: the index of each row's cell, [r].
        old: the numbers of each row in OLD, [r, C].
        new: the same in NEW, [r, C]; a lost row has its lowest score.
        is_lost: whether a row has no score in NEW, [r].
        pairs: the rows of OLD and of NEW that have a score in both, [m, 2].
    """

    cell: Integers
    old: Floats
    new: Floats
    is_lost: Flags
    pairs: Integers

    @classmethod
    def of_cells(cls, rows: ComparedRows, cells: Sequence[MatchedCell]) -> ScoredRows:
        """Return the rows of OLD that have a score and count, in the order of their cells."""
        cell_of_row = []
        old_rows = []
        new_rows = []
        for index, cell in enumerate(cells):
            for row in cell.rows:
                if not is_compared(rows, row):
                    continue
                cell_of_row.append(index)
                old_rows.append(row.old)
                if row.new is not None and rows.has_score(row.new):
                    new_rows.append(row.new)
                else:
                    new_rows.append(-1)  # it is lost
        matched = np.array([old_rows, new_rows], dtype=np.int64).T  # [r, 2]
        is_lost = matched[:, 1] < 0
        pairs = matched[~is_lost]
        values = rows.values
        lowest = rows.lowest[old_rows]
        new = lowest.copy()
        new[~is_lost] = values[pairs[:, 1]]
        return cls(
            cell=np.array(cell_of_row),
            old=values[old_rows],
            # Other criteria in NEW can make a score lower than the lowest possible one in OLD.
            new=np.maximum(new, lowest),
            is_lost=is_lost,
            pairs=pairs,
        )

    @property
    def change(self) -> Floats:
        """The change of each row, [r, C]; a lost one falls to its lowest score."""
        change: Floats = self.new - self.old
        return change


@dataclass(frozen=True, slots=True)
class ComparedCells:
    """The n cells in which OLD has a row with a score.

    Attributes:
        group: the number of each cell's instruction in the order of their texts' digests, [n], so that it does
            not depend on the order of the rows.
        systems: the names of the systems; of pairs, of the preferences.
        system: the index of each cell's system in `systems`, [n].
        old: the mean of each column in OLD, of the rows with a score in both runs, [n, C]; NaN without any.
        new: the same in NEW.
        first_rows: the first row of OLD and of NEW that belong together and have a score in both runs, [n, 2];
            of a cell without any, a row of OLD and -1.
    """

    group: Integers
    systems: tuple[str, ...]
    system: Integers
    old: Floats
    new: Floats
    first_rows: Integers

    def __len__(self) -> int:
        return len(self.group)

    @classmethod
    def of_rows(cls, rows: ComparedRows, cells: Sequence[MatchedCell], scored: ScoredRows) -> ComparedCells:
        """Return the cells with their means.

        Args:
            rows: the rows of both runs.
            cells: the cells in which OLD has a row with a score.
            scored: these rows.
        """
        values = rows.values
        cell_of_pair = scored.cell[~scored.is_lost]
        first_rows = np.array([_first_rows(rows, cell) for cell in cells])
        systems = _systems(rows, cells, first_rows=first_rows[:, 0].tolist())
        names = tuple(dict.fromkeys(systems))
        return cls(
            group=_instructions(rows, first_rows[:, 0].tolist()),
            systems=names,
            system=np.array([names.index(name) for name in systems]),
            old=cell_means(values[scored.pairs[:, 0]], cell_of_pair, cells=len(cells)),
            new=cell_means(values[scored.pairs[:, 1]], cell_of_pair, cells=len(cells)),
            first_rows=first_rows,
        )

    @property
    def in_both(self) -> Flags:
        """The cells with a row that both runs have judged, [n]."""
        in_both: Flags = self.first_rows[:, 1] >= 0
        return in_both

    @property
    def change(self) -> Floats:
        """The change of each column, of the rows with a score in both runs, [n, C]; NaN without any."""
        change: Floats = self.new - self.old
        return change


def by_instruction(values: Floats, group: Integers) -> Floats:
    """Return the mean of each column on each instruction, [instructions, C].

    Args:
        values: the columns of some cells, [n, C].
        group: the instruction of each cell, [n].
    """
    instructions, index = np.unique(group, return_inverse=True)
    return cell_means(values, index, cells=len(instructions))


def _first_rows(rows: ComparedRows, cell: MatchedCell) -> tuple[int, int]:
    """Return the first rows of a cell that both runs have judged; without any, a row of OLD and -1."""
    compared = [row for row in cell.rows if is_compared(rows, row)]
    for row in compared:
        if row.new is not None and rows.has_score(row.new):
            return row.old, row.new
    return compared[0].old, -1


def _instructions(rows: ComparedRows, first_rows: Sequence[int]) -> Integers:
    """Return the number of the instruction of each of these rows, by the order of the digests."""
    digests = [rows.identities[row].group or rows.identities[row].where for row in first_rows]
    numbers: Integers = np.unique(digests, return_inverse=True)[1]
    return numbers


def _systems(rows: ComparedRows, cells: Sequence[MatchedCell], first_rows: Sequence[int]) -> list[str]:
    """Return the name of the system of each cell; both names, if it has another one in NEW.

    Args:
        rows: the rows of both runs.
        cells: the cells.
        first_rows: a row of OLD in each cell.
    """
    names: dict[str, list[str]] = {}
    for first, cell in zip(first_rows, cells, strict=True):
        in_both_runs = names.setdefault(rows.systems[first], [rows.systems[first]])
        for row in cell.rows:
            if row.new is not None and rows.systems[row.new] not in in_both_runs:
                in_both_runs.append(rows.systems[row.new])
    joined: dict[str, str] = {}
    for old_name, in_both_runs in names.items():
        joined[old_name] = " → ".join(name for name in in_both_runs if name != UNNAMED) or UNNAMED
    return [joined[rows.systems[first]] for first in first_rows]
