"""Two runs side by side: what differs between them, and what each of their cells holds.

Either the responses differ, as last week's and this week's, and the same judge has judged both; or the judge
differs, and has judged the same responses. If both differ, nothing tells which of them changed a score.

A cell is what both runs are compared on: the rows of one system on one instruction or, of two judges, one
response (`cell_keys`). `cell` says which of its rows belong together. A row of OLD that has a score is compared
with the row of NEW that belongs to it, and is lost if that row is missing or has no score. A row of OLD that
has no score, and a row of NEW that belongs to no row of OLD, are compared with nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.errors import UsageError
from localjudge.matching import UNNAMED
from localjudge.matching.run_rows import run_names
from localjudge.statistics.resampling import cell_means
from localjudge.studies.compare.cell import Cell, MatchedCell, MatchedRow, own_id
from localjudge.studies.compare.cell_keys import CellKey, keys_by_instruction, keys_by_response
from localjudge.studies.compare.compared_rows import ComparedRows
from localjudge.studies.compare.rows_without_score import (
    RowWithoutScore,
    UncomparedRows,
    has_both_scores,
    is_compared,
    uncompared_rows,
)
from localjudge.studies.compare.run_difference import RunDifference, SettingChange, changed_settings


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


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """The r rows of OLD that have a score and count, with the rows of NEW that belong to them.

    Attributes:
        cell: the cell of each row, [r].
        old: the numbers of each row in OLD, [r, C].
        new: the same in NEW, [r, C]; a lost row has its lowest score.
        is_lost: whether a row has no score in NEW, [r].
    """

    cell: Integers
    old: Floats
    new: Floats
    is_lost: Flags

    @property
    def change(self) -> Floats:
        """The change of each row, [r, C]; a lost one falls to its lowest score."""
        change: Floats = self.new - self.old
        return change


@dataclass(frozen=True, slots=True)
class _CellMatching:
    """The cells of OLD; `ignores_ids` and `notes` as in `MatchedRuns`."""

    cells: list[MatchedCell]
    ignores_ids: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MatchedRuns:
    """The rows of two runs that belong together.

    Attributes:
        rows: the rows of both runs.
        names: the names of the runs.
        difference: what differs between the runs.
        cells: the n cells in which OLD has a row with a score.
        scored: the r rows of OLD with a score.
        row_pairs: the m rows of OLD and of NEW that belong together and have a score in both, [m, 2].
        uncompared: the rows that are compared with nothing.
        needs_ids: number of instructions on which rows belong together by their order, but the runs have
            different numbers of them.
        ignores_ids: whether rows belong together by their order, because no row of NEW has the id of a row of
            OLD in the same cell.
        notes: remarks on the rows of two judges that were aligned.
    """

    rows: ComparedRows
    names: tuple[str, ...]
    difference: RunDifference
    cells: ComparedCells
    scored: ScoredRows
    row_pairs: Integers
    uncompared: UncomparedRows
    needs_ids: int
    ignores_ids: bool
    notes: tuple[str, ...]

    @property
    def change(self) -> Floats:
        """The mean change of the rows of each cell, where a lost one falls to its lowest score, [n, C]."""
        return cell_means(self.scored.change, self.scored.cell, len(self.cells))

    @property
    def score(self) -> Floats:
        """The mean of the rows of each cell in NEW, where a lost one has its lowest score, [n, C]."""
        return cell_means(self.scored.new, self.scored.cell, len(self.cells))


def by_instruction(values: Floats, group: Integers) -> Floats:
    """Return the mean of each column on each instruction, [instructions, C].

    Args:
        values: the columns of some cells, [n, C].
        group: the instruction of each cell, [n].
    """
    instructions, index = np.unique(group, return_inverse=True)
    return cell_means(values, index, len(instructions))


def match_runs(rows: ComparedRows, *, gate: bool = False, by_order: bool = False) -> MatchedRuns:
    """Match the rows of two runs.

    Args:
        rows: the rows of both runs.
        gate: for a gate, which counts lost rows: in NEW, no row that counts needs to have a score.
        by_order: take no row as having an id, so that the rows of a cell belong together by their order.

    Raises:
        UsageError: the judge and the responses differ; OLD has no score; the runs have no row in common; or
            their systems cannot be told apart.
    """
    names = tuple(run_names(rows.source.folders))
    settings = changed_settings(rows.source.manifests)
    matching = _match_cells(rows, names, settings, by_order=by_order)
    if matching.ignores_ids and gate:
        raise UsageError(
            f"{names[1]}: no row of {names[1]} has the id of a row of {names[0]} on the same instruction; give "
            "the rows of both runs the same ids, or match them without ids with `by_order`"
        )
    every_row = [row for cell in matching.cells for row in cell.rows]
    uncompared = uncompared_rows(rows, every_row)
    _check_common_rows(rows, every_row, names, uncompared.missing, gate=gate)

    cells = [cell for cell in matching.cells if any(is_compared(rows, row) for row in cell.rows)]
    scored = _scored_rows(rows, cells)
    row_pairs = _row_pairs(rows, cells)
    return MatchedRuns(
        rows=rows,
        names=names,
        difference=RunDifference(settings, sum(_changed_responses(rows, cell) for cell in cells)),
        cells=_compared_cells(rows, cells, scored, row_pairs),
        scored=scored,
        row_pairs=row_pairs,
        uncompared=uncompared,
        needs_ids=len({rows.group[cell.rows[0].old] for cell in cells if cell.needs_ids}),
        ignores_ids=matching.ignores_ids,
        notes=matching.notes,
    )


def _match_cells(
    rows: ComparedRows, names: Sequence[str], settings: Sequence[SettingChange], *, by_order: bool
) -> _CellMatching:
    """Return which rows belong together in each cell in which OLD has a row.

    Args:
        rows: the rows of both runs.
        names: the names of the runs.
        settings: the settings of the judge that differ.
        by_order: as for `match_runs`.
    """
    no_ids: list[str | None] = [None] * len(rows.identities)
    if settings:
        by_response = keys_by_response(rows, names, settings)
        # A cell is one response, which its texts have found.
        matched = [cell.match(no_ids) for cell in _cells(rows, by_response.keys)]
        return _CellMatching(matched, ignores_ids=False, notes=by_response.notes)
    cells = _cells(rows, keys_by_instruction(rows, names))
    ids = no_ids if by_order else [own_id(identity) for identity in rows.identities]
    matched = [cell.match(ids) for cell in cells]
    if not any(cell.new for cell in cells) or _has_match(matched):
        return _CellMatching(matched, ignores_ids=False, notes=())
    matched = [cell.match(no_ids) for cell in cells]
    return _CellMatching(matched, ignores_ids=True, notes=())


def _cells(rows: ComparedRows, keys: Sequence[CellKey]) -> list[Cell]:
    """Return the cells in which OLD has a row, whether that has a score or not."""
    cells: dict[CellKey, Cell] = defaultdict(Cell)
    for row in rows.rows_of(0):
        if keys[row] is not None:
            cells[keys[row]].old.append(row)
    for row in rows.rows_of(1):
        if keys[row] in cells:
            cells[keys[row]].new.append(row)
    return list(cells.values())


def _has_match(cells: Sequence[MatchedCell]) -> bool:
    """Return whether a row of NEW belongs to a row of OLD in any cell."""
    return any(row.new is not None for cell in cells for row in cell.rows)


def _check_common_rows(
    rows: ComparedRows,
    every_row: Sequence[MatchedRow],
    names: Sequence[str],
    missing: Sequence[RowWithoutScore],
    *,
    gate: bool,
) -> None:
    """Check that OLD has a score, and that the runs have a row in common.

    A gate counts lost rows. So it only needs to see that NEW is of the same rows: one that failed in it, or one
    that has a score in both runs, whether it counts or not.

    Args:
        rows: the rows of both runs.
        every_row: each row of OLD in a cell with its row of NEW.
        names: the names of the runs.
        missing: the rows of OLD that have a score, but none in NEW.
        gate: whether it is for a gate.

    Raises:
        UsageError: OLD has no score, or the runs have no row in common.
    """
    compared = [row for row in every_row if is_compared(rows, row)]
    if not compared:
        raise UsageError(f"{names[0]}: has no row with a score to compare")
    if any(has_both_scores(rows, row) for row in compared):
        return
    failed = [row for row in missing if not row.is_absent]
    if gate and (failed or any(has_both_scores(rows, row) for row in every_row)):
        return
    problem = f"{names[1]}: has no row of {names[0]} with a score"
    if failed:
        raise UsageError(
            f"{problem}; {len(failed):,} of {len(missing):,} failed in {names[1]}: {failed[0].error} (such as "
            f"id {failed[0].id})"
        )
    raise UsageError(f"{problem}; compare runs of the same systems on the same instructions")


def _scored_rows(rows: ComparedRows, cells: Sequence[MatchedCell]) -> ScoredRows:
    """Return the rows of OLD that have a score and count, in the order of their cells."""
    cell_of_row = []
    old_rows = []
    new_rows = []  # -1 for a lost row
    for index, cell in enumerate(cells):
        for row in cell.rows:
            if not is_compared(rows, row):
                continue
            cell_of_row.append(index)
            old_rows.append(row.old)
            if row.new is not None and rows.has_score(row.new):
                new_rows.append(row.new)
            else:
                new_rows.append(-1)
    is_lost = np.array(new_rows) < 0
    values = rows.values
    lowest = rows.lowest[old_rows]
    new = lowest.copy()
    new[~is_lost] = values[np.array(new_rows)[~is_lost]]
    return ScoredRows(
        cell=np.array(cell_of_row),
        old=values[old_rows],
        # Other criteria in NEW can make a score lower than the lowest possible one in OLD.
        new=np.maximum(new, lowest),
        is_lost=is_lost,
    )


def _row_pairs(rows: ComparedRows, cells: Sequence[MatchedCell]) -> Integers:
    """Return the rows of OLD and of NEW that belong together, have a score in both and count, [m, 2]."""
    pairs = [
        (row.old, row.new)
        for cell in cells
        for row in cell.rows
        if is_compared(rows, row) and has_both_scores(rows, row)
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _compared_cells(
    rows: ComparedRows, cells: Sequence[MatchedCell], scored: ScoredRows, row_pairs: Integers
) -> ComparedCells:
    """Return the cells with their means.

    Args:
        rows: the rows of both runs.
        cells: the cells in which OLD has a row with a score.
        scored: the rows of OLD with a score.
        row_pairs: those that have a score in both runs, with their rows of NEW, [m, 2].
    """
    values = rows.values
    cell_of_pair = scored.cell[~scored.is_lost]
    first_rows = np.array([_first_rows(rows, cell) for cell in cells])
    systems = _systems(rows, cells, first_rows[:, 0].tolist())
    names = tuple(dict.fromkeys(systems))
    return ComparedCells(
        group=_instructions(rows, first_rows[:, 0].tolist()),
        systems=names,
        system=np.array([names.index(name) for name in systems]),
        old=cell_means(values[row_pairs[:, 0]], cell_of_pair, len(cells)),
        new=cell_means(values[row_pairs[:, 1]], cell_of_pair, len(cells)),
        first_rows=first_rows,
    )


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


def _changed_responses(rows: ComparedRows, cell: MatchedCell) -> int:
    """Return how many rows with a score in both runs have a response that NEW does not have in the cell."""
    old: Counter[tuple[str | None, ...]] = Counter()
    new: Counter[tuple[str | None, ...]] = Counter()
    for row in cell.rows:
        if row.new is not None and is_compared(rows, row) and has_both_scores(rows, row):
            old[rows.identities[row.old].digests] += 1
            new[rows.identities[row.new].digests] += 1
    return (old - new).total()
