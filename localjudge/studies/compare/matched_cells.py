"""The rows of a cell in two runs: which row of NEW belongs to which row of OLD, and which row of OLD has none.

A cell is what both runs are compared on: the rows of one system on one instruction or, of two judges, one
response. A row of OLD belongs to the row of NEW with the same id; the rows that are left belong together in
their order. A row of OLD that has a score is missing if no row of NEW with a score belongs to it. A row of NEW
with the id of a row that failed in OLD is compared with nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from localjudge.matching.run_rows import UnscoredRow

T = TypeVar("T")


@dataclass(slots=True)
class Cell:
    """The rows of a cell.

    Attributes:
        scored: the numbers of the rows of OLD with a score, and of NEW.
        failed: the other rows of OLD, and of NEW.
    """

    scored: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    failed: tuple[list[UnscoredRow], list[UnscoredRow]] = field(default_factory=lambda: ([], []))

    def match(self, ids: Sequence[str | None], unread: Collection[str | None]) -> MatchedCell:
        """Return which rows belong together.

        Args:
            ids: the id of each row with a score.
            unread: the ids of the rows of OLD without a score whose instruction is not known.
        """
        found, (old, new), (lost_old, lost_new) = MatchedCell(), self.scored, self.failed
        scored, failures = _by_id(new, ids.__getitem__), _by_id(lost_new, lambda row: row.identity.id)
        alone: list[int] = []
        for row in old:
            if same := scored.get(ids[row]):
                found.pairs.append((row, same.pop(0)))
            elif lost := failures.get(ids[row]):
                found.missing.append((row, lost.pop(0)))
            else:
                alone.append(row)
        failed = {each.identity.id for each in lost_old}
        left = [row for rows in scored.values() for row in rows if ids[row] not in failed]
        found.extra_failed = [
            row for rows in failures.values() for row in rows if row.identity.id not in failed
        ]
        for row in alone:
            if left:
                found.pairs.append((row, left.pop(0)))
            else:
                found.missing.append((row, found.extra_failed.pop(0) if found.extra_failed else None))
        found.extra = [row for row in left if ids[row] not in unread]
        return found


@dataclass(slots=True)
class MatchedCell:
    """The rows of a cell that belong together.

    Attributes:
        pairs: the rows of OLD and of NEW.
        missing: the rows of OLD without a score in NEW, each with the row of NEW that failed, if there is one.
        extra: further rows of NEW with a score.
        extra_failed: further rows of NEW that failed.
    """

    pairs: list[tuple[int, int]] = field(default_factory=list)
    missing: list[tuple[int, UnscoredRow | None]] = field(default_factory=list)
    extra: list[int] = field(default_factory=list)
    extra_failed: list[UnscoredRow] = field(default_factory=list)

    @property
    def new(self) -> list[int]:
        """The rows of NEW with a score that are compared."""
        return [new for _, new in self.pairs] + self.extra

    @property
    def lowest(self) -> int:
        """Number of rows that count as the lowest score in NEW."""
        return len(self.missing) + len(self.extra_failed)


def _by_id(rows: Iterable[T], identity: Callable[[T], str | None]) -> dict[str | None, list[T]]:
    found: dict[str | None, list[T]] = defaultdict(list)
    for row in rows:
        found[identity(row)].append(row)
    return found
