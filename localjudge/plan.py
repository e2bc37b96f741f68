"""What a run has before it: every row read once before the engine starts.

Rows that share an instruction and a reference share the beginning of their prompt, which an engine computes
once if they come together. So the rows are laid out in a scratch file and handed out group by group, in the
order in which the groups first came; memory grows by a few numbers a row. On the way each prompt is measured:
the engine's context can be fitted to the longest, and rows that do not fit are known before a GPU is used.
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

import numpy as np

from localjudge.judge import Judge
from localjudge.records import Failure, Row


class Plan(AbstractContextManager["Plan"]):
    """The rows of a run, measured and in the order of judging.

    Args:
        judge: whose prompts they become.
        rows: every row of the input.
        scratch: a folder for the scratch file, as large as the input; None for the system's own.

    Attributes:
        rows: how many there are, unreadable ones included.
        too_long: how many do not fit the model's context.
        longest: tokens of the longest prompt that fits, 0 where there is none.
    """

    def __init__(self, judge: Judge, rows: Iterable[Row | Failure], scratch: Path | None = None) -> None:
        self._file = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115 (closed on exit)
        self._offsets, groups = array("q"), array("Q")
        self.too_long = self.longest = 0
        for row in rows:
            self._offsets.append(self._file.tell())
            self._file.write(_dump(row))
            groups.append(_group(row))
            if isinstance(row, Row):
                self._measure(judge, row)
        self.rows = len(self._offsets)
        _, first, member = np.unique(np.asarray(groups), return_index=True, return_inverse=True)
        self._order = np.argsort(first[member], kind="stable") if self.rows else np.array([], np.int64)

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[tuple[int, Row | Failure]]:
        """Each row with its place in the input, group by group."""
        for place in self._order.tolist():
            self._file.seek(self._offsets[place])
            yield place, _load(self._file.readline())

    def _measure(self, judge: Judge, row: Row) -> None:
        try:
            length = len(judge.prompts.encode(judge.rubric.text(row)))
        except ValueError:
            return  # it will fail with this reason, and needs no room
        if judge.excess(length) > 0:
            self.too_long += 1
            length -= judge.excess(length)
        self.longest = max(self.longest, length)


def _group(row: Row | Failure) -> int:
    """Equal for rows whose prompts begin alike, 64 bits."""
    same = [row.instruction, row.reference] if isinstance(row, Row) else [row.source]
    return int.from_bytes(hashlib.blake2b(json.dumps(same).encode(), digest_size=8).digest())


def _dump(row: Row | Failure) -> bytes:
    document = asdict(row) if isinstance(row, Row) else {"failure": row.model_dump()}
    return json.dumps(document).encode() + b"\n"


def _load(line: bytes) -> Row | Failure:
    document = json.loads(line)
    return Failure(**document["failure"]) if "failure" in document else Row(**document)
