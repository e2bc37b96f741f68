"""A sample of the rows of a run, drawn by a seed."""

from __future__ import annotations

import hashlib
import heapq
from dataclasses import dataclass, field

from localjudge.modes.row_outcome import RowOutcome


@dataclass(slots=True)
class RowSample:
    """A sample of rows, drawn by a seed from the keys of their judgements.

    So it does not depend on the order of the rows or on how often a run was stopped, and a smaller sample is a
    part of a larger one. Rows with the same keys count once; rows that failed are not drawn.

    Attributes:
        most: the largest number of rows.
        seed: the seed.
        rows: number of rows that were added, failed ones and copies included.
    """

    most: int
    seed: int
    rows: int = 0
    _drawn: list[tuple[int, int, RowOutcome]] = field(default_factory=list)
    _ranks: set[int] = field(default_factory=set)

    def add(self, row: RowOutcome) -> None:
        """Add a row of the run."""
        self.rows += 1
        if row.error is not None or self.most == 0:
            return
        rank = self._rank(row)
        if rank in self._ranks:
            return
        self._ranks.add(rank)
        heapq.heappush(self._drawn, (-rank, self.rows, row))
        if len(self._drawn) > self.most:
            last, _, _ = heapq.heappop(self._drawn)
            self._ranks.discard(-last)

    def first(self, size: int) -> list[RowOutcome]:
        """Return this many rows, in an order that follows from the seed."""
        in_order = sorted(self._drawn, key=lambda drawn: -drawn[0])
        return [row for _, _, row in in_order[:size]]

    def _rank(self, row: RowOutcome) -> int:
        """Return the rank of a row in the order that follows from the seed, a number of 128 bits."""
        keys = " ".join(prompt.key for prompt in row.prompts)
        digest = hashlib.sha256(f"{self.seed} {keys}".encode()).digest()
        return int.from_bytes(digest[:16])
