"""What a run has before it: every row read and made a prompt once, before the engine starts.

Rows that share an instruction and a reference share the beginning of their prompt, which an engine computes
once if they come together. So the tasks are laid out in a scratch file and handed out group by group, in the
order in which the groups first came, and equal rows one after the other; memory grows by a few numbers a row.
On the way each prompt is measured: the engine's context can be fitted to the longest, and rows that do not fit
are known before a GPU is used.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
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
from localjudge.records import Failure, Row, numbered
from localjudge.runs.shard import WHOLE, Shard


class RunPlan(AbstractContextManager["RunPlan"]):
    """The tasks of a run, measured and in the order of judging.

    Args:
        judge: whose prompts they become.
        rows: every row of the input.
        scratch: a folder for the scratch file, which takes about as much as the input and its prompts (four
            bytes a token) together; None for the system's own.
        shard: the part of the input that this run is to judge.

    Attributes:
        shard: as given.
        input_rows: how many rows the whole input has, unreadable ones included.
        input_digest: of the whole input's rows, in their order, in hex.
        rows: how many of them are of this shard.
        different: how many of those are work of their own; equal ones are judged once.
        groups: how many instructions, with their reference, those have.
        too_long: how many of those do not fit the model's context.
        prompt_tokens: of all their prompts together.
        longest: tokens of the longest prompt that fits, 0 where there is none.
        repeated_ids: how many rows of this shard have the id and the system of an earlier one.
        scratch_bytes: what the scratch file takes.
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
        self._offsets = array("q")
        self._groups, self._digests, self._ids = array("Q"), bytearray(), array("Q")
        self._file = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115 (closed on exit)
        try:
            for task in judge.tasks(self._part(rows)):
                self._offsets.append(self._file.tell())
                self._file.write(_dump(task))
                self._measure(task)
        except BaseException:
            self._file.close()
            raise
        self.rows = len(self._offsets)
        self.scratch_bytes = self._file.tell()
        groups, digests = np.asarray(self._groups), np.frombuffer(self._digests, "S16")
        self.groups, self.different = len(np.unique(groups)), len(np.unique(digests))
        self._order = _order(groups, digests)
        first = _first(np.asarray(self._ids))
        self._repeated = np.flatnonzero(first != np.arange(self.rows))
        self.repeated_ids = len(self._repeated)

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Task | Failure]:
        """Each task, group by group; its row has its number in the whole input."""
        for place in self._order:
            self._file.seek(self._offsets[place])
            document = json.loads(self._file.readline())
            yield _task(document, self._file.read(4 * document["tokens"]))

    def in_order(self) -> Iterator[Row | Failure]:
        """Each row, with its number in the whole input, in the input's order."""
        for offset in self._offsets:
            self._file.seek(offset)
            yield _row(json.loads(self._file.readline()))

    def repeated_id(self) -> Row | Failure:
        """The first row that has the id and the system of an earlier one; there must be one."""
        self._file.seek(self._offsets[self._repeated[0]])
        return _row(json.loads(self._file.readline()))

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
    """Places by the first of their group, then by the first of their equals, then as they came."""
    first_of_group = _first(groups)
    return array("q", np.lexsort((_first(digests), first_of_group)).astype(np.int64).tobytes())


def _first(values: NDArray[np.generic]) -> NDArray[np.int64]:
    """For each place, the first place that holds the same value."""
    _, first, member = np.unique(values, return_index=True, return_inverse=True)
    return np.asarray(first[member], np.int64)


def _digest(row: Row | Failure) -> bytes:
    """Equal for rows that are the same work, 16 bytes."""
    if isinstance(row, Failure):
        return hashlib.sha256(row.key.encode()).digest()[:16]
    return row.digest


def _group(row: Row | Failure) -> int:
    """Equal for rows whose prompts begin alike, 64 bits."""
    return int.from_bytes(_digest(row)[:8]) if isinstance(row, Failure) else int(row.group, 16)


def _dump(task: Task | Failure) -> bytes:
    if isinstance(task, Failure):
        return json.dumps({"failure": task.model_dump(), "tokens": 0}).encode() + b"\n"
    rest = {"cut": task.candidate_cut, "error": task.error, "overflows": task.overflows}
    return (
        json.dumps({"row": asdict(task.row), **rest, "tokens": len(task.tokens)}).encode()
        + b"\n"
        + array("i", task.tokens).tobytes()
    )


def _row(document: dict[str, Any]) -> Row | Failure:
    return Failure(**document["failure"]) if "failure" in document else Row(**document["row"])


def _task(document: dict[str, Any], tokens: bytes) -> Task | Failure:
    row = _row(document)
    if isinstance(row, Failure):
        return row
    return Task(row, array("i", tokens).tolist(), document["cut"], document["error"], document["overflows"])
