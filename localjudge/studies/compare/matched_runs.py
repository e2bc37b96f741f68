"""Two runs side by side: what differs between them, and what each of their cells holds.

Either the responses differ, as last week's and this week's, and the same judge has judged both; or the judge
differs, and has judged the same responses. If both differ, nothing tells which of them changed a score.

A cell is what both runs are compared on: the rows of one system on one instruction or, of two judges, one
response. A row of OLD belongs to the row of NEW with the same id; the rows that are left belong together in
their order. A row of OLD that has a score is missing if no row of NEW with a score belongs to it. A row of NEW
with the id of a row that failed in OLD is compared with nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.errors import UsageError
from localjudge.matching import UNNAMED, Identity
from localjudge.matching.row_index import align_runs
from localjudge.matching.run_rows import run_names
from localjudge.runs.run_manifest import RunManifest
from localjudge.statistics.resampling import cell_means
from localjudge.studies.compare.compared_rows import ComparedRows
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


@dataclass(slots=True)
class Cell:
    """The rows of a cell; `match` finds which of them belong together.

    Attributes:
        scored: the rows of OLD with a score, and of NEW.
        failed: the other rows of OLD, and of NEW.
        pairs: the rows of OLD and of NEW that belong together.
        missing: the rows of OLD without a score in NEW, each with the row of NEW that failed, if there is one.
        extra: further rows of NEW with a score.
        extra_failed: further rows of NEW that failed.
    """

    scored: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    failed: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    pairs: list[tuple[int, int]] = field(default_factory=list)
    missing: list[tuple[int, int | None]] = field(default_factory=list)
    extra: list[int] = field(default_factory=list)
    extra_failed: list[int] = field(default_factory=list)

    def match(self, ids: Sequence[str | None], unread: Collection[str | None]) -> None:
        """Find the rows that belong together.

        Args:
            ids: the id of each row.
            unread: the ids of the rows of OLD without a score whose instruction is not known.
        """
        scored, failures = (_by_id(members[1], ids) for members in (self.scored, self.failed))
        alone: list[int] = []
        for row in self.scored[0]:
            if same := scored.get(ids[row]):
                self.pairs.append((row, same.pop(0)))
            elif lost := failures.get(ids[row]):
                self.missing.append((row, lost.pop(0)))
            else:
                alone.append(row)
        failed = {ids[row] for row in self.failed[0]}
        left = [row for rows in scored.values() for row in rows if ids[row] not in failed]
        self.extra_failed = [row for rows in failures.values() for row in rows if ids[row] not in failed]
        for row in alone:
            if left:
                self.pairs.append((row, left.pop(0)))
            else:
                self.missing.append((row, self.extra_failed.pop(0) if self.extra_failed else None))
        self.extra = [row for row in left if ids[row] not in unread]

    def select(self, counts: Flags) -> bool:
        """Leave out the rows of OLD that do not count, and return whether one does.

        Further rows of NEW can belong to the others, so they stay only where all rows of OLD count.
        """
        if not counts[self.scored[0]].all():
            self.scored = [row for row in self.scored[0] if counts[row]], self.scored[1]
            self.pairs = [pair for pair in self.pairs if counts[pair[0]]]
            self.missing = [pair for pair in self.missing if counts[pair[0]]]
            self.extra, self.extra_failed = [], []
        return bool(self.scored[0])

    @property
    def new(self) -> list[int]:
        """The rows of NEW with a score that are compared."""
        return [new for _, new in self.pairs] + self.extra

    def rows_of_old(self, highest: int, lowest: int) -> list[tuple[int, int]]:
        """Return the rows of OLD with their rows of NEW, or `lowest`; other failures fall from `highest`."""
        missing = [(old, lowest) for old, _ in self.missing]
        return [*self.pairs, *missing, *[(highest, lowest)] * len(self.extra_failed)]

    @property
    def lowest(self) -> int:
        """Number of rows that count as the lowest score in NEW."""
        return len(self.missing) + len(self.extra_failed)


def _by_id(rows: Iterable[int], ids: Sequence[str | None]) -> dict[str | None, list[int]]:
    of_id: dict[str | None, list[int]] = defaultdict(list)
    for row in rows:
        of_id[ids[row]].append(row)
    return of_id


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
        cell: the cell of each row of OLD with a score, and of each further row of NEW that failed, [r].
        row_change: the change of each such row, [r, C]; one without a score in NEW counts as the lowest score,
            and a further one as if it had the highest in OLD.
        is_lost: whether it has no score in NEW, [r].
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
    cell: Integers
    row_change: Floats
    is_lost: Flags
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
        in_both: Flags = self.places[:, 1] >= 0
        return in_both

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


def match_runs(rows: ComparedRows, gate: bool = False) -> MatchedRuns:
    """Match the rows of two runs.

    Args:
        rows: the rows of both runs.
        gate: for a gate, which counts rows without a score: in NEW, no row that counts needs to have one.

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
        keys = _by_instruction(rows, names)
    old, new = (rows.rows_of(run) for run in (0, 1))
    cells: dict[Hashable, Cell] = {keys[row]: Cell() for row in old if rows.has_score(row)}
    for run, members in enumerate((old, new)):
        for row in members:
            if keys[row] in cells:
                cell = cells[keys[row]]
                (cell.scored if rows.has_score(row) else cell.failed)[run].append(row)
    failed = [row for row in old if not rows.has_score(row)]
    ids = [identity.id for identity in rows.identities]
    unread = {ids[row] for row in failed if rows.group[row] < 0}
    matched = [*cells.values()]
    for cell in matched:
        cell.match(ids, unread)
    missing, unmatched = _without_score(rows, matched, names[1])
    has_others = any(cell.pairs for cell in matched)
    matched = [cell for cell in matched if cell.select(rows.counts)]
    if not matched:
        raise UsageError(f"{names[0]}: has no row with a score to compare")
    row_pairs = np.array([pair for cell in matched for pair in cell.pairs], dtype=np.int64).reshape(-1, 2)
    lost = [row for row in missing if row.reason != _absent(names[1])]
    if not len(row_pairs) and not (gate and (lost or has_others)):
        said = [f"{len(lost):,} of {len(missing):,} {row.reason} (such as id {row.id})" for row in lost]
        advice = [*said, "compare runs of the same systems on the same instructions"][0]
        raise UsageError(f"{names[1]}: has no row of {names[0]} with a score; {advice}")
    changed = sum(_changed(rows.identities, cell.pairs) for cell in matched)
    if not different:
        of = counted(len(row_pairs), rows.source.manifests[0].rubric.mode.item)
        how = f"the judge is the same, and the responses changed in {changed:,} of {of}"
        if not len(row_pairs):
            how = "the judge is the same"
        elif not changed:
            how = "the judge and all responses" + " with a score in both runs" * bool(missing) + " are the same"
    systems = _systems(rows, matched)
    there = tuple(dict.fromkeys(systems))
    table = np.vstack([rows.values, rows.low + rows.width, rows.low])
    highest, lowest = len(table) - 2, len(table) - 1
    with_lowest = [cell.new + [lowest] * cell.lowest for cell in matched]
    change = _means(table, with_lowest) - _means(table, [cell.scored[0] for cell in matched])
    places, before, after = np.array(
        [(at, *pair) for at, cell in enumerate(matched) for pair in cell.rows_of_old(highest, lowest)]
    ).T
    return MatchedRuns(
        rows=rows,
        names=names,
        differs="judge" if different else "responses" if changed else "nothing",
        how=how,
        group=rows.group[[cell.scored[0][0] for cell in matched]],
        systems=there,
        system=np.array([there.index(name) for name in systems]),
        old=_means(table, [[old for old, _ in cell.pairs] for cell in matched]),
        new=_means(table, [cell.new * bool(cell.pairs) for cell in matched]),
        change=change,
        lowest=np.array([cell.lowest for cell in matched]),
        cell=places,
        row_change=table[after] - table[before],
        is_lost=after == lowest,
        row_pairs=row_pairs,
        places=np.array([cell.pairs[0] if cell.pairs else (cell.missing[0][0], -1) for cell in matched]),
        missing=missing,
        failed=tuple(_row_without_score(rows, row) for row in failed if rows.counts[row]),
        unmatched=unmatched,
        only_new=sum(rows.has_score(row) and keys[row] not in cells for row in new),
        notes=notes,
    )


