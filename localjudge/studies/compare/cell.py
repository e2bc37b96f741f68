"""A cell of two runs: the rows that one comparison is about, and which of them belong together.

A row of OLD belongs to the row of NEW with the same id in the same cell. Rows without an id of their own, and
rows whose id stands several times in the cell, belong together by their order, whether they have a score or
not. That is only certain if both runs have the same number of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from localjudge.matching.identity import Identity


@dataclass(frozen=True, slots=True)
class MatchedRow:
    """A row of OLD and the row of NEW that belongs to it; None without one."""

    old: int
    new: int | None


@dataclass(frozen=True, slots=True)
class MatchedCell:
    """The rows of a cell that belong together.

    Attributes:
        rows: each row of OLD with its row of NEW.
        needs_ids: whether rows belong together by their order, but the runs have different numbers of them.
    """

    rows: Sequence[MatchedRow]
    needs_ids: bool


@dataclass(slots=True)
class Cell:
    """The rows of both runs in a cell, in their order: scored ones and others."""

    old: list[int] = field(default_factory=list)
    new: list[int] = field(default_factory=list)

    def match(self, ids: Sequence[str | None]) -> MatchedCell:
        """Return which rows belong together.

        Args:
            ids: the id of each row of both runs; None for one without an id of its own.
        """
        old_by_id = _by_id(self.old, ids)
        new_by_id = _by_id(self.new, ids)
        rows: list[MatchedRow] = []
        needs_ids = False
        for row_id, old_rows in old_by_id.items():
            new_rows = new_by_id.get(row_id, [])
            for old, new in zip_longest(old_rows, new_rows):
                if old is not None:  # further rows of NEW belong to no row of OLD
                    rows.append(MatchedRow(old, new))
            is_missing = len(old_rows) == 1 and not new_rows
            if len(old_rows) != len(new_rows) and not is_missing:
                needs_ids = True
        if None in new_by_id and None not in old_by_id:
            needs_ids = True
        return MatchedCell(rows, needs_ids)


def rows_of_cells(cells: Iterable[MatchedCell]) -> list[MatchedRow]:
    """Return the rows of some cells, in their order."""
    rows: list[MatchedRow] = []
    for cell in cells:
        rows += cell.rows
    return rows


def own_id(identity: Identity) -> str | None:
    """Return the id of a row; None if it is only its place in a file, which says nothing about another run.

    The id of a pair that was formed of two rows has the ids of both.
    """
    if identity.id is None or identity.id == identity.where:
        return None
    places = set(identity.where.split(" and "))
    if places.isdisjoint(identity.id.split(" vs ")):
        return identity.id
    return None


def _by_id(rows: Sequence[int], ids: Sequence[str | None]) -> dict[str | None, list[int]]:
    """Return the rows with each id, in their order."""
    rows_by_id: dict[str | None, list[int]] = defaultdict(list)
    for row in rows:
        rows_by_id[ids[row]].append(row)
    return rows_by_id
