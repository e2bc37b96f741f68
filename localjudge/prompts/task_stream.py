"""The tasks of a run, encoded by a thread ahead of the engine.

Encoding is most of what a run does besides the engine's own work, and the tokenizers library leaves the
interpreter to others meanwhile. So prompts are encoded while the engine loads and while it judges. They wait in
a scratch file: memory does not grow with their number, and the thread never waits for the engine.
"""

from __future__ import annotations

import pickle
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

from localjudge.prompts.task import Task
from localjudge.prompts.task_builder import TaskBuilder
from localjudge.records import Failure, Row
from localjudge.system.durable import LineStore
from localjudge.system.steps import Report, no_progress

BLOCK = 16
"""Number of tokens of a block in which vLLM keeps what it computed for them, and shares it between prompts."""
_STORED = ("candidate_cut", "error", "overflows", "text", "beginnings")
"""The fields of a task in the scratch file, beside its tokens."""
_REPORT_EVERY = 0.25
"""Seconds between two reports of the rows that are encoded."""


class TaskStream(AbstractContextManager["TaskStream"]):
    """The tasks of rows, in a fixed order. The thread encodes while the context is entered.

    Iterating over it yields each task as soon as it is encoded, and raises the error that ended the thread
    before its row.

    Args:
        builder: encodes the rows.
        row: returns the row at a place.
        order: the places of the rows, in this order; rows that share a task follow each other.
        begins: where the rows of each task to encode begin in `order`.
        copies: for each of these tasks, the number of its rows; the counts below count them all.
        scratch: a folder for the scratch file; None for the system's temporary folder.

    Attributes:
        encoded: number of rows that were encoded so far, or cannot be.
        prompt_tokens: total number of their prompt tokens.
        longest: length of their longest prompt in tokens; 0 if there is none.
        too_long: number of them that do not fit the model's context.
        first_too_long: the source of the first of these; None if there is none.
        prompts: number of prompts that were encoded so far; rows that share a task have one.
        tokens: total number of their tokens.
        shared_tokens: number of these tokens in the beginnings that prompts share with the prompt before them,
            in whole blocks of 16 tokens.
        of_all, of_instruction: numbers of them with which the prompts of all rows begin, and, after these, the
            prompts of their instruction, by the template.
    """

    def __init__(
        self,
        builder: TaskBuilder,
        row: Callable[[int], Row | Failure],
        order: Sequence[int],
        begins: array[int],
        copies: array[int],
        scratch: Path | None = None,
    ) -> None:
        self.encoded = 0
        self.prompt_tokens = 0
        self.longest = 0
        self.too_long = 0
        self.first_too_long: str | None = None
        self.prompts = 0
        self.tokens = 0
        self.shared_tokens = 0
        self.of_all = 0
        self.of_instruction = 0
        self._previous: list[int] = []
        self._builder = builder
        self._row = row
        self._order = order
        self._begins = begins
        self._copies = copies
        self._error: BaseException | None = None
        self._stopped = False
        self._ended = False
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

    def __iter__(self) -> Iterator[Task]:
        for number, (begin, copies) in enumerate(zip(self._begins, self._copies, strict=True)):
            with self._progress:
                while len(self._tasks) <= number and not self._ended:
                    self._progress.wait()
            if self._error is not None and len(self._tasks) <= number:
                raise self._error
            places = self._order[begin : begin + copies]
            yield _task(self._row(places[0]), self._tasks[number], places)

    def finish(self, report: Report = no_progress) -> None:
        """Wait until all rows are encoded.

        Args:
            report: receives the number of different rows that are encoded.

        Raises:
            Exception: the error that ended the thread.
        """
        while self._thread.is_alive():
            report(len(self._tasks), len(self._begins))
            self._thread.join(_REPORT_EVERY)
        report(len(self._tasks), len(self._begins))
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
        tasks = self._builder.tasks(self._row(self._order[begin]) for begin in self._begins)
        for copies, task in zip(self._copies, tasks, strict=True):
            if self._stopped:
                return
            self.encoded += copies
            self.prompt_tokens += copies * len(task.tokens)
            self.longest = max(self.longest, len(task.tokens))
            if task.overflows:
                self.too_long += copies
                self.first_too_long = self.first_too_long or task.row.source
            if task.tokens:
                self._count(task.tokens)
                self._count_beginnings(task.beginnings)
            with self._progress:
                self._tasks.append(_dump(task))
                self._progress.notify()

    def _count(self, tokens: list[int]) -> None:
        self.prompts += 1
        self.tokens += len(tokens)
        self.shared_tokens += _shared(self._previous, tokens) // BLOCK * BLOCK
        self._previous = tokens

    def _count_beginnings(self, beginnings: Sequence[int]) -> None:
        """Count the tokens with which all prompts begin, and those that the prompts of an instruction share.

        Beginnings of equal length are there once: a single one is that of all rows and of the instruction.
        """
        if not beginnings:
            return
        of_all = beginnings[0]
        with_instruction = beginnings[1] if len(beginnings) > 1 else of_all
        self.of_all += of_all
        self.of_instruction += with_instruction - of_all


def _shared(first: list[int], second: list[int]) -> int:
    """Return the length of the common prefix of two prompts, in tokens."""
    for length, (token, other) in enumerate(zip(first, second, strict=False)):
        if token != other:
            return length
    return min(len(first), len(second))


def _dump(task: Task) -> bytes:
    """Return a task without its rows and places."""
    stored = {name: getattr(task, name) for name in _STORED}
    stored["tokens"] = array("i", task.tokens)
    return pickle.dumps(stored)


def _task(row: Row | Failure, dumped: bytes, places: Sequence[int]) -> Task:
    """Return the task of a row from the scratch file, which has no name: only this process can write it."""
    stored = pickle.loads(dumped)
    tokens = stored.pop("tokens").tolist()
    return Task(row=row, tokens=tokens, places=places, **stored)
