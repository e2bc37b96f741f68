"""Two runs side by side: what differs between them, and what each of their cells holds.

Either the responses differ, as last week's and this week's, and the same judge has judged both; or the judge
differs, and has judged the same responses. If both differ, nothing tells which of them changed a score.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.errors import UsageError
from localjudge.matching.identity import Identity
from localjudge.matching.row_index import align_runs
from localjudge.matching.run_rows import UnscoredRow, run_names
from localjudge.matching.system_names import UNNAMED
from localjudge.runs.run_manifest import RunManifest
from localjudge.statistics.resampling import cell_means
from localjudge.studies.compare.compared_rows import ComparedRows
from localjudge.studies.compare.matched_cells import Cell, MatchedCell
from localjudge.system.quantities import counted

Differs = Literal["nothing", "responses", "judge"]
Keys = list[Hashable]
"""The cell of each row; None for a row whose cell is not known."""


@dataclass(frozen=True, slots=True)
class RowWithoutScore:
    """A row without a score: its id, its system (of a pair, whose preference it is), and why it has none."""

    id: str
    system: str
    reason: str


@dataclass(frozen=True, slots=True)
class MatchedRuns:
    """The n cells in which OLD has a score.

    Attributes:
        rows: the rows of both runs.
        names: the names of the runs.
        differs: what differs between the runs.
        how: what differs, in words.
        group: the number of each cell's instruction, [n].
        systems: the names of the systems; of pairs, whose preference counts.
        system: the place of each cell's system in `systems`, [n].
        old: the mean of each column in OLD, of the rows with a score in both runs, [n, C]; NaN without any.
        new: the same in NEW, with its further rows.
        change: the mean change where each row without a score in NEW counts as the lowest score, [n, C].
        lowest: number of rows of each cell that count as the lowest score, [n].
        row_pairs: the rows of OLD and of NEW that belong together, [m, 2].
        places: the first of these in each cell, [n, 2]; -1 without one.
        missing: the rows of OLD that have a score, but none in NEW.
        failed: the rows of OLD that failed, which are compared with nothing.
        unmatched: the rows of NEW that failed and belong to no row of OLD.
        only_new: number of rows of NEW with a score that belong to no cell.
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
    change: Floats
    lowest: Integers
    row_pairs: Integers
    places: Integers
    missing: tuple[RowWithoutScore, ...]
    failed: tuple[RowWithoutScore, ...]
    unmatched: tuple[RowWithoutScore, ...]
    only_new: int
    notes: tuple[str, ...]

    @property
    def in_both(self) -> Flags:
        """The cells with a row that both runs have judged, [n]."""
        found: Flags = self.places[:, 1] >= 0
        return found

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


