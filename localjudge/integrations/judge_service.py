"""A judge that takes rows at any time: one thread judges the rows of all requests together.

    requests → waiting rows → (task builder, engine) → outcomes → the futures of their rows

The rows of many clients share the batches and the prefix cache of one engine.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Self

from localjudge.errors import EngineError, ServiceBusyError, in_one_line
from localjudge.judge import Judge
from localjudge.prompts.task import StopSubmitting, Task
from localjudge.records import Failure, Outcome, Row, numbered

_ROWS_AT_ONCE = 256
"""Largest number of waiting rows that are encoded at once."""


@dataclass(frozen=True, slots=True)
class _WaitingRow:
    """A row in the queue.

    Attributes:
        number: its number among all rows of the service, from 1.
        row: the row, or why it could not be read.
    """

    number: int
    row: Row | Failure


class JudgeService(AbstractContextManager["JudgeService"]):
    """The thread that judges. It runs while the context is entered; leaving it finishes the rows that wait.

    Args:
        judge: the judge; its engine is opened by the thread.
        most_waiting: the largest number of rows without an outcome.
        patience: seconds that leaving the context waits for the rows without an outcome; None waits for all.

    Attributes:
        ready: whether the engine is open.
        error: the error that ended the thread; None if there was none.
        failure: what clients are told of it: its message in one line, without secrets.
        on_error: called in the thread after such an error.
    """

    def __init__(self, judge: Judge, most_waiting: int = 10_000, patience: float | None = None) -> None:
        self.ready = False
        self.error: BaseException | None = None
        self.failure: str | None = None
        self.on_error: Callable[[], None] = lambda: None
        self._judge = judge
        self._most_waiting = most_waiting
        self._patience = patience
        self._next_number = 1
        self._waiting: deque[_WaitingRow] = deque()
        self._futures: dict[int, Future[Outcome]] = {}  # of all rows without an outcome, by their numbers
        self._in_flight: set[int] = set()  # the numbers of the rows that the engine has
        self._stopped = False
        self._abandoned = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="localjudge-service", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join(self._patience)
        if self.running:
            self.abandon()

    @property
    def running(self) -> bool:
        """Whether the thread runs; after the context was left, the engine is in the middle of a batch."""
        return self._thread.is_alive()

    def abandon(self) -> None:
        """Answer all rows without an outcome with an error, also those that the engine still judges."""
        with self._changed:
            self._stopped = True
            self._abandoned = True
            self._waiting.clear()
            unanswered = self._futures
            self._futures = {}
            self._changed.notify()
        self._answer_with_error(unanswered)

    def submit(self, rows: Sequence[Row | Failure]) -> list[Future[Outcome]]:
        """Queue rows, all or none, and return the future outcome of each.

        If a future is cancelled before its row is taken from the queue, the row is not judged. The outcome's
        `row` counts the rows of this service from 1.

        Raises:
            ServiceBusyError: too many rows are waiting.
            EngineError: the judge has failed or is stopping.
        """
        with self._changed:
            if self.failure is not None:
                raise EngineError(f"the judge failed: {self.failure}")
            if self._stopped:
                raise EngineError("the judge is stopping")
            if len(self._futures) + len(rows) > self._most_waiting:
                raise ServiceBusyError(
                    f"{len(self._futures)} rows are waiting, and {len(rows)} more would be above the limit of "
                    f"{self._most_waiting}; send them later"
                )
            futures: list[Future[Outcome]] = []
            first_number = self._next_number
            for number, row in enumerate(numbered(rows, first_number), first_number):
                future: Future[Outcome] = Future()
                futures.append(future)
                self._futures[number] = future
                self._waiting.append(_WaitingRow(number, row))
            self._next_number += len(futures)
            self._changed.notify()
        return futures

    def _run(self) -> None:
        try:
            _ = self._judge.engine  # loads the model
            self.ready = True
            for judged in self._judge.judge_tasks(self._tasks()):
                self._finish([outcome for _, outcome in judged])
                if self._abandoned:
                    break
        except BaseException as error:  # every request hears of it
            self.failure = in_one_line(error)
            self.error = error
        self.ready = False
        with self._changed:
            unanswered = self._futures
            self._futures = {}
        self._answer_with_error(unanswered)
        if self.error is not None:
            self.on_error()

    def _answer_with_error(self, unanswered: Mapping[int, Future[Outcome]]) -> None:
        """Answer rows that are not judged."""
        message = "the judge is stopping; send the rows again"
        if self.failure is not None:
            message = f"the judge stopped: {self.failure}"
        for future in unanswered.values():
            with suppress(InvalidStateError):  # cancelled, because its client went away
                future.set_exception(EngineError(message))

    def _tasks(self) -> Iterator[Task | None]:
        """Yield the tasks of waiting rows; None if no row waits while others are in flight."""
        while True:
            rows = self._next_rows()
            if not rows:
                yield None
            yield from self._judge.task_builder.tasks(rows)

    def _next_rows(self) -> list[Row | Failure]:
        """Take rows from the queue; wait for one if no row is in flight.

        Raises:
            StopSubmitting: there will be no more rows.
        """
        rows: list[Row | Failure] = []
        with self._changed:
            while not self._waiting and not self._in_flight and not self._stopped:
                self._changed.wait()
            if self._abandoned or (self._stopped and not self._waiting):
                raise StopSubmitting
            for _ in range(min(len(self._waiting), _ROWS_AT_ONCE)):
                waiting = self._waiting.popleft()
                if self._begins(waiting.number):
                    rows.append(waiting.row)
        return rows

    def _begins(self, number: int) -> bool:
        """Return whether a row is to be judged; a client that went away has cancelled its future."""
        if not self._futures[number].set_running_or_notify_cancel():
            del self._futures[number]
            return False
        self._in_flight.add(number)
        return True

    def _finish(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            number = outcome.row or 0
            self._in_flight.discard(number)
            with self._changed:
                future = self._futures.pop(number, None)
            if future is not None:  # otherwise the row was abandoned
                future.set_result(outcome)
