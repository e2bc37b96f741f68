"""The rows of a cell in two runs: which row of NEW belongs to which row of OLD, and which row of OLD has none.

A cell is what both runs are compared on: the rows of one system on one instruction or, of two judges, one
response. A row of OLD belongs to the row of NEW with the same id; the rows that are left belong together in
their order. A row of OLD that has a score is missing if no row of NEW with a score belongs to it. A row of NEW
with the id of a row that failed in OLD is compared with nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field


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

    @property
    def new(self) -> list[int]:
        """The rows of NEW with a score that are compared."""
        return [new for _, new in self.pairs] + self.extra

    @property
    def lowest(self) -> int:
        """Number of rows that count as the lowest score in NEW."""
        return len(self.missing) + len(self.extra_failed)


def _by_id(rows: Iterable[int], ids: Sequence[str | None]) -> dict[str | None, list[int]]:
    of_id: dict[str | None, list[int]] = defaultdict(list)
    for row in rows:
        of_id[ids[row]].append(row)
    return of_id