def match_runs(rows: ComparedRows) -> MatchedRuns:
    """Match the rows of two runs.

    Raises:
        UsageError: the judge and the responses differ; the runs have no row in common; or their systems cannot
            be told apart.
    """
    names = tuple(run_names(rows.source.folders))
    scored = [np.flatnonzero((rows.source.run == run) & rows.chosen).tolist() for run in (0, 1)]
    failed = [[each for each, _ in rows.unscored if each.run == run] for run in (0, 1)]
    judges = [manifest.judge for manifest in rows.source.manifests]
    different = [name for name, value in judges[0].items() if value != judges[1][name]]
    notes: tuple[str, ...] = ()
    if different:
        how = _how_judges_differ(rows.source.manifests, different)
        keys, keys_of_failed, notes = _by_response(rows, scored, failed, names, how)
    else:
        keys, keys_of_failed = _by_instruction(rows, scored, failed, names)
    cells: dict[Hashable, Cell] = {keys[row]: Cell() for row in scored[0]}
    for run in (0, 1):
        for row in scored[run]:
            if keys[row] in cells:
                cells[keys[row]].scored[run].append(row)
        for each, key in zip(failed[run], keys_of_failed[run], strict=True):
            if key in cells:
                cells[key].failed[run].append(each)
    ids = [each.id for each in rows.identities]
    unread = {each.identity.id for each in failed[0] if each.group is None}
    matched = [cell.match(ids, unread) for cell in cells.values()]
    row_pairs = np.array([pair for cell in matched for pair in cell.pairs], dtype=np.int64).reshape(-1, 2)
    missing, unmatched = _without_score(rows, matched, failed, names[1])
    if not len(row_pairs):
        said = "compare runs on the same instructions"
        if lost := next((each for each in missing if each.reason != _absent(names[1])), None):
            said = f"{lost.id} {lost.reason}"
        raise UsageError(f"{names[1]}: has no row of {names[0]} with a score; {said}")
    changed = sum(_changed(rows.identities, cell.pairs) for cell in matched)
    if not different:
        of = counted(len(row_pairs), rows.source.manifests[0].rubric.mode.item)
        how = f"the judge is the same, and the responses changed in {changed:,} of {of}"
        if not changed:
            how = "the judge and all responses" + " with a score in both runs" * bool(missing) + " are the same"
    systems = _systems(rows, [*cells.values()])
    there = tuple(dict.fromkeys(systems))
    table, lowest = rows.values, np.array([cell.lowest for cell in matched])
    of_old = _means(table, [cell.scored[0] for cell in cells.values()])
    of_new = _means(table, [cell.new for cell in matched], rows.low, lowest)
    return MatchedRuns(
        rows=rows,
        names=names,
        differs="judge" if different else "responses" if changed else "nothing",
        how=how,
        group=rows.source.group[[cell.scored[0][0] for cell in cells.values()]],
        systems=there,
        system=np.array([there.index(name) for name in systems]),
        old=_means(table, [[old for old, _ in cell.pairs] for cell in matched]),
        new=_means(table, [cell.new * bool(cell.pairs) for cell in matched]),
        change=of_new - of_old,
        lowest=lowest,
        row_pairs=row_pairs,
        places=np.array([cell.pairs[0] if cell.pairs else (cell.missing[0][0], -1) for cell in matched]),
        missing=missing,
        failed=tuple(
            RowWithoutScore(each.identity.id or "", name, each.reason)
            for each, name in rows.unscored
            if each.run == 0
        ),
        unmatched=unmatched,
        only_new=sum(keys[row] not in cells for row in scored[1]),
        notes=notes,
    )


def _means(
    table: Floats, cells: Sequence[Sequence[int]], low: Floats | None = None, lowest: Integers | None = None
) -> Floats:
    """Return the mean of each column over the rows of each cell, [cells, C]; NaN for a cell without rows.

    Args:
        table: the columns, [rows, C].
        cells: the rows of each cell.
        low: the lowest score of each column, [C].
        lowest: number of further rows of each cell with the lowest score, [cells].
    """
    counts = np.array([len(rows) for rows in cells])
    of_cell = np.repeat(np.arange(len(cells)), counts)
    rows = np.array([row for each in cells for row in each], dtype=np.int64)
    means = cell_means(table[rows], of_cell, len(cells))
    if low is None or lowest is None:
        return means
    total = (counts + lowest)[:, None]
    found: Floats = (np.nan_to_num(means) * counts[:, None] + low * lowest[:, None]) / total
    return found


def _changed(identities: Sequence[Identity], pairs: Sequence[tuple[int, int]]) -> int:
    """Return how many rows of OLD have a response that NEW does not have in the cell."""
    old, new = (Counter(identities[pair[run]].digests for pair in pairs) for run in (0, 1))
    return (old - new).total()


def _systems(rows: ComparedRows, cells: Sequence[Cell]) -> list[str]:
    """Return the name of the system of each cell; both names, if it has another one in NEW."""
    old = [rows.systems[cell.scored[0][0]] for cell in cells]
    names = {name: {name: None} for name in old}
    for name, cell in zip(old, cells, strict=True):
        names[name] |= {rows.systems[row]: None for row in cell.scored[1][:1]}
    shown = {name: " → ".join(each for each in both if each != UNNAMED) for name, both in names.items()}
    return [shown[name] or UNNAMED for name in old]


def _absent(new: str) -> str:
    return f"not in {new}"


