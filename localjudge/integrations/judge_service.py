"""A judge that takes rows at any time: one thread judges the rows of all requests together.

    requests → waiting rows → (task builder, engine) → outcomes → the futures of their rows

The rows of many clients share the batches and the prefix cache of one engine. `SharedJudge` is such a judge for
all callers of a process: the samples of an Inspect task, the documents of a harness, tests.
"""

from __future__ import annotations

import atexit
import json
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, suppress
from functools import cache, cached_property
from typing import Any, Self

from localjudge.errors import EngineError, ServiceBusyError, in_one_line
from localjudge.judge import Judge
from localjudge.prompts.task import StopSubmitting, Task
from localjudge.records import Failure, Judgement, Outcome, Row, numbered
from localjudge.rows.program_rows import rows_of_program
from localjudge.rubrics.rubric import Rubric

_ROWS_AT_ONCE = 256
"""Largest number of waiting rows that are encoded at once."""


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
        self._judge, self._most_waiting, self._patience = judge, most_waiting, patience
        self._next = 1
        self._waiting: deque[tuple[int, Row | Failure]] = deque()
        self._futures: dict[int, Future[Outcome]] = {}
        self._in_flight: set[int] = set()
        self._stopped = self._abandoned = False
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
            self._stopped = self._abandoned = True
            self._waiting.clear()
            left, self._futures = self._futures, {}
            self._changed.notify()
        self._answer(left)

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
            numbers = range(self._next, self._next + len(rows))
            self._next += len(rows)
            self._waiting.extend(zip(numbers, numbered(rows, numbers.start), strict=True))
            futures: dict[int, Future[Outcome]] = {number: Future() for number in numbers}
            self._futures |= futures
            self._changed.notify()
        return [*futures.values()]

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
            left, self._futures = self._futures, {}
        self._answer(left)
        if self.error is not None:
            self.on_error()

    def _answer(self, left: Mapping[int, Future[Outcome]]) -> None:
        """Answer rows that are not judged."""
        reason = "is stopping; send the rows again"
        if self.failure is not None:
            reason = f"stopped: {self.failure}"
        for future in left.values():
            with suppress(InvalidStateError):  # cancelled, because its client went away
                future.set_exception(EngineError(f"the judge {reason}"))

    def _tasks(self) -> Iterator[Task | None]:
        """Yield the tasks of waiting rows; None if no row waits while others are in flight."""
        while True:
            with self._changed:
                while not (self._waiting or self._in_flight or self._stopped):
                    self._changed.wait()
                if self._abandoned or (self._stopped and not self._waiting):
                    raise StopSubmitting
                taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), _ROWS_AT_ONCE))]
                rows = [row for number, row in taken if self._begins(number)]
            if not rows:
                yield None
            yield from self._judge.task_builder.tasks(rows)

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


class SharedJudge:
    """A judge that many threads ask at once. Rows that wait at the same time are judged in the same batches.

    Args:
        rubric: the name of an included rubric of single responses, or its file.
        model: as for `Judge`.
        settings: other settings of a `JudgeConfig` by name.

    Raises:
        UsageError: the settings, the rubric or the model cannot be used.
    """

    def __init__(self, rubric: str = "just-eval", model: str | None = None, **settings: Any) -> None:
        self.rubric = Rubric.load(rubric)
        advice = "; give one that judges single responses"
        self.rubric.mode.require_aspects(f"`rubric` {rubric}:", advice)
        self._judge = Judge(model, rubric=self.rubric, **settings)
        self._lock = threading.Lock()

    @property
    def about(self) -> dict[str, Any]:
        """What a reader of the scores must know: the rubric, the judge, and a warning about it or None.

        What only a server's answers to trials say is known when the first row is judged.
        """
        notices = self._judge.notices
        notice = "; ".join(notices) if notices else None
        return {"rubric": self.rubric.name, "model": self._judge.model.name, "notice": notice}

    def outcomes(self, rows: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        """Return the outcome of each row, in their order; wait until all are judged.

        Raises:
            EngineError: the engine failed.
        """
        with self._lock:
            service = self._service
        return [
            each.result()
            for each in service.submit(list(rows_of_program(rows, self.rubric.fields, one_each=True)))
        ]

    def numbers(self, judgement: Judgement) -> dict[str, int]:
        """Return the score of each ordered aspect, and 1 or 0 for each label `aspect=label` of the others."""
        return {column.name: column.number(judgement) for column in self.rubric.score_columns}

    def close(self) -> None:
        """Finish the rows in flight and free the engine; the judge cannot be asked afterwards."""
        if "_service" in self.__dict__:
            self._service.__exit__()
        self._judge.close()

    @cached_property
    def _service(self) -> JudgeService:
        return JudgeService(self._judge, most_waiting=sys.maxsize).__enter__()


def shared_judge(**settings: Any) -> SharedJudge:
    """Return this process's judge with these settings of a `SharedJudge`; the end of the process closes it.

    Raises:
        UsageError: as for `SharedJudge`.
    """
    return _shared_judge(json.dumps(settings, sort_keys=True))


@cache
def _shared_judge(settings: str) -> SharedJudge:
    judge = SharedJudge(**json.loads(settings))
    atexit.register(judge.close)
    return judge
