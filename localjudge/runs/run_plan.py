"""The tasks of a run: every row is read and encoded once, before the engine starts.

Rows with the same instruction and reference share a prompt prefix, which an engine computes only once if it
gets these rows together. Therefore the tasks are written to a scratch file and read group by group, in the
order of each group's first row; duplicate rows follow each other. Memory grows by a few numbers for each row.
The length of each prompt is measured at the same time: the engine can limit its context to the longest prompt,
and rows that do not fit are known before a GPU is used.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localjudge.judge import Judge
from localjudge.prompts.tasks import Task
from localjudge.records import Failure, Response, Row, numbered
from localjudge.runs.shard import WHOLE, Shard
from localjudge.system.line_store import LineStore


class RunPlan(AbstractContextManager["RunPlan"]):
    """The tasks of a run, in the order of judging, with their counts and lengths.

    Args:
        judge: the judge that makes the prompts.
        rows: all rows of the input.
        scratch: a folder for the scratch file, whose size is about that of the input plus four bytes for each
            prompt token; None for the system's temporary folder.
        shard: the part of the input to judge.

    Attributes:
        shard: the part of the input to judge.
        input_rows: number of rows in the whole input, including unreadable rows.
        input_digest: digest of all rows of the input, in order, in hex.
        rows: number of rows in this shard.
        different: number of different rows in this shard; duplicate rows are judged once.
        groups: number of different pairs of instruction and reference in this shard.
        too_long: number of rows in this shard that do not fit the model's context.
        prompt_tokens: total number of prompt tokens in this shard.
        longest: length of the longest prompt that fits, in tokens; 0 if there is none.
        repeated_ids: number of rows in this shard with the id and the system of an earlier row.
        scratch_bytes: size of the scratch file in bytes.
    """

    def __init__(
        self,
        judge: Judge,
        rows: Iterable[Row | Failure],
        scratch: Path | None = None,
        shard: Shard = WHOLE,
    ) -> None:
        self.input_rows = self.too_long = self.prompt_tokens = self.longest = 0
        self._input_digest = hashlib.sha256()
        self.shard = shard
        self._groups, self._digests, self._ids = array("Q"), bytearray(), array("Q")
        self._tasks = LineStore.scratch(scratch)
        try:
            for task in judge.task_builder.tasks(self._part(rows)):
                self._tasks.append(_dump(task))
                self._measure(task)
        except BaseException:
            self._tasks.__exit__()
            raise
        self.rows, self.scratch_bytes = len(self._tasks), self._tasks.size
        groups, digests = np.asarray(self._groups), np.frombuffer(self._digests, "S16")
        self.groups, self.different = len(np.unique(groups)), len(np.unique(digests))
        self._order = _order(groups, digests)
        first = _first(np.asarray(self._ids))
        self._repeated = np.flatnonzero(first != np.arange(self.rows))
        self.repeated_ids = len(self._repeated)

    def __exit__(self, *exception: object) -> None:
        self._tasks.__exit__(*exception)

    def __iter__(self) -> Iterator[Task | Failure]:
        """Yield each task, group by group; its row has its number in the whole input."""
        for place in self._order:
            yield _task(self._tasks[place])

    def in_order(self) -> Iterator[Row | Failure]:
        """Yield each row, with its number in the whole input, in the order of the input."""
        for place in range(self.rows):
            yield _row(_load(self._tasks[place])[0])

    def repeated_id(self) -> Row | Failure:
        """Return the first row with the id and the system of an earlier row.

        Raises:
            IndexError: there is no such row.
        """
        return _row(_load(self._tasks[int(self._repeated[0])])[0])

    @property
    def input_digest(self) -> str:
        return self._input_digest.hexdigest()

    def _part(self, rows: Iterable[Row | Failure]) -> Iterator[Row | Failure]:
        for row in numbered(rows):
            self.input_rows += 1
            digest, group = _digest(row), _group(row)
            identity = json.dumps([row.id, row.system]).encode()
            self._input_digest.update(identity + digest)
            if self.shard.holds(group):
                self._groups.append(group)
                self._digests += digest
                self._ids.append(int.from_bytes(hashlib.sha256(identity).digest()[:8]))
                yield row

    def _measure(self, task: Task | Failure) -> None:
        if isinstance(task, Task):
            self.too_long += task.overflows
            self.prompt_tokens += len(task.tokens)
            self.longest = max(self.longest, len(task.tokens))


def _order(groups: NDArray[np.uint64], digests: NDArray[np.bytes_]) -> array[int]:
    """Return the order of the rows: by the first row of the group, the first duplicate, and the input."""
    first_of_group = _first(groups)
    return array("q", np.lexsort((_first(digests), first_of_group)).astype(np.int64).tobytes())


def _first(values: NDArray[np.generic]) -> NDArray[np.int64]:
    """Return, for each value, the index of its first occurrence."""
    _, first, member = np.unique(values, return_index=True, return_inverse=True)
    return np.asarray(first[member], np.int64)


def _digest(row: Row | Failure) -> bytes:
    """Return a digest of a row's content, 16 bytes; duplicate rows share it."""
    if isinstance(row, Failure):
        return hashlib.sha256(row.key.encode()).digest()[:16]
    return row.digest


def _group(row: Row | Failure) -> int:
    """Return a digest of a row's instruction and reference, 64 bits."""
    return int.from_bytes(_digest(row)[:8]) if isinstance(row, Failure) else int(row.group, 16)


def _dump(task: Task | Failure) -> bytes:
    """Return a JSON document, a newline and the tokens, four bytes each."""
    if isinstance(task, Failure):
        return json.dumps({"failure": task.model_dump()}).encode() + b"\n"
    rest = {"cut": task.candidate_cut, "error": task.error, "overflows": task.overflows}
    document = json.dumps({"row": asdict(task.row), **rest}).encode()
    return document + b"\n" + array("i", task.tokens).tobytes()


def _load(dumped: bytes) -> tuple[dict[str, Any], bytes]:
    document, _, tokens = dumped.partition(b"\n")
    return json.loads(document), tokens


def _row(document: dict[str, Any]) -> Row | Failure:
    if "failure" in document:
        return Failure(**document["failure"])
    row = document["row"]
    return Row(**row | {"responses": tuple(Response(**each) for each in row["responses"])})


def _task(dumped: bytes) -> Task | Failure:
    document, tokens = _load(dumped)
    row = _row(document)
    if isinstance(row, Failure):
        return row
    return Task(row, array("i", tokens).tolist(), document["cut"], document["error"], document["overflows"])
