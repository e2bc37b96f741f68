"""The lines of earlier starts: which of them stay when a start begins, and which are set aside."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from localjudge.records import Failure, Outcome
from localjudge.records.outcome_columns import AnswerColumns
from localjudge.runs.journal import read_journal
from localjudge.runs.key_index import KeyIndex, key_digest
from localjudge.runs.run_files import JUDGEMENTS, SET_ASIDE


class LinesOfEarlierStarts:
    """The lines of a run directory when a start begins; they are read, and nothing is written.

    Args:
        folder: the run directory.
        columns: the columns of an answer to the run's rubric.
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
        self, folder: Path, columns: AnswerColumns, *, key: Callable[[int], str], rows: int, retry_failed: bool
    ) -> None:
        self._journal = folder / JUDGEMENTS
        self._aside = folder / SET_ASIDE
        self._columns = columns
        self._key = key
        self._retry_failed = retry_failed
        self.set_aside = 0
        row_keys = bytearray()
        if self._journal.exists() or self._aside.exists():
            for place in range(rows):
                row_keys += key_digest(key(place))
        self.rows = KeyIndex(row_keys)
        in_journal = bytearray()
        staying = bytearray()
        for _, outcome in read_journal(self._journal, columns):
            if outcome.key not in self.rows:
                self.set_aside += 1
                continue
            in_journal += key_digest(outcome.key)
            if not self._must_be_rejudged(outcome):
                staying += key_digest(outcome.key)
        self._in_journal = KeyIndex(in_journal)
        for _, outcome in self._to_restore():
            if outcome.key in self.rows and not self._must_be_rejudged(outcome):
                staying += key_digest(outcome.key)
        self._staying = KeyIndex(staying)

    def has(self, place: int) -> bool:
        """Return whether the row at this place has a line that stays."""
        return self._key(place) in self._staying

    def staying(self) -> Iterator[tuple[str, bytes]]:
        """Yield each line that stays or comes back after its key, of each key at most as many as the rows.

        This method can be called once.
        """
        for line, outcome in chain(read_journal(self._journal, self._columns), self._to_restore()):
            if not self._must_be_rejudged(outcome) and self.rows.take(outcome.key):
                yield outcome.key, line

    def all_set_aside(self) -> Iterator[bytes]:
        """Yield the lines that were set aside before, and those of the journal that belong to no row now.

        A start that ended while it set lines aside has left some in both files.
        """
        digests = set()
        for line, _ in read_journal(self._aside, self._columns):
            digests.add(hashlib.sha256(line).digest())
            yield line
        for line in self._without_row(self._journal):
            if hashlib.sha256(line).digest() not in digests:
                yield line

    def still_set_aside(self) -> Iterator[bytes]:
        """Yield the lines of the file of set-aside lines that belong to no row of the input."""
        return self._without_row(self._aside)

    def _without_row(self, file: Path) -> Iterator[bytes]:
        """Yield the lines of a file that belong to no row of the input."""
        for line, outcome in read_journal(file, self._columns):
            if outcome.key not in self.rows:
                yield line

    def _to_restore(self) -> Iterator[tuple[bytes, Outcome]]:
        """Yield the lines that were set aside and whose key has no line in the journal."""
        for line, outcome in read_journal(self._aside, self._columns):
            if outcome.key not in self._in_journal:
                yield line, outcome

    def _must_be_rejudged(self, outcome: Outcome) -> bool:
        """Return whether an outcome is a failure, and failed rows are judged again."""
        return self._retry_failed and isinstance(outcome, Failure)
