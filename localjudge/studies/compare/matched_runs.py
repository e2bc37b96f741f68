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

from localjudge.arrays import Floats
from localjudge.errors import UsageError
from localjudge.matching.run_rows import run_names
from localjudge.statistics.resampling import cell_means
from localjudge.studies.compare.cell import Cell, MatchedCell, MatchedRow, own_id, rows_of_cells
from localjudge.studies.compare.cell_keys import CellKey, keys_by_instruction, keys_by_response
from localjudge.studies.compare.compared_cells import ComparedCells, ScoredRows
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
class MatchedRuns:
    """The rows of two runs that belong together.

    Attributes:
        rows: the rows of both runs.
        names: the names of the runs.
        difference: what differs between the runs.
        cells: the n cells in which OLD has a row with a score.
        scored: the r rows of OLD with a score.
        uncompared: the rows that are compared with nothing.
        needs_ids: number of instructions on which rows belong together by their order, but the runs have
            different numbers of them.
        ignores_ids: whether rows belong together by their order, because no row of NEW has the id of a row of
            OLD in the same cell.
        alignment_notes: remarks on the rows of two judges that were aligned.
    """

    rows: ComparedRows
    names: tuple[str, ...]
    difference: RunDifference
    cells: ComparedCells
    scored: ScoredRows
    uncompared: UncomparedRows
    needs_ids: int
    ignores_ids: bool
    alignment_notes: tuple[str, ...]

    @property
    def change(self) -> Floats:
        """The mean change of the rows of each cell, where a lost one falls to its lowest score, [n, C]."""
        return cell_means(self.scored.change, self.scored.cell, cells=len(self.cells))

    @property
    def score(self) -> Floats:
        """The mean of the rows of each cell in NEW, where a lost one has its lowest score, [n, C]."""
        return cell_means(self.scored.new, self.scored.cell, cells=len(self.cells))


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
    matching = _match_cells(rows, names, settings=settings, by_order=by_order)
    if matching.ignores_ids and gate:
        raise UsageError(
            f"{names[1]}: no row of {names[1]} has the id of a row of {names[0]} on the same instruction; give "
            "the rows of both runs the same ids, or match them without ids with `by_order`"
        )
    every_row = rows_of_cells(matching.cells)
    uncompared = uncompared_rows(rows, every_row)
    _check_common_rows(rows, every_row, names=names, missing=uncompared.missing, gate=gate)

    cells = [cell for cell in matching.cells if _has_compared_row(rows, cell)]
    scored = ScoredRows.of_cells(rows, cells)
    changed_responses = sum(_changed_responses(rows, cell) for cell in cells)
    return MatchedRuns(
        rows=rows,
        names=names,
        difference=RunDifference(settings, changed_responses),
        cells=ComparedCells.of_rows(rows, cells, scored=scored),
        scored=scored,
        uncompared=uncompared,
        needs_ids=len({rows.group[cell.rows[0].old] for cell in cells if cell.needs_ids}),
        ignores_ids=matching.ignores_ids,
        alignment_notes=matching.alignment_notes,
    )


@dataclass(frozen=True, slots=True)
class _CellMatching:
    """The cells of OLD; `ignores_ids` and `alignment_notes` as in `MatchedRuns`."""

    cells: list[MatchedCell]
    ignores_ids: bool = False
    alignment_notes: tuple[str, ...] = ()


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
        by_response = keys_by_response(rows, names, settings=settings)
        # A cell is one response, which its texts have found.
        matched = [cell.match(no_ids) for cell in _cells(rows, by_response.keys)]
        return _CellMatching(matched, alignment_notes=by_response.notes)
    cells = _cells(rows, keys_by_instruction(rows, names))
    ids = no_ids if by_order else [own_id(identity) for identity in rows.identities]
    matched = [cell.match(ids) for cell in cells]
    if not any(cell.new for cell in cells) or _has_match(matched):
        return _CellMatching(matched)
    matched = [cell.match(no_ids) for cell in cells]
    return _CellMatching(matched, ignores_ids=True)


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
    return any(row.new is not None for row in rows_of_cells(cells))


def _has_compared_row(rows: ComparedRows, cell: MatchedCell) -> bool:
    """Return whether OLD has a row in a cell that has a score and counts."""
    return any(is_compared(rows, row) for row in cell.rows)


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


def _changed_responses(rows: ComparedRows, cell: MatchedCell) -> int:
    """Return how many rows with a score in both runs have a response that NEW does not have in the cell."""
    old: Counter[tuple[str | None, ...]] = Counter()
    new: Counter[tuple[str | None, ...]] = Counter()
    for row in cell.rows:
        if row.new is not None and is_compared(rows, row) and has_both_scores(rows, row):
            old[rows.identities[row.old].digests] += 1
            new[rows.identities[row.new].digests] += 1
    return (old - new).total()
