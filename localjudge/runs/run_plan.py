"""The plan of a run: every row is read once, before the engine starts, and no row is encoded.

Rows with the same instruction and reference share a prompt prefix, which an engine computes only once if it
gets these rows together. Therefore the rows are written to a scratch file and read group by group, in the
order of each group's first row; duplicate rows follow each other. Memory grows by a few numbers for each row.
A thread encodes them ahead of the engine (`TaskStream`), while it loads and while it judges.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localjudge.judge import Judge
from localjudge.prompts.task_stream import TaskStream
from localjudge.records import Failure, Row, numbered
from localjudge.records.keys import row_key
from localjudge.rows.row_store import RowStore
from localjudge.runs.row_source import WHOLE, Shard
from localjudge.system.steps import Report, no_progress

# The largest rows are encoded to find the longest prompt: as many as have this many bytes together.
_BYTES_MEASURED = 1_000_000


class RunPlan(AbstractContextManager["RunPlan"]):
    """The rows of a run, in the order of judging, with their counts.

    A row has a place: its rank in this shard, from 0, in the order of the input.

    Args:
        judge: the judge that makes the prompts.
        rows: all rows of the input.
        scratch: a folder for the scratch files, whose size is about that of the input plus four bytes for each
            prompt token; None for the system's temporary folder.
        shard: the part of the input to judge.
        report: receives the number of rows that were read so far, and `expected`.
        expected: number of rows in the whole input, if it is known before they are read.

    Attributes:
        shard: the part of the input to judge.
        input_rows: number of rows in the whole input, including unreadable rows.
        input_digest: digest of all rows of the input, in order, in hex.
        rows: number of rows in this shard.
        different: number of different rows in this shard; duplicate rows are judged once.
        groups: number of different pairs of instruction and reference in this shard.
        repeated_ids: number of rows in this shard with the id and the system of an earlier row.
        order: the places of the rows in the order of judging.
    """

    def __init__(
        self,
        judge: Judge,
        rows: Iterable[Row | Failure],
        scratch: Path | None = None,
        shard: Shard = WHOLE,
        report: Report = no_progress,
        expected: int | None = None,
    ) -> None:
        self.input_rows = 0
        self._input_digest = hashlib.sha256()
        self.shard = shard
        self._builder, self._scratch = judge.task_builder, scratch
        self._groups, self._digests, self._ids = array("Q"), bytearray(), array("Q")
        self._unreadable, self._bounds = bytearray(), array("q")
        with ExitStack() as stack:
            self._stored = stack.enter_context(RowStore(scratch))
            for row in self._part(rows, report, expected):
                self._stored.append(row)
            self._open = stack.pop_all()
        self.rows = len(self._stored)
        groups, digests = np.asarray(self._groups), np.frombuffer(self._digests, "S16")
        _, self._member, self._copies = np.unique(digests, return_inverse=True, return_counts=True)
        self.groups, self.different = len(np.unique(groups)), len(self._copies)
        # By group, the first duplicate, and the input.
        order = np.lexsort((_first(digests), _first(groups)))
        self.order = array("q", order.astype(np.int64).tobytes())
        first = _first(np.asarray(self._ids))
        self._repeated = np.flatnonzero(first != np.arange(self.rows))
        self.repeated_ids = len(self._repeated)

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def __iter__(self) -> Iterator[Row | Failure]:
        """Yield each row, with its number in the whole input, in the order of judging."""
        return map(self.row, self.order)

    def in_order(self) -> Iterator[Row | Failure]:
        """Yield each row, with its number in the whole input, in the order of the input."""
        return map(self.row, range(self.rows))

    def row(self, place: int) -> Row | Failure:
        """Return the row at this place, with its number in the whole input."""
        return self._stored[place]

    def key(self, place: int, settings: bytes) -> str:
        """Return the key of the row at this place.

        Args:
            place: the row's place.
            settings: the digest of all settings that determine a judgement, 32 bytes.
        """
        if self._unreadable[place]:
            return self._failure(place).key
        return row_key(settings, bytes(self._digests[16 * place : 16 * (place + 1)]))

    def encode(self, done: Callable[[int], bool] = lambda place: False) -> TaskStream:
        """Begin to encode the rows in the order of judging, in a thread that ends with the plan.

        Duplicate rows share one task.

        Args:
            done: returns whether the row at a place needs no prompt.
        """
        begins, copies, last = array("q"), array("q"), None
        for begin, place in enumerate(self.order):
            if (member := self._member[place]) != last and not done(place):
                begins.append(begin)
                copies.append(self._copies[member])
            last = member
        return self._open.enter_context(
            TaskStream(
                self._builder,
                self.row,
                self.order,
                begins,
                copies,
                self._scratch,
            )
        )

    def longest(self) -> int | None:
        """Return an upper bound, in tokens, of the length of prompts that fit the context; None if unknown.

        The largest rows are encoded, and the size of the next one bounds all others. So the bound is exact if
        the largest row is much larger than most.
        """
        if len(self._bounds) < self.rows:
            return None
        longest = size = 0
        by_size = np.argsort(np.asarray(self._bounds), kind="stable")[::-1]
        for place in by_size.tolist():
            size += (bound := self._bounds[place])
            if bound <= longest:
                break
            if size > _BYTES_MEASURED:
                longest = bound
                break
            row = self.row(place)
            if isinstance(row, Row):
                longest = max(longest, len(self._builder.task(row).tokens))
        room = self._builder.room
        return min(longest, room) if room else longest

    def repeated_id(self) -> Row | Failure:
        """Return the first row with the id and the system of an earlier row.

        Raises:
            IndexError: there is no such row.
        """
        return self.row(int(self._repeated[0]))

    @property
    def input_digest(self) -> str:
        return self._input_digest.hexdigest()

    @property
    def scratch_bytes(self) -> int:
        """Size of the rows in the scratch file in bytes."""
        return self._stored.size

    def _part(
        self, rows: Iterable[Row | Failure], report: Report, expected: int | None
    ) -> Iterator[Row | Failure]:
        for row in numbered(rows):
            self.input_rows += 1
            report(self.input_rows, expected)
            digest = _digest(row)
            group = int.from_bytes(digest[:8]) if isinstance(row, Failure) else int(row.group, 16)
            identity = json.dumps(_identity(row)).encode()
            self._input_digest.update(identity + digest)
            if self.shard.holds(group):
                self._groups.append(group)
                self._digests += digest
                self._ids.append(int.from_bytes(hashlib.sha256(identity).digest()[:8]))
                self._unreadable.append(isinstance(row, Failure))
                bound = 0 if isinstance(row, Failure) else self._builder.bound(row)
                if bound is not None:
                    self._bounds.append(bound)
                yield row

    def _failure(self, place: int) -> Failure:
        row = self.row(place)
        assert isinstance(row, Failure)
        return row


def _first(values: NDArray[np.generic]) -> NDArray[np.int64]:
    """Return, for each value, the index of its first occurrence."""
    _, first, member = np.unique(values, return_index=True, return_inverse=True)
    return np.asarray(first[member], np.int64)


def _digest(row: Row | Failure) -> bytes:
    """Return a digest of a row's content, 16 bytes; duplicate rows share it."""
    if isinstance(row, Failure):
        return hashlib.sha256(row.key.encode()).digest()[:16]
    return row.digest


def _identity(row: Row | Failure) -> list[str | bool | None]:
    """Return the fields that distinguish rows of one input with equal content."""
    of_pair = [] if row.opponent is None and not row.swapped else [row.opponent, row.swapped]
    of_list = [] if row.criterion is None else [row.criterion.model_dump_json()]
    return [row.id, row.system, *of_pair, *of_list]
