"""Tasks (a row and its prompt), and the prompts of the rows that can be judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from localjudge.prompts.prompt import Prompt, StopSubmitting
from localjudge.records import Failure, Outcome, Row

# After this many consecutive failures, the feed pauses so that they can be written.
_MOST_WAITING = 1000


@dataclass(frozen=True, slots=True)
class Task:
    """A row and its prompt: token ids, or an error.

    `text` is the prompt instead of token ids where only a server has the tokenizer.

    `overflows` is True if the whole row does not fit the model's context. `candidate_cut` is the number of
    characters of the candidate that were left out to make it fit.
    """

    row: Row
    tokens: list[int]
    candidate_cut: int = 0
    error: str | None = None
    overflows: bool = False
    text: str = ""


class TaskFeed:
    """Prompts for the engine, created on demand; rows without a prompt are collected as failures.

    After many consecutive failures the feed ends early, so that they can be written; it can be iterated again.

    Args:
        tasks: the tasks of the rows, and the failures between them; None if no further one is ready yet.
        key: returns the key of a row's judgement, 32 hex digits.
    """

    def __init__(self, tasks: Iterable[Task | Failure | None], key: Callable[[Row], str]) -> None:
        self._tasks = iter(tasks)
        self._key = key
        self._asked: dict[int, tuple[Task, dict[str, Any]]] = {}
        self._failures: list[Outcome] = []
        self._tag = 0
        self.exhausted = False

    def __iter__(self) -> Iterator[Prompt | None]:
        while len(self._failures) < _MOST_WAITING:
            try:
                task = next(self._tasks)
            except StopIteration:
                self.exhausted = True
                return
            except StopSubmitting:
                self.exhausted = True
                raise
            if task is None:
                yield None
                continue
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
            yield Prompt(self._tag, task.tokens, seed=int(key, 16), text=task.text)

    def take(self, tag: int) -> tuple[Task, dict[str, Any]]:
        """Return the task with this tag, and the fields that every outcome of its row has; forget both."""
        return self._asked.pop(tag)

    def take_failures(self) -> list[Outcome]:
        failures, self._failures = self._failures, []
        return failures
