"""What the engine is fed: the task that each row is, and the prompts of those that can be judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from localjudge.prompts.prompt import Prompt, StopSubmitting
from localjudge.records import Failure, Outcome, Row

# This many failures in a row are handed out before the engine is given more to do.
_MOST_WAITING = 1000


@dataclass(frozen=True, slots=True)
class Task:
    """A row and the prompt that it becomes: token ids, or an error instead.

    `overflows` says that the whole row does not fit the model's context; `candidate_cut`, how many characters
    of the candidate were left out for that.
    """

    row: Row
    tokens: list[int]
    candidate_cut: int = 0
    error: str | None = None
    overflows: bool = False


class TaskFeed:
    """Tasks as prompts, as the engine asks for them; rows that make no prompt are set aside as failures.

    Where very many fail in a row, the feed ends early, so that the failures are handed out; it can be
    iterated again.

    Args:
        tasks: of the rows, with the failures among them.
        key: of the judgement of a row, 32 hex digits.
    """

    def __init__(self, tasks: Iterable[Task | Failure], key: Callable[[Row], str]) -> None:
        self._tasks = iter(tasks)
        self._key = key
        self._asked: dict[int, tuple[Task, dict[str, Any]]] = {}
        self._failures: list[Outcome] = []
        self._tag = 0
        self.exhausted = False

    def __iter__(self) -> Iterator[Prompt]:
        while len(self._failures) < _MOST_WAITING:
            try:
                task = next(self._tasks, None)
            except StopSubmitting:
                self.exhausted = True
                raise
            if task is None:
                self.exhausted = True
                return
            if isinstance(task, Failure):
                self._failures.append(task)
                continue
            row, key = task.row, self._key(task.row)
            identity = row.identity | {"key": key}
            if task.error is not None:
                self._failures.append(Failure(**identity, error=task.error))
                continue
            self._tag += 1
            self._asked[self._tag] = task, identity | {"prompt_tokens": len(task.tokens)}
            yield Prompt(self._tag, task.tokens, seed=int(key, 16))

    def take(self, tag: int) -> tuple[Task, dict[str, Any]]:
        """What was asked under this tag: the task, and what every outcome of its row says."""
        return self._asked.pop(tag)

    def take_failures(self) -> list[Outcome]:
        failures, self._failures = self._failures, []
        return failures
