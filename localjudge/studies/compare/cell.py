"""A cell of two runs: the rows that one comparison is about, and which of them belong together.

A row of OLD belongs to the row of NEW with the same id in the same cell. Rows without an id of their own, and
rows whose id stands several times in the cell, belong together by their order, whether they have a score or
not. That is only certain if both runs have the same number of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
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
        extra: the rows of NEW that belong to no row of OLD.
        needs_ids: whether rows belong together by their order, but the runs have different numbers of them.
    """

    rows: Sequence[MatchedRow]
    extra: Sequence[int]
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
        old_by_id, new_by_id = _by_id(self.old, ids), _by_id(self.new, ids)
        rows, extra = list[MatchedRow](), list[int]()
        needs_ids = False
        for name in dict.fromkeys([*old_by_id, *new_by_id]):
            of_old, of_new = old_by_id.get(name, []), new_by_id.get(name, [])
            for old, new in zip_longest(of_old, of_new):
                if old is None:
                    extra.append(new)
                else:
                    rows.append(MatchedRow(old, new))
            if len(of_old) != len(of_new):
                is_missing = len(of_old) == 1 and not of_new
                is_unknown = name is not None and not of_old
                needs_ids |= not (is_missing or is_unknown)
        return MatchedCell(rows, extra, needs_ids)


def own_id(identity: Identity) -> str | None:
    """Return the id of a row; None if it is only its place in a file, which says nothing about another run.

    The id of a pair that was formed of two rows has the ids of both.
    """
    if identity.id is None or identity.id == identity.where:
        return None
    places = set(identity.where.split(" and "))
    return None if places & set(identity.id.split(" vs ")) else identity.id


def _by_id(rows: Sequence[int], ids: Sequence[str | None]) -> dict[str | None, list[int]]:
    """Return the rows with each id, in their order."""
    of_id: dict[str | None, list[int]] = defaultdict(list)
    for row in rows:
        of_id[ids[row]].append(row)
    return of_id
