"""Tasks, which are rows with their prompts, and the feed that gives their prompts to an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from localjudge.records import Failure, Row

# After this many consecutive tasks without a prompt, the feed pauses so that they can be written.
_MOST_WAITING = 1000


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt: token ids, and the tag and the seed of its row.

    `text` is set instead of the token ids for an engine without a tokenizer: the row's own turn. `beginnings`
    are numbers of tokens, in ascending order: the prompts of all rows, of an instruction and of a row begin
    with as many of them (`Rubric.beginnings`).
    """

    tag: int
    tokens: list[int]
    seed: int
    text: str = ""
    beginnings: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """A row and its prompt: token ids, or the error why it has none.

    `row` is a failure if the row could not be read. `text` is the prompt instead of token ids where only a
    server has the tokenizer.

    `overflows` is True if the whole row does not fit the model's context. `candidate_cut` is the number of
    characters of the candidate, and of tool results, that were left out, and `shown` the row without them; None
    if it is whole. `places` are the places in a plan of all rows that share the task; a task outside of a plan
    has none. `beginnings` are those of `Prompt`.
    """

    row: Row | Failure
    tokens: list[int] = field(default_factory=list)
    candidate_cut: int = 0
    error: str | None = None
    overflows: bool = False
    text: str = ""
    shown: Row | None = None
    places: Sequence[int] = ()
    beginnings: tuple[int, ...] = ()


class StopSubmitting(Exception):  # noqa: N818 (not an error)
    """Raised by an iterator of prompts: submit no more prompts; finish those in flight."""


def until_stopped(prompts: Iterable[Prompt | None]) -> Iterator[Prompt | None]:
    """Yield prompts until they end or raise `StopSubmitting`.

    For engines whose answers do not depend on how prompts are batched.
    """
    with suppress(StopSubmitting):
        yield from prompts


class TaskFeed:
    """The prompts of tasks, created when the engine asks for them; tasks without a prompt are collected.

    After many consecutive tasks without a prompt the feed ends early, so that they can be written; it can be
    iterated again.

    Args:
        tasks: the tasks; None if no further one is ready yet.
        key: returns the key of a row's judgement, 32 hex digits.
    """

    def __init__(self, tasks: Iterable[Task | None], key: Callable[[Row], str]) -> None:
        self._tasks = iter(tasks)
        self._key = key
        self._in_flight: dict[int, tuple[Task, str]] = {}
        self._refused: list[Task] = []
        self._tag = 0
        self.exhausted = False
        """Whether there is no further task."""

    def __iter__(self) -> Iterator[Prompt | None]:
        while len(self._refused) < _MOST_WAITING:
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
            elif isinstance(task.row, Failure) or task.error is not None:
                self._refused.append(task)
            else:
                self._tag += 1
                key = self._key(task.row)
                self._in_flight[self._tag] = task, key
                yield Prompt(self._tag, task.tokens, int(key, 16), task.text, task.beginnings)

    def take(self, tag: int) -> tuple[Task, str]:
        """Return the task of a prompt and the key of its row, and forget them."""
        return self._in_flight.pop(tag)

    def take_refused(self) -> list[Task]:
        """Return the tasks without a prompt since the last call."""
        refused = self._refused
        self._refused = []
        return refused
