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
from localjudge.runs.shard import WHOLE, Shard
from localjudge.system.steps import Report, no_progress

_BYTES_MEASURED = 1_000_000
"""The largest rows are encoded to find the longest prompt: as many as have this many bytes together."""
_DIGEST_SIZE = 16
"""The size of the digest of a row's content in bytes."""


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
        self._builder = judge.task_builder
        self._scratch = scratch
        # Of each row of the shard: its group, the digests of its content and of its identity, whether it is a
        # failure, and the bound of its prompt, if every prompt has one.
        self._groups = array("Q")
        self._digests = bytearray()
        self._identities = array("Q")
        self._unreadable = bytearray()
        self._bounds = array("q")
        with ExitStack() as stack:
            self._stored = stack.enter_context(RowStore(scratch))
            for row in self._rows_of_shard(rows, report, expected=expected):
                self._stored.append(row)
            self._open = stack.pop_all()
        self.rows = len(self._stored)
        groups = np.asarray(self._groups)
        digests = np.frombuffer(self._digests, "S16")
        different, self._content, self._copies = np.unique(digests, return_inverse=True, return_counts=True)
        self.different = len(different)
        self.groups = len(np.unique(groups))
        # By the first row of the group, then by the first duplicate, then in the order of the input.
        order = np.lexsort((_first_indices(digests), _first_indices(groups)))
        self.order = array("q", order.astype(np.int64).tobytes())
        first_with_identity = _first_indices(np.asarray(self._identities))
        self._repeated = np.flatnonzero(first_with_identity != np.arange(self.rows))
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
            failure = self.row(place)
            assert isinstance(failure, Failure)
            return failure.key
        begin = place * _DIGEST_SIZE
        return row_key(settings, bytes(self._digests[begin : begin + _DIGEST_SIZE]))

    def encode(self, done: Callable[[int], bool] = lambda place: False) -> TaskStream:
        """Begin to encode the rows in the order of judging, in a thread that ends with the plan.

        Duplicate rows share one task.

        Args:
            done: returns whether the row at a place needs no prompt.
        """
        begins = array("q")
        copies = array("q")
        last_content = None
        for begin, place in enumerate(self.order):
            content = self._content[place]
            if content != last_content and not done(place):
                begins.append(begin)
                copies.append(self._copies[content])
            last_content = content
        return self._open.enter_context(
            TaskStream(
                self._builder, self.row, order=self.order, begins=begins, copies=copies, scratch=self._scratch
            )
        )

    def longest(self) -> int | None:
        """Return an upper bound, in tokens, of the length of prompts that fit the context; None if unknown.

        The largest rows are encoded, and the size of the next one bounds all others. So the bound is exact if
        the largest row is much larger than most.
        """
        if len(self._bounds) < self.rows:
            return None
        longest = 0
        bytes_measured = 0
        largest_first = np.argsort(np.asarray(self._bounds), kind="stable")[::-1]
        for place in largest_first.tolist():
            bound = self._bounds[place]
            if bound <= longest:
                break
            bytes_measured += bound
            if bytes_measured > _BYTES_MEASURED:
                longest = bound
                break
            row = self.row(place)
            if isinstance(row, Row):
                longest = max(longest, len(self._builder.task(row).tokens))
        room = self._builder.room
        if room:
            return min(longest, room)
        return longest

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

    def _rows_of_shard(
        self, rows: Iterable[Row | Failure], report: Report, *, expected: int | None
    ) -> Iterator[Row | Failure]:
        """Yield the rows of this shard, and keep the numbers of each; all rows of the input are counted."""
        for row in numbered(rows):
            self.input_rows += 1
            report(self.input_rows, expected)
            digest = _digest(row)
            if isinstance(row, Failure):
                group = int.from_bytes(digest[:8])
            else:
                group = int(row.group, 16)
            identity = json.dumps(_identity(row)).encode()
            self._input_digest.update(identity + digest)
            if not self.shard.holds(group):
                continue
            self._groups.append(group)
            self._digests += digest
            self._identities.append(int.from_bytes(hashlib.sha256(identity).digest()[:8]))
            if isinstance(row, Failure):
                self._unreadable.append(True)
                self._bounds.append(0)
            else:
                self._unreadable.append(False)
                bound = self._builder.bound(row)
                if bound is not None:
                    self._bounds.append(bound)
            yield row


def _first_indices(values: NDArray[np.generic]) -> NDArray[np.int64]:
    """Return, for each value, the index of its first occurrence."""
    _, first, group = np.unique(values, return_index=True, return_inverse=True)
    return np.asarray(first[group], np.int64)


def _digest(row: Row | Failure) -> bytes:
    """Return a digest of a row's content, 16 bytes; duplicate rows share it."""
    if isinstance(row, Failure):
        return hashlib.sha256(row.key.encode()).digest()[:_DIGEST_SIZE]
    return row.digest


def _identity(row: Row | Failure) -> list[str | bool | None]:
    """Return the fields that distinguish rows of one input with equal content."""
    fields: list[str | bool | None] = [row.id, row.system]
    if row.opponent is not None or row.swapped:
        fields += [row.opponent, row.swapped]
    if row.criterion is not None:
        fields.append(row.criterion.model_dump_json())
    return fields
