"""Two runs side by side: what differs between them, and what each of their cells holds.

Either the responses differ, as last week's and this week's, and the same judge has judged both; or the judge
differs, and has judged the same responses. If both differ, nothing tells which of them changed a score.

A cell is what both runs are compared on: the rows of one system on one instruction or, of two judges, one
response. `cell` says which of its rows belong together. A row of OLD that has a score is compared with the row
of NEW that belongs to it, and is lost if that row is missing or has no score. A row of OLD that has no score,
and a row of NEW that belongs to no row of OLD, are compared with nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.errors import UsageError
from localjudge.matching.run_alignment import align_runs
from localjudge.matching.run_rows import run_names
from localjudge.matching.system_names import UNNAMED
from localjudge.runs.run_manifest import RunManifest
from localjudge.statistics.resampling import cell_means
from localjudge.studies.compare.cell import Cell, MatchedCell, MatchedRow, own_id
from localjudge.studies.compare.compared_rows import ComparedRows
from localjudge.system.quantities import counted

Differs = Literal["nothing", "responses", "judge"]
Keys = list[Hashable]
"""The cell of each row; None for a row whose cell is not known."""


@dataclass(frozen=True, slots=True)
class RowWithoutScore:
    """A row without a score: its id, its system (of a pair, whose preference it is), and why it has none.

    `is_absent` is True if there is no such row at all.
    """

    id: str
    system: str
    reason: str
    is_absent: bool = False


@dataclass(frozen=True, slots=True)
class MatchedRuns:
    """The n cells in which OLD has a score, and its r rows with a score.

    Attributes:
        rows: the rows of both runs.
        names: the names of the runs.
        differs: what differs between the runs.
        how: what differs, in words.
        group: the number of each cell's instruction in the order of their texts' digests, [n], so that it does
            not depend on the order of the rows.
        systems: the names of the systems; of pairs, whose preference counts.
        system: the place of each cell's system in `systems`, [n].
        old: the mean of each column in OLD, of the rows with a score in both runs, [n, C]; NaN without any.
        new: the same in NEW.
        cell: the cell of each row, [r].
        row_old: the numbers of each row in OLD, [r, C].
        row_new: the same in NEW, [r, C]; a lost row has its lowest score.
        is_lost: whether a row has no score in NEW, [r].
        row_pairs: the rows of OLD and of NEW that belong together, [m, 2].
        places: the first of these in each cell, [n, 2]; of a cell without any, a row of OLD and -1.
        missing: the rows of OLD that have a score, but none in NEW.
        failed: the rows of OLD that failed, which are compared with nothing.
        unmatched: the rows of NEW without a score that belong to no row of OLD.
        only_new: number of rows of NEW with a score that belong to no row of OLD.
        needs_ids: number of instructions on which rows belong together by their order, but the runs have
            different numbers of them.
        notes: remarks on the matching.
    """

    rows: ComparedRows
    names: tuple[str, ...]
    differs: Differs
    how: str
    group: Integers
    systems: tuple[str, ...]
    system: Integers
    old: Floats
    new: Floats
    cell: Integers
    row_old: Floats
    row_new: Floats
    is_lost: Flags
    row_pairs: Integers
    places: Integers
    missing: tuple[RowWithoutScore, ...]
    failed: tuple[RowWithoutScore, ...]
    unmatched: tuple[RowWithoutScore, ...]
    only_new: int
    needs_ids: int
    notes: tuple[str, ...]

    @property
    def in_both(self) -> Flags:
        """The cells with a row that both runs have judged, [n]."""
        in_both: Flags = self.places[:, 1] >= 0
        return in_both

    @property
    def change(self) -> Floats:
        """The mean change of the rows of each cell, where a lost one falls to its lowest score, [n, C]."""
        return cell_means(self.row_change, self.cell, len(self.group))

    @property
    def score(self) -> Floats:
        """The mean of the rows of each cell in NEW, where a lost one has its lowest score, [n, C]."""
        return cell_means(self.row_new, self.cell, len(self.group))

    @property
    def row_change(self) -> Floats:
        """The change of each row, [r, C]; a lost one falls to its lowest score."""
        return self.row_new - self.row_old

    @property
    def whose(self) -> str:
        """Whose columns are compared, in words; empty for one system without a name."""
        if len(self.systems) > 1:
            return f"{len(self.systems)} systems together"
        return "" if self.systems[0] == UNNAMED else self.systems[0]


def by_instruction(cells: Floats, group: Integers) -> Floats:
    """Return the mean of each column on each instruction, [instructions, C].

    Args:
        cells: the columns, [n, C].
        group: the instruction of each cell, [n].
    """
    return cell_means(cells, np.unique(group, return_inverse=True)[1], len(np.unique(group)))


def match_runs(rows: ComparedRows, gate: bool = False, by_order: bool = False) -> MatchedRuns:
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
    judges = [manifest.judge for manifest in rows.source.manifests]
    different = [name for name, value in judges[0].items() if value != judges[1][name]]
    notes: tuple[str, ...] = ()
    if different:
        how = _how_judges_differ(rows.source.manifests, different)
        keys, notes = _by_response(rows, names, how)
    else:
        how = "the judge is the same"
        keys = _by_instruction(rows, names)
    # Of two judges, a cell is one response, which its texts have found.
    ids = [None if by_order or different else own_id(identity) for identity in rows.identities]
    cells_of_rows = _cells(rows, keys)
    every_cell = [cell.match(ids) for cell in cells_of_rows]
    if _no_id_is_in_both(cells_of_rows, every_cell):
        same = f"no row of {names[1]} has the id of a row of {names[0]} on the same instruction"
        if gate:
            raise UsageError(
                f"{names[1]}: {same}; give the rows of both runs the same ids, or match them without ids with "
                "`by_order`"
            )
        notes = (*notes, f"{same}: rows are matched by their order")
        every_cell = [cell.match([None] * len(ids)) for cell in cells_of_rows]
    unread = _Unread(rows, every_cell)
    missing = _missing(rows, every_cell, unread, names[1])
    if not any(_is_compared(rows, row) for cell in every_cell for row in cell.rows):
        raise UsageError(f"{names[0]}: has no row with a score to compare")
    has_common = any(_has_both(rows, row) for cell in every_cell for row in cell.rows)
    cells = [cell for cell in every_cell if any(_is_compared(rows, row) for row in cell.rows)]
    compared = [(at, row) for at, cell in enumerate(cells) for row in cell.rows if _is_compared(rows, row)]
    common = [(at, row) for at, row in compared if _has_both(rows, row)]
    is_judged = any(not row.is_absent for row in missing)
    if not common and not (gate and (is_judged or has_common)):
        raise UsageError(_nothing_in_common(names, missing))

    row_pairs = np.array([(row.old, row.new) for _, row in common], dtype=np.int64).reshape(-1, 2)
    changed = sum(_changed(rows, cell) for cell in cells)
    if not different and len(common):
        of = counted(len(common), rows.source.manifests[0].rubric.mode.item)
        how = f"the judge is the same, and the responses changed in {changed:,} of {of}"
        if not changed:
            how = "the judge and all responses" + " with a score in both runs" * bool(missing) + " are the same"
    of_cell = np.array([at for at, _ in compared])
    old_rows = np.array([row.old for _, row in compared])
    is_lost = np.array([not _has_both(rows, row) for _, row in compared])
    after = rows.lowest[old_rows]
    after[~is_lost] = rows.values[row_pairs[:, 1]]
    places = np.array([_first_place(rows, cell) for cell in cells])
    systems = _systems(rows, cells, places[:, 0].tolist())
    there = tuple(dict.fromkeys(systems))
    failed = [row for row in rows.rows_of(0) if not rows.has_score(row) and rows.counts[row]]
    extra = _extra(rows, every_cell, unread)
    return MatchedRuns(
        rows=rows,
        names=names,
        differs="judge" if different else "responses" if changed else "nothing",
        how=how,
        group=_instructions(rows, places[:, 0].tolist()),
        systems=there,
        system=np.array([there.index(name) for name in systems]),
        old=cell_means(rows.values[old_rows[~is_lost]], of_cell[~is_lost], len(cells)),
        new=cell_means(after[~is_lost], of_cell[~is_lost], len(cells)),
        cell=of_cell,
        row_old=rows.values[old_rows],
        # Other criteria in NEW can make a score lower than the lowest possible one in OLD.
        row_new=np.maximum(after, rows.lowest[old_rows]),
        is_lost=is_lost,
        row_pairs=row_pairs,
        places=places,
        missing=missing,
        failed=tuple(_row_without_score(rows, row) for row in failed),
        unmatched=tuple(_row_without_score(rows, row) for row in extra if not rows.has_score(row)),
        only_new=sum(map(rows.has_score, extra)),
        needs_ids=len({rows.group[cell.rows[0].old] for cell in cells if cell.needs_ids}),
        notes=notes,
    )


def _cells(rows: ComparedRows, keys: Keys) -> list[Cell]:
    """Return the cells in which OLD has a row, whether that has a score or not."""
    cells: dict[Hashable, Cell] = defaultdict(Cell)
    for row in rows.rows_of(0):
        if keys[row] is not None:
            cells[keys[row]].old.append(row)
    for row in rows.rows_of(1):
        if keys[row] in cells:
            cells[keys[row]].new.append(row)
    return list(cells.values())


def _no_id_is_in_both(cells: Sequence[Cell], matched: Sequence[MatchedCell]) -> bool:
    """Return whether NEW has rows in the cells of OLD, but none of them belongs to a row of OLD."""
    has_new = any(cell.new for cell in cells)
    return has_new and all(row.new is None for cell in matched for row in cell.rows)


def _first_place(rows: ComparedRows, cell: MatchedCell) -> tuple[int, int]:
    """Return the first rows of a cell that both runs have judged; without any, a row of OLD and -1."""
    compared = [row for row in cell.rows if _is_compared(rows, row)]
    for row in compared:
        if row.new is not None and rows.has_score(row.new):
            return row.old, row.new
    return compared[0].old, -1


def _instructions(rows: ComparedRows, chosen: Sequence[int]) -> Integers:
    """Return the number of the instruction of each of these rows, by the order of the digests."""
    digests = [rows.identities[row].group or rows.identities[row].where for row in chosen]
    numbers: Integers = np.unique(digests, return_inverse=True)[1]
    return numbers


def _is_compared(rows: ComparedRows, row: MatchedRow) -> bool:
    """Return whether a row of OLD has a score and counts."""
    return rows.has_score(row.old) and bool(rows.counts[row.old])


def _has_both(rows: ComparedRows, row: MatchedRow) -> bool:
    """Return whether a row has a score in both runs."""
    return rows.has_score(row.old) and row.new is not None and rows.has_score(row.new)


def _nothing_in_common(names: Sequence[str], missing: Sequence[RowWithoutScore]) -> str:
    """Return why two runs cannot be compared, and what to do."""
    problem = f"{names[1]}: has no row of {names[0]} with a score"
    lost = [row for row in missing if not row.is_absent]
    if lost:
        return f"{problem}; {len(lost):,} of {len(missing):,} {lost[0].reason} (such as id {lost[0].id})"
    return f"{problem}; compare runs of the same systems on the same instructions"


def _changed(rows: ComparedRows, cell: MatchedCell) -> int:
    """Return how many rows with a score in both runs have a response that NEW does not have in the cell."""
    common = [row for row in cell.rows if _is_compared(rows, row) and _has_both(rows, row)]
    old = Counter(rows.identities[row.old].digests for row in common)
    new = Counter(rows.identities[row.new].digests for row in common if row.new is not None)
    return (old - new).total()


def _systems(rows: ComparedRows, cells: Sequence[MatchedCell], first: Sequence[int]) -> list[str]:
    """Return the name of the system of each cell; both names, if it has another one in NEW.

    Args:
        rows: the rows of both runs.
        cells: the cells.
        first: a row of OLD in each cell.
    """
    old = [rows.systems[row] for row in first]
    names = {name: {name: None} for name in old}
    for name, cell in zip(old, cells, strict=True):
        names[name] |= {rows.systems[row.new]: None for row in cell.rows if row.new is not None}
    shown = {name: " → ".join(each for each in both if each != UNNAMED) for name, both in names.items()}
    return [shown[name] or UNNAMED for name in old]


def _row_without_score(rows: ComparedRows, row: int, reason: str = "") -> RowWithoutScore:
    return RowWithoutScore(rows.identities[row].id or "", rows.systems[row], reason or rows.reasons[row])


class _Unread:
    """The rows of NEW that could not be read and stand for a missing row of OLD.

    Their instruction is not known, so they belong to no cell.

    Attributes:
        row_of: for a row of OLD without a row in its cell of NEW, the unreadable row, if there is one.
    """

    def __init__(self, rows: ComparedRows, cells: Sequence[MatchedCell]) -> None:
        self._rows = rows
        self._by_id: dict[str | None, list[int]] = defaultdict(list)
        for row in rows.rows_of(1):
            if rows.group[row] < 0:
                self._by_id[rows.identities[row].id].append(row)
        scored = rows.identities[: len(rows.turned)]
        self._systems = {name for identity in scored for name in identity.systems}
        self.row_of = dict[int, int]()
        for matched in (row for cell in cells for row in cell.rows):
            found = self._find(matched.old) if matched.new is None else None
            if found is not None:
                self.row_of[matched.old] = found

    def _find(self, old: int) -> int | None:
        """Return the row of NEW that is missing where a row of OLD is.

        A pair is not formed if one of its responses cannot be read; then it is the row of this response.
        """
        identity = self._rows.identities[old]
        name = identity.id or ""
        others = self._systems - {*identity.systems, None}
        for part in (name, *name.split(" vs ")):
            for row in self._by_id.get(part, ()):
                if not {*self._rows.identities[row].systems} & others:
                    return row
        return None


def _missing(
    rows: ComparedRows, cells: Sequence[MatchedCell], unread: _Unread, new: str
) -> tuple[RowWithoutScore, ...]:
    """Return the rows of OLD that have a score, but none in NEW, each with the reason."""
    missing = list[RowWithoutScore]()
    for row in (row for cell in cells for row in cell.rows):
        if not _is_compared(rows, row) or _has_both(rows, row):
            continue
        lost = unread.row_of.get(row.old) if row.new is None else row.new
        if lost is None:
            absent = _row_without_score(rows, row.old, f"not in {new}")
            missing.append(replace(absent, is_absent=True))
        else:
            missing.append(_row_without_score(rows, row.old, f"failed in {new}: {rows.reasons[lost]}"))
    return tuple(missing)


def _extra(rows: ComparedRows, cells: Sequence[MatchedCell], unread: _Unread) -> list[int]:
    """Return the rows of NEW that belong to no row of OLD, nor to one that could not be read in a run."""
    matched = {row.new for cell in cells for row in cell.rows} | {*unread.row_of.values()}
    known = {_name(rows, row) for row in rows.rows_of(0)}
    unread_in_old = {_name(rows, row) for row in rows.rows_of(0) if rows.group[row] < 0}
    extra = []
    for row in rows.rows_of(1):
        same = known if rows.group[row] < 0 else unread_in_old
        if row not in matched and _name(rows, row) not in same:
            extra.append(row)
    return extra


def _name(rows: ComparedRows, row: int) -> tuple[str | None, tuple[str | None, ...]]:
    return rows.identities[row].id, rows.identities[row].systems


def _by_instruction(rows: ComparedRows, names: Sequence[str]) -> Keys:
    """Return the cell of each row: its instruction, and its system if a run has several.

    Raises:
        UsageError: a run has several systems, and none of them is in both.
    """
    systems = [
        {rows.identities[row].systems for row in rows.rows_of(run) if rows.group[row] >= 0} for run in (0, 1)
    ]
    is_one = all(len(of_run) == 1 for of_run in systems)
    if not is_one and systems[1] and not systems[0] & systems[1]:
        raise UsageError(
            f"{names[1]}: has no system of {names[0]}; compare runs of the same systems, or of one system each"
        )
    return [
        None if group < 0 else (group, None if is_one else identity.systems)
        for group, identity in zip(rows.group.tolist(), rows.identities, strict=True)
    ]


def _by_response(rows: ComparedRows, names: Sequence[str], how: str) -> tuple[Keys, tuple[str, ...]]:
    """Return the cell of each row, of equal texts in both runs, and remarks.

    Raises:
        UsageError: NEW has another response in the place of one of OLD.
    """
    known = [[row for row in rows.rows_of(run) if rows.identities[row].has_texts] for run in (0, 1)]
    common, notes = align_runs(
        [[rows.identities[row] for row in members] for members in known], rows.source.manifests
    )
    keys: Keys = [(row,) if rows.has_score(row) else None for row in range(len(rows.run))]
    for cell, pair in enumerate(common):
        for members, place in zip(known, pair, strict=True):
            keys[members[place]] = cell
    left: list[dict[Hashable, str]] = [{}, {}]
    for run in (0, 1):
        for row in rows.rows_of(run):
            if rows.has_score(row) and keys[row] == (row,):
                identity = rows.identities[row]
                left[run][identity.id, identity.systems] = identity.where
    if both := left[0].keys() & left[1].keys():
        count = sum(map(rows.has_score, rows.rows_of(0)))
        raise UsageError(
            f"{names[1]}: {how}, and so did {counted(len(both), 'response')} of {count:,} (such as "
            f"{left[0][next(iter(both))]}), so nothing tells which of them changed a score; judge the same "
            "responses with both judges, or all of them with one"
        )
    return keys, notes


def _how_judges_differ(manifests: Sequence[RunManifest], different: Sequence[str]) -> str:
    changes = []
    for name in different:
        old, new = (
            {"model": manifest.model.name, "rubric": manifest.rubric.name}.get(name, manifest.judge[name])
            for manifest in manifests
        )
        changes.append(f"{name} {old} → {new}" if old != new else f"{name} {old}, edited")
    return f"the judge changed ({', '.join(changes)})"
