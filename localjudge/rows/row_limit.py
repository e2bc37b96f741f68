"""The first rows of an input, and the systems that have no row among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from localjudge.records import Failure, Row

_FURTHER_ROWS = 20_000
"""Number of rows after the last one that are searched for other systems."""


class RowLimit:
    """The largest number of rows or pairs of an input that are used.

    Args:
        count: this number; None for all.
        reads_on: whether further rows are read to find other systems; not from a pipe, which may never end.

    Attributes:
        left_out: the systems that were found only in further rows, after the last row is read.
    """

    def __init__(self, count: int | None = None, reads_on: bool = False) -> None:
        self.count, self._reads_on, self.left_out = count, reads_on and count is not None, tuple[str, ...]()

    def first(self, rows: Iterable[Row | Failure]) -> Iterator[Row | Failure]:
        """Yield as many rows."""
        rows, seen = iter(rows), set[str]()
        for row in islice(rows, self.count):
            seen.update(_systems(row))
            yield row
        further = chain.from_iterable(map(_systems, islice(rows, _FURTHER_ROWS if self._reads_on else 0)))
        self.left_out = tuple(name for name in dict.fromkeys(further) if name not in seen)


def _systems(row: Row | Failure) -> list[str]:
    """Return the systems of a row; none of one that cannot be read."""
    return (
        [] if isinstance(row, Failure) else [each.system for each in row.responses if each.system is not None]
    )
