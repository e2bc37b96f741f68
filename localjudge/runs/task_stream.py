"""The tasks of a run, encoded by a thread ahead of the engine.

Encoding is most of what a run does besides the engine's own work, and the tokenizers library leaves the
interpreter to others meanwhile. So prompts are encoded while the engine loads and while it judges. They wait in
a scratch file: memory does not grow with their number, and the thread never waits for the engine.
"""

from __future__ import annotations

import json
import threading
from array import array
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

from localjudge.models.capacity.memory import BLOCK
from localjudge.prompts.task_builder import TaskBuilder
from localjudge.prompts.task_feed import Task
from localjudge.records import Failure, Row
from localjudge.system.line_store import LineStore
from localjudge.system.steps import Report, unreported

_REPORT_EVERY = 0.25
"""Seconds between two reports of the rows that are encoded."""


class TaskStream(AbstractContextManager["TaskStream"]):
    """The tasks of rows, in a fixed order. The thread encodes while the context is entered.

    Args:
        builder: encodes the rows.
        row: returns the row at a place.
        places: the places of the rows to encode, in this order.
        copies: for each of them, the number of rows that share its task; the counts below count them all.
        scratch: a folder for the scratch file; None for the system's temporary folder.

    Attributes:
        encoded: number of rows that were encoded so far, or cannot be.
        prompt_tokens: total number of their prompt tokens.
        longest: length of their longest prompt in tokens; 0 if there is none.
        too_long: number of them that do not fit the model's context.
        first_too_long: the source of the first of these; None if there is none.
        prompts: number of prompts that were encoded so far; rows that share a task have one.
        tokens: total number of their tokens.
        shared_tokens: number of these that the prompt before has at the same places, in whole blocks of 16.
        squares: sum of the squares of their lengths.
    """

    def __init__(
        self,
        builder: TaskBuilder,
        row: Callable[[int], Row | Failure],
        places: array[int],
        copies: array[int],
        scratch: Path | None = None,
    ) -> None:
        self.encoded = self.prompt_tokens = self.longest = self.too_long = 0
        self.first_too_long: str | None = None
        self.prompts = self.tokens = self.shared_tokens = self.squares = 0
        self._previous: list[int] = []
        self._builder, self._row = builder, row
        self._places, self._copies = places, copies
        self._next = 0
        self._error: BaseException | None = None
        self._stopped = self._ended = False
        self._progress = threading.Condition()
        self._tasks = LineStore.scratch(scratch)
        # A daemon: an interrupt while `__exit__` waits for it ends the process.
        self._thread = threading.Thread(target=self._run, name="localjudge-encoder", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped = True
        self._thread.join()
        self._tasks.__exit__()

    def task(self, place: int) -> Task | Failure:
        """Return the task of the row at this place, as soon as it is encoded.

        Ask for places in their order; places may be left out.

        Raises:
            Exception: the error that ended the thread before this row.
        """
        while self._places[self._next] != place:
            self._next += 1
        with self._progress:
            self._progress.wait_for(lambda: len(self._tasks) > self._next or self._ended)
        if self._error is not None and len(self._tasks) <= self._next:
            raise self._error
        row = self._row(place)
        return row if isinstance(row, Failure) else _task(row, self._tasks[self._next])

    def finish(self, report: Report = unreported) -> None:
        """Wait until all rows are encoded.

        Args:
            report: receives the number of different rows that are encoded.

        Raises:
            Exception: the error that ended the thread.
        """
        while self._thread.is_alive():
            report(len(self._tasks), len(self._places))
            self._thread.join(_REPORT_EVERY)
        report(len(self._tasks), len(self._places))
        if self._error is not None:
            raise self._error

    @property
    def scratch_bytes(self) -> int:
        """Size of the scratch file in bytes."""
        return self._tasks.size

    def _run(self) -> None:
        try:
            self._encode()
        except BaseException as error:  # the caller's thread raises it
            self._error = error
        with self._progress:
            self._ended = True
            self._progress.notify()

    def _encode(self) -> None:
        tasks = self._builder.tasks(map(self._row, self._places))
        for copies, task in zip(self._copies, tasks, strict=True):
            if self._stopped:
                return
            self.encoded += copies
            if isinstance(task, Task):
                self.prompt_tokens += copies * len(task.tokens)
                self.longest = max(self.longest, len(task.tokens))
                if task.overflows:
                    self.too_long += copies
                    self.first_too_long = self.first_too_long or task.row.source
                if task.tokens:
                    self._count(task.tokens)
            line = b"" if isinstance(task, Failure) else _dump(task)
            with self._progress:
                self._tasks.append(line)
                self._progress.notify()

    def _count(self, tokens: list[int]) -> None:
        self.prompts += 1
        self.tokens += len(tokens)
        self.shared_tokens += _shared(self._previous, tokens) // BLOCK * BLOCK
        self.squares += len(tokens) ** 2
        self._previous = tokens


def _shared(first: list[int], second: list[int]) -> int:
    """Return the number of tokens with which both begin."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(first), len(second)))


def _dump(task: Task) -> bytes:
    """Return a task without its row: a JSON document, a newline and the tokens, four bytes each."""
    document = {
        "cut": task.candidate_cut,
        "error": task.error,
        "overflows": task.overflows,
        "text": task.text,
    }
    return json.dumps(document).encode() + b"\n" + array("i", task.tokens).tobytes()


def _task(row: Row, dumped: bytes) -> Task:
    document, _, tokens = dumped.partition(b"\n")
    found = json.loads(document)
    return Task(
        row, array("i", tokens).tolist(), found["cut"], found["error"], found["overflows"], found["text"]
    )
