"""The lines of earlier starts of a run: those that stay, and those that belong to no row of the input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from localjudge.records import Failure, Outcome
from localjudge.records.outcome_columns import AnswerColumns
from localjudge.runs.journal import KeyIndex, key_digest, read_journal
from localjudge.runs.reader import JUDGEMENTS, SET_ASIDE


class LinesOfEarlierStarts:
    """The lines of a run directory when a start begins; they are read, and nothing is written.

    Args:
        folder: the run directory.
        aspects: the aspects of the run's rubric.
        key: returns the key of the row at a place of the plan.
        rows: the number of rows of the plan.
        retry_failed: lines of rows that failed do not stay.

    Attributes:
        set_aside: number of lines of the journal that belong to no row of the input.
        rows: the keys of the rows; empty if there are no lines.

    Raises:
        RunMismatchError: a line does not belong to such a run.
    """

    def __init__(
        self, folder: Path, columns: AnswerColumns, key: Callable[[int], str], rows: int, retry_failed: bool
    ) -> None:
        self._journal, self._aside = folder / JUDGEMENTS, folder / SET_ASIDE
        self._columns, self._key, self._retry_failed = columns, key, retry_failed
        self.set_aside = 0
        some = self._journal.exists() or self._aside.exists()
        self.rows = KeyIndex(b"".join(key_digest(key(place)) for place in range(rows if some else 0)))
        there, staying = bytearray(), bytearray()
        for _, outcome in read_journal(self._journal, columns):
            if outcome.key not in self.rows:
                self.set_aside += 1
                continue
            there += key_digest(outcome.key)
            if not self._again(outcome):
                staying += key_digest(outcome.key)
        self._present = KeyIndex(there)
        for _, outcome in self._back():
            if outcome.key in self.rows and not self._again(outcome):
                staying += key_digest(outcome.key)
        self._staying = KeyIndex(staying)

    def has(self, place: int) -> bool:
        """Return whether the row at this place has a line that stays."""
        return self._key(place) in self._staying

    def staying(self) -> Iterator[tuple[bytes, Outcome]]:
        """Yield the lines that stay or come back, of each key at most as many as the input has rows.

        This method can be called once.
        """
        for piece, outcome in chain(read_journal(self._journal, self._columns), self._back()):
            if not self._again(outcome) and self.rows.take(outcome.key):
                yield piece, outcome

    def aside(self) -> Iterator[bytes]:
        """Yield the lines that were set aside before, and those of the journal that belong to no row now."""
        yield from (piece for piece, _ in read_journal(self._aside, self._columns))
        yield from self._left(self._journal)

    def still_aside(self) -> Iterator[bytes]:
        """Yield the lines of the file of set-aside lines that belong to no row of the input."""
        return self._left(self._aside)

    def _left(self, file: Path) -> Iterator[bytes]:
        lines = read_journal(file, self._columns)
        return (piece for piece, outcome in lines if outcome.key not in self.rows)

    def _back(self) -> Iterator[tuple[bytes, Outcome]]:
        """Yield the lines that were set aside and whose key has no line in the journal."""
        return (each for each in read_journal(self._aside, self._columns) if each[1].key not in self._present)

    def _again(self, outcome: Outcome) -> bool:
        return self._retry_failed and isinstance(outcome, Failure)
