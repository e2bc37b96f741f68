"""Tasks, which are rows with their prompts, and the feed that gives their prompts to an engine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

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
        samples: number of prompts of each task; they differ in their seeds.
    """

    def __init__(self, tasks: Iterable[Task | None], key: Callable[[Row], str], samples: int = 1) -> None:
        self._tasks = iter(tasks)
        self._key = key
        self._samples = samples
        self._in_flight: dict[int, tuple[Task, str, list[Any]]] = {}
        self._refused: list[Task] = []
        self._tag = 0
        self.exhausted = False

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
                self._in_flight[self._tag] = task, key, []
                for sample in range(self._samples):
                    tag = self._tag * self._samples + sample
                    seed = _seed(key, sample)
                    yield Prompt(tag, task.tokens, seed, task.text, task.beginnings)

    def take(self, answers: Iterable[Any]) -> Iterator[tuple[Task, str, list[Any]]]:
        """Yield the tasks whose last answers are among these, and forget them.

        Args:
            answers: answers to prompts; each has the `tag` of its prompt.

        Returns:
            each task, the key of its row, and the answers to all its prompts in their order.
        """
        for each in answers:
            task, key, own = self._in_flight[each.tag // self._samples]
            own.append(each)
            if len(own) == self._samples:
                del self._in_flight[each.tag // self._samples]
                yield task, key, sorted(own, key=lambda answer: answer.tag)

    def take_refused(self) -> list[Task]:
        """Return the tasks without a prompt since the last call."""
        refused, self._refused = self._refused, []
        return refused


def _seed(key: str, sample: int) -> int:
    """Return the seed of a sample of a row's answers; that of the first is the key itself."""
    return int(hashlib.sha256(f"{key} {sample}".encode()).hexdigest()[:32] if sample else key, 16)