def _without_score(
    rows: ComparedRows, matched: Sequence[MatchedCell], failed: Sequence[Sequence[UnscoredRow]], new: str
) -> tuple[tuple[RowWithoutScore, ...], tuple[RowWithoutScore, ...]]:
    """Return the rows of OLD without a score in NEW, and the rows of NEW that failed and are none of these."""
    used: set[int] = set()
    unread: dict[str | None, list[UnscoredRow]] = defaultdict(list)
    for each in failed[1]:
        if each.group is None:
            unread[each.identity.id].append(each)
    systems = {name for each in rows.identities for name in each.systems}
    missing = []
    for row, lost in (pair for cell in matched for pair in cell.missing):
        own, name = rows.identities[row], rows.identities[row].id or ""
        if lost is None:
            # A pair is not formed if one of its responses cannot be read.
            same = [each for part in (name, *name.split(" vs ")) for each in unread[part]]
            known = (each for each in same if not {*each.identity.systems} & (systems - {*own.systems, None}))
            lost = next(known, None)
        if lost is not None:
            used.add(id(lost))
        reason = _absent(new) if lost is None else f"failed in {new}: {lost.reason}"
        missing.append(RowWithoutScore(name, rows.systems[row], reason))
    in_old = {(each.identity.id, each.identity.systems) for each in failed[0]}
    unmatched = [
        RowWithoutScore(each.identity.id or "", name, each.reason)
        for each, name in rows.unscored
        if each.run == 1 and id(each) not in used and (each.identity.id, each.identity.systems) not in in_old
    ]
    return tuple(missing), tuple(unmatched)


def _by_instruction(
    rows: ComparedRows,
    scored: Sequence[Sequence[int]],
    failed: Sequence[Sequence[UnscoredRow]],
    names: Sequence[str],
) -> tuple[Keys, list[Keys]]:
    """Return the cell of each row, also of those that failed: its instruction, and its system if a run has
    several.

    Raises:
        UsageError: a run has several systems, and none of them is in both.
    """
    known = [[each for each in of_run if each.group is not None] for of_run in failed]
    systems = [
        {rows.identities[row].systems for row in own} | {each.identity.systems for each in lost}
        for own, lost in zip(scored, known, strict=True)
    ]
    is_one = all(len(each) == 1 for each in systems)
    if not is_one and not systems[0] & systems[1]:
        raise UsageError(
            f"{names[1]}: has no system of {names[0]}; compare runs of the same systems, or of one system each"
        )
    keys: Keys = [
        (group, None if is_one else identity.systems)
        for group, identity in zip(rows.source.group.tolist(), rows.identities, strict=True)
    ]
    return keys, [
        [
            None if each.group is None else (each.group, None if is_one else each.identity.systems)
            for each in own
        ]
        for own in failed
    ]


def _by_response(
    rows: ComparedRows,
    scored: Sequence[Sequence[int]],
    failed: Sequence[Sequence[UnscoredRow]],
    names: Sequence[str],
    how: str,
) -> tuple[Keys, list[Keys], tuple[str, ...]]:
    """Return the cell of each row, also of those that failed, of equal texts in both runs, and remarks.

    Raises:
        UsageError: NEW has another response in the place of one of OLD.
    """
    known = [[each for each in of_run if each.digest is not None] for of_run in failed]
    identities = [
        [*(rows.identities[row] for row in own), *(each.identity for each in lost)]
        for own, lost in zip(scored, known, strict=True)
    ]
    common, notes = align_runs(identities, rows.source.manifests)
    cell_of: list[dict[int, int]] = [{pair[run]: cell for cell, pair in enumerate(common)} for run in (0, 1)]
    keys: Keys = [(row,) for row in range(len(rows.source.run))]
    left: list[dict[Hashable, str]] = [{} for _ in scored]
    for run, own in enumerate(scored):
        for place, row in enumerate(own):
            if place in cell_of[run]:
                keys[row] = cell_of[run][place]
            else:
                left[run][rows.identities[row].id, rows.identities[row].systems] = rows.identities[row].where
    if both := left[0].keys() & left[1].keys():
        raise UsageError(
            f"{names[1]}: {how}, and so did {counted(len(both), 'response')} of {len(scored[0]):,} (such as "
            f"{left[0][next(iter(both))]}), so nothing tells which of them changed a score; judge the same "
            "responses with both judges, or all of them with one"
        )
    places = [
        {id(each): len(own) + at for at, each in enumerate(lost)}
        for own, lost in zip(scored, known, strict=True)
    ]
    keys_of_failed: list[Keys] = [
        [cell_of[run].get(places[run].get(id(each), -1)) for each in failed[run]] for run in (0, 1)
    ]
    return keys, keys_of_failed, notes


def _how_judges_differ(manifests: Sequence[RunManifest], different: Sequence[str]) -> str:
    found = []
    for name in different:
        known = [
            {"model": manifest.model.name, "rubric": manifest.rubric.name}.get(name, manifest.judge[name])
            for manifest in manifests
        ]
        found.append(
            f"{name} {known[0]} → {known[1]}" if known[0] != known[1] else f"{name} {known[0]}, edited"
        )
    return f"the judge changed ({', '.join(found)})"