def _means(table: Floats, cells: Sequence[Sequence[int]]) -> Floats:
    """Return the mean of each column over the rows of each cell, [cells, C]; NaN for a cell without rows."""
    of_cell = np.repeat(np.arange(len(cells)), [len(rows) for rows in cells])
    return cell_means(table[[row for rows in cells for row in rows]], of_cell, len(cells))


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


def _row_without_score(rows: ComparedRows, row: int, reason: str = "") -> RowWithoutScore:
    return RowWithoutScore(rows.identities[row].id or "", rows.systems[row], reason or rows.reasons[row])


def _without_score(
    rows: ComparedRows, matched: Sequence[Cell], new: str
) -> tuple[tuple[RowWithoutScore, ...], tuple[RowWithoutScore, ...]]:
    """Return the rows of OLD without a score in NEW, and the rows of NEW that failed and are none of these."""
    identities = rows.identities
    used = {row for cell in matched if not rows.counts[cell.scored[0]].all() for row in cell.extra_failed}
    failed = [[row for row in rows.rows_of(run) if not rows.has_score(row)] for run in (0, 1)]
    unread: dict[str | None, list[int]] = defaultdict(list)
    for row in failed[1]:
        if rows.group[row] < 0:
            unread[identities[row].id].append(row)
    systems = {name for identity in identities[: len(rows.turned)] for name in identity.systems}
    missing = []
    for row, lost in (pair for cell in matched for pair in cell.missing):
        own, name = identities[row], identities[row].id or ""
        if lost is None:
            # A pair is not formed if one of its responses cannot be read.
            same = [each for part in (name, *name.split(" vs ")) for each in unread[part]]
            others = systems - {*own.systems, None}
            lost = next((each for each in same if not {*identities[each].systems} & others), None)
        if lost is not None:
            used.add(lost)
        reason = _absent(new) if lost is None else f"failed in {new}: {rows.reasons[lost]}"
        missing += [_row_without_score(rows, row, reason)] * bool(rows.counts[row])
    in_old = {(identities[row].id, identities[row].systems) for row in failed[0]}
    unmatched = [
        _row_without_score(rows, row)
        for row in failed[1]
        if row not in used and (identities[row].id, identities[row].systems) not in in_old
    ]
    return tuple(missing), tuple(unmatched)


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
